"""Page of a hyperparameter search."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from msgspec import structs
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.runs.folder import create_run
from engine.runs.searches import SearchFolder, create_search, searches_folder
from engine.system import paths
from gui.pages import SEARCHES
from gui.search.page import COLUMNS, FORM, LIST, NONE, SEARCH, SearchPage
from gui.sources.searches import format_goal_value, to_search_data
from tests.gui.test_app_names import get_spoken_name, list_focusable_widgets
from tests.support.made_searches import SPACE, TOP1, make_search, make_search_config, make_state
from tests.support.widgets import OpenWindow, find_button, is_right_of

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=8, epochs=1)


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> Iterator[SearchPage]:
    created = SearchPage()
    qtbot.addWidget(created)
    created.resize(900, 900)
    created.form.set_job(JOB, [], ("cpu",), {}, None)
    yield created
    created.close_work()


def show_search(page: SearchPage, qtbot: QtBot, name: str) -> SearchPage:
    page.show()
    with qtbot.waitSignal(page.source.loaded):
        page.show_search(name)
    return page


def test_search_page_without_searches_leads_to_form(page: SearchPage, qtbot: QtBot) -> None:
    assert page.stack.currentIndex() == LIST
    page.show_list()
    assert page.stack.currentIndex() == LIST, "the searches haven't been read"
    with qtbot.waitSignal(page.source.listed):
        page.show()
    page.show_list()
    assert page.stack.currentIndex() == NONE
    page.first_button.click()
    assert page.stack.currentIndex() == FORM
    page.leave.trigger()
    assert page.stack.currentIndex() == NONE
    assert not page.leave.isEnabled()


def test_list_describes_searches_and_leads_to_them(page: SearchPage, qtbot: QtBot) -> None:
    kept = make_search("kept", 3)
    kept.save_state(structs.replace(kept.state(), total=20, repeats=5, cause="No GPU is free."))
    both = make_search("both", 12, goals=2, running=2)
    with qtbot.waitSignal(page.source.listed):
        page.show()
        qtbot.keyPress(page, Qt.Key.Key_Shift, Qt.KeyboardModifier.ShiftModifier)  # must not affect the selection
    qtbot.keyRelease(page, Qt.Key.Key_Shift)
    model = page.model
    texts = {row[0]: row[1:] for row in ([model.index(r, c).data() for c in range(6)] for r in range(2))}
    assert texts == {
        "kept": ["Completed", "3 / 15", format_goal_value(TOP1, kept.state().best_value), "Top-1 accuracy", "–"],
        "both": ["Interrupted", "10 / 32", "–", "Top-1 accuracy and Training time", "–"],
    }
    tips = {model.index(row, 0).data(Qt.ItemDataRole.ToolTipRole) for row in range(2)}
    assert tips == {"No GPU is free.", str(both.path)}
    assert page.list.selected_rows() == [0]
    page.list.select([1])
    with qtbot.waitSignal(page.source.listed):
        page.source.refresh()
    assert page.list.selected_rows() == [1]
    states = []
    for move in (lambda: show_search(page, qtbot, "kept"), page.new.trigger, page.leave.trigger):
        move()
        with qtbot.waitSignal(page.source.listed):
            page.source.refresh()
        states.append((page.stack.currentIndex(), page.title.text(), page.leave.ready, page.new_button.isVisible()))
    assert [each[0] for each in states] == [SEARCH, FORM, LIST]
    assert [each[1] == "kept" for each in states] == [True, False, False]
    assert [each[2:] for each in states] == [(True, True), (True, False), (False, True)]
    show_search(page, qtbot, "kept")
    page.new_button.setFocus()
    page.leave.trigger()
    assert page.focusWidget() is page.list
    page.form.rows["name"].set_value("kept")
    page.new.trigger()
    assert page.form.rows["name"].value() == "search"
    assert page.form.rows["name"].isAncestorOf(page.focusWidget())
    page.leave.trigger()
    show_search(page, qtbot, "kept").view.change.trigger()
    assert (page.stack.currentIndex(), page.title.text()) == (FORM, "Change kept")
    assert page.form.rows["trials"].isAncestorOf(page.focusWidget())
    kept.save_state(structs.replace(kept.state(), cause=""))
    with qtbot.waitSignal(page.source.listed):
        page.source.refresh()
    assert page.stack.currentIndex() == FORM
    page.show_search("both")
    assert page.view.data is None
    page.leave.trigger()
    shutil.rmtree(searches_folder())
    qtbot.waitUntil(lambda: page.stack.currentIndex() == NONE)
    assert page.view.data is None


def test_search_page_reports_unreadable_and_deleted_search(page: SearchPage, qtbot: QtBot) -> None:
    make_search("kept", 3)
    (make_search("newer", 3).path / "search.json").write_text('{"name": "newer", "swarm": true}')
    with qtbot.waitSignal(page.source.listed):
        page.show()
    assert {line.name for line in page.model.rows} == {"kept", "newer"}
    with qtbot.waitSignal(page.source.lost):
        page.show_search("newer")
    assert page.notice.text()
    show_search(page, qtbot, "kept")
    assert page.notice.isHidden()
    shutil.rmtree(searches_folder() / "kept")
    with qtbot.waitSignal(page.source.lost):
        page.source.refresh()
    assert "“kept”" in page.notice.text()
    assert page.stack.currentIndex() == LIST
    page.new.trigger()
    assert page.notice.isHidden()
    page.notice.show_message("It was lost.")
    page.leave.trigger()
    assert page.notice.isHidden()


def test_search_is_started_and_paused_in_the_background(
    page: SearchPage, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    monkeypatch.setattr("gui.search.page.start_driver", lambda folder: calls.append(("start", folder.name)))
    monkeypatch.setattr("gui.search.page.stop_driver", lambda folder: calls.append(("stop", folder.name)))
    page.show()
    page.new.trigger()
    page.form.start_requested.emit(make_search_config("fresh"))
    qtbot.waitUntil(lambda: page.stack.currentIndex() == SEARCH)
    assert (page.title.text(), calls) == ("fresh", [("start", "fresh")])
    page.notice.show_message("An earlier failure.")
    page.view.pause_requested.emit()
    qtbot.waitUntil(lambda: len(calls) == 2)
    page.view.continue_requested.emit()
    qtbot.waitUntil(lambda: len(calls) == 3)
    assert (page.notice.isHidden(), calls[1:]) == (True, [("stop", "fresh"), ("start", "fresh")])

    def fail(_folder: SearchFolder) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gui.search.page.start_driver", fail)
    page.view.continue_requested.emit()
    qtbot.waitUntil(lambda: "Couldn't continue the search: Permission denied." in page.notice.text())


def test_axes_of_a_search_span_its_space(page: SearchPage, qtbot: QtBot) -> None:
    make_search("flowers", 3)
    data = show_search(page, qtbot, "flowers").view.data
    assert data is not None
    axes = {axis.name: axis for axis in data.axes}
    assert list(axes) == list(data.search.space)
    assert (axes["learning_rate"].low, axes["learning_rate"].high) == (-4, -1)
    assert (axes["momentum"].low, axes["momentum"].high) == (0.8, 0.99)
    assert (axes["optimizer"].low, axes["optimizer"].high) == (0, 2)
    assert [axes["optimizer"].position(name) for name in axes["optimizer"].choices] == [0, 1, 2]
    assert axes["learning_rate"].position(0.001) == -3
    ticks = {name: [(place, title) for place, title in axis.ticks()] for name, axis in axes.items()}
    assert [(place, float(title)) for place, title in ticks["learning_rate"]] == [(-4, 0.0001), (-1, 0.1)]
    assert [(place, float(title)) for place, title in ticks["momentum"]] == [(0.8, 0.8), (0.99, 0.99)]
    assert ticks["optimizer"] == [(0, "SGD"), (1, "AdamW"), (2, "LAMB")]


def test_trials_stay_sorted_and_selected(page: SearchPage, qtbot: QtBot, qtmodeltester: ModelTester) -> None:
    folder = make_search("live", 12, running=2)
    view = show_search(page, qtbot, "live").view
    qtmodeltester.check(view.model)
    assert page.stack.currentIndex() == SEARCH
    view.table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    assert view.model.rows[0].number == view.data.state.best
    view.table.select([3])
    selected = view.model.rows[3].number
    assert page.focusWidget() is view.table
    page.new_button.setFocus()
    with qtbot.waitSignal(page.source.loaded):
        folder.save_state(make_state(15, running=3))
        page.source.refresh()
    assert view.model.rowCount() == 15
    assert page.focusWidget() is page.new_button
    scores = [trial.values[0] for trial in view.model.rows if trial.values[0] is not None]
    assert scores == sorted(scores, reverse=True)
    assert [view.model.rows[row].number for row in view.table.selected_rows()] == [selected]
    assert "of 35 trials · 2 running" in view.progress_text.text()
    view.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)
    assert [trial.number for trial in view.model.rows] == list(range(15))


def test_search_plots_are_described(page: SearchPage, qtbot: QtBot) -> None:
    make_search("both", 40, goals=2, running=2)
    page.resize(1300, 1100)
    plots = show_search(page, qtbot, "both").view.plots
    qtbot.waitUntil(lambda: not plots.pending)
    for plot in (plots.curves, plots.pareto, plots.importance, plots.fields, plots.parallel):
        assert plot.has_content, plot
        assert plot.accessibleDescription()
    for field, is_contoured in (("optimizer", False), ("momentum", True)):
        plots.fields.x.setCurrentIndex(list(SPACE).index(field))
        assert plots.fields.items["contour"].isVisible() == is_contoured
    plots.fields.y.setCurrentIndex(list(SPACE).index("optimizer"))
    assert not plots.fields.items["contour"].isVisible()


def test_search_plots_are_not_cut_off_in_small_window(page: SearchPage, qtbot: QtBot) -> None:
    make_search("many", 40)
    page.resize(1280, 690)
    view = show_search(page, qtbot, "many").view
    plots = view.plots
    area = next(each for each in view.findChildren(QScrollArea) if each.isAncestorOf(plots))
    qtbot.waitUntil(lambda: plots.height() <= area.viewport().height())
    assert all(each.height() >= 200 for each in plots.plots if each.isVisible())
    area.verticalScrollBar().setValue(0)
    page.new_button.setFocus()
    plots.picked.emit(4)
    assert page.focusWidget() is view.table
    assert view.table.visibleRegion().boundingRect().height() == view.table.height()


def test_buttons_are_below_the_progress_in_narrow_view(page: SearchPage, qtbot: QtBot) -> None:
    make_search("flowers", 3)
    view = show_search(page, qtbot, "flowers").view
    for width, is_beside in ((1300, True), (700, False), (1300, True)):
        page.resize(width, 900)
        qtbot.waitUntil(
            lambda is_beside=is_beside: is_right_of(find_button(view, "Show the best"), view.best) is is_beside
        )


def test_search_view_shows_confirmed_results(page: SearchPage, qtbot: QtBot) -> None:
    folder = make_search("confirmed", 6)
    state = folder.state()
    assert state.best is not None
    best, total = state.row(state.best), len(state.trials)
    folder.save(make_search_config("confirmed", total, confirm=2))
    repeats = [
        structs.replace(
            best, number=total + k, run_id=f"repeat-{k}", repeat_of=best.number, params=best.params | {"seed": k + 1}
        )
        for k in range(2)
    ]
    confirming = [repeats[0], structs.replace(repeats[1], state="running")]
    of = {"candidates": (best.number,), "total": total + 2, "repeats": 2, "baseline": 1}
    rows = (*state.trials, *confirming)
    folder.save_state(structs.replace(state, trials=rows, ended="", **of))
    view = show_search(page, qtbot, "confirmed").view
    assert view.model.rowCount() == len(view.data.positions) == total
    assert "6 of 6 trials" in view.progress_text.text()
    assert "1 of 2" in view.progress_text.text()
    assert (view.progress.value(), view.progress.maximum()) == (total + 1, total + 2)
    assert "85.0%" not in view.best.text()
    confirmed = {best.number: (0.8, 0.9), 1: (0.7, 0.72)}
    trials = [structs.replace(row, confirmed=confirmed.get(row.number, ())) for row in state.trials]
    with qtbot.waitSignal(page.source.loaded):
        folder.save_state(structs.replace(state, trials=(*trials, *repeats), **of))
        page.source.refresh()
    assert "85.0%" in view.best.text()
    assert "71.0%" in view.best.text()
    assert "1 of 2" not in view.progress_text.text()
    best_column = [column.title for column in COLUMNS].index("Best")
    assert page.model.index(0, best_column).data() == "85.0%"
    titles = [column.title for column in view.model.columns]
    cell = view.model.index(view.model.position(best.number) or 0, titles.index("Confirmed"))
    assert cell.data() == "85.0%"
    tip = cell.data(Qt.ItemDataRole.ToolTipRole)
    assert all(value in tip for value in ("80.0%", "90.0%", "7.1%"))


def test_search_plots_without_results_are_empty(page: SearchPage, qtbot: QtBot) -> None:
    folder = create_search(make_search_config("new"))
    plots = show_search(page, qtbot, "new").view.plots
    qtbot.waitUntil(lambda: not plots.pending)
    assert not plots.curves.has_content
    assert not page.view.train.ready
    state = make_state(1, running=1)
    assert to_search_data(folder, make_search_config("new"), state, "running").best is None


def test_columns_of_trials_fit_titles_and_states(page: SearchPage, qtbot: QtBot) -> None:
    folder = make_search("new", 0)
    table = show_search(page, qtbot, "new").view.table
    columns = range(table.model().columnCount())
    assert all(table.columnWidth(column) >= table.content_width(column) for column in columns)
    for running, state in ((1, "running"), (0, "completed")):
        folder.save_state(make_state(1, running=running))
        page.source.refresh()
        qtbot.waitUntil(lambda state=state: [row.state for row in page.view.model.rows] == [state])
        assert all(table.columnWidth(column) >= table.content_width(column) for column in columns)


def test_search_view_opens_compares_and_trains(page: SearchPage, qtbot: QtBot) -> None:
    folder = make_search("best", 6)
    run = create_run(JOB)
    state = folder.state()
    first = structs.replace(state.trials[0], run_id=run.run_id)
    folder.save_state(structs.replace(state, trials=(first, *state.trials[1:])))
    view = show_search(page, qtbot, "best").view
    view.table.select([0])
    with qtbot.waitSignal(page.run_chosen) as opened:
        qtbot.keyClick(view.table, Qt.Key.Key_Return)
    assert opened.args[0].path == run.path
    view.table.select([1, 2])
    view.open.set_disabled_reason("")
    view.open.trigger()
    qtbot.waitUntil(lambda: view.model.rows[1].run_id in page.notice.text())
    folder.save_state(structs.replace(folder.state(), trials=folder.state().trials[:5]))
    page.source.refresh()
    qtbot.waitUntil(lambda: len(view.model.rows) == 5)
    assert page.notice.isVisible()
    with qtbot.waitSignal(page.compare_requested) as compared:
        view.compare.trigger()
    assert compared.args[0] == [view.model.rows[row].run_id for row in (1, 2)]
    view.train.trigger()
    assert f"trial {state.best} for 30 epochs" in view.question.text()
    assert page.focusWidget() is view.question.yes
    with qtbot.waitSignal(page.train_requested) as requested:
        view.question.yes.click()
    assert view.question.isHidden()
    best = state.row(state.best)
    assert requested.args[0].optimizer.learning_rate == best.params["learning_rate"]


def test_searches_have_a_tab_with_named_controls(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    assert "search" not in window.workspace.created, "it costs nothing until it is used"
    with qtbot.waitActive(window):
        window.activateWindow()
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    page = window.workspace.get_page("search")
    assert window.pages.currentWidget() is page
    assert window.acts.pages[SEARCHES] in window.commands.menus.tools.actions()
    page.form.vary("weight_decay")
    assert [type(each).__name__ for each in list_focusable_widgets(window) if not get_spoken_name(each).strip()] == []
    page.leave.trigger()
    assert window.pages.currentWidget() is page


@pytest.mark.long
def test_search_is_started_paused_and_continued(page: SearchPage, qtbot: QtBot) -> None:
    page.show()
    page.new.trigger()
    page.form.rows["name"].set_value("real")
    page.form.rows["trials"].set_value(2)
    qtbot.waitUntil(lambda: page.form.start.ready)
    page.form.start.trigger()
    qtbot.waitUntil(lambda: page.stack.currentIndex() == SEARCH)
    qtbot.waitUntil(lambda: page.view.pause.ready and page.view.model.rowCount() > 0)
    qtbot.waitUntil(lambda: SearchFolder(searches_folder() / "real").driver() is not None)
    page.view.pause.trigger()
    qtbot.waitUntil(lambda: page.view.data.status == "stopped")
    page.view.resume.trigger()
    qtbot.waitUntil(lambda: page.view.data.status == "completed")
    assert page.view.data.best is not None
    assert [row.state for row in page.view.data.trials] == ["completed", "completed"]


@pytest.mark.parametrize("has_searches", [True, False])
def test_search_tab_focuses_its_list(open_window: OpenWindow, qtbot: QtBot, has_searches: bool) -> None:
    if has_searches:
        make_search("first", 3)
    window = open_window()
    with qtbot.waitActive(window):
        window.activateWindow()
    window.form.focus_field("epochs")
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    page = window.workspace.get_page("search")
    target = page.list if has_searches else page.first_button
    qtbot.waitUntil(lambda: window.focusWidget() is target and target.isVisible())
    page.new_button.setFocus()
    moved_to = window.focusWidget()
    qtbot.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    assert window.focusWidget() is moved_to
