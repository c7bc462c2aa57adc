"""Where a run's time goes, what holds it back, and the button that changes that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import Advice, Chosen, TimeSpent
from gui.main_window import MainWindow
from gui.run.curves.time_bar import BAR, ORDER, TimeBar, describe, milliseconds, percent
from gui.run.curves.time_spent import TimeSpentView
from gui.sources.run_data import RunData
from gui.style import fills, theme

PARTS = {"data": 0.004, "augment": 0.0002, "forward": 0.0018, "backward": 0.0036, "optimizer": 0.0004}
MORE_WORKERS = Advice(sentence="The CPU waits: 2 more would feed it.", field="loader_workers", value=4, live=True)
NEXT_TIME = Advice(sentence="The GPU computes in fp32.", field="precision", value="bf16")
FINE = Advice(sentence="The CPU is busy 97 % of the time; there is no bottleneck.")


def spent(advice: Advice | None = None, **changes: Any) -> TimeSpent:
    return msgspec.structs.replace(TimeSpent(step=8, step_s=0.01, parts=PARTS, advice=advice), **changes)


def data(event: TimeSpent) -> RunData:
    return RunData(time_spent=event)


@pytest.fixture
def bar(styled: QApplication, qtbot: QtBot) -> TimeBar:
    made = TimeBar()
    qtbot.addWidget(made)
    made.resize(600, 80)
    made.show_time(spent())
    made.show()
    return made


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> TimeSpentView:
    made = TimeSpentView()
    qtbot.addWidget(made)
    made.resize(600, 120)
    return made


def test_that_pieces_are_as_long_as_their_shares_and_follow_one_another(bar: TimeBar) -> None:
    assert bar.piece("data").width() == pytest.approx(0.4 * bar.width())
    assert bar.piece("augment").left() == pytest.approx(bar.piece("data").right())
    assert bar.piece("optimizer").right() == pytest.approx(bar.width())
    assert bar.piece("communication").width() == 0


def test_that_the_legend_names_what_has_been_seen_of_the_run_and_keeps_it(bar: TimeBar) -> None:
    first = [entry.part for entry in bar.entries()]
    assert first == ["data", "augment", "forward", "backward", "optimizer", None]
    height = bar.height()
    bar.show_time(spent(parts={"forward": 0.01}))
    assert [entry.part for entry in bar.entries()] == first
    assert bar.height() == height
    bar.restart()
    bar.show_time(spent(parts={"forward": 0.01}))
    assert [entry.part for entry in bar.entries()] == ["forward", None]


def test_that_the_legend_never_leaves_the_widget(bar: TimeBar) -> None:
    for width in (190, 380, 600, 1900):
        bar.resize(width, bar.height())
        for entry in bar.entries():
            assert entry.rect.right() <= width + 1
            assert entry.rect.bottom() <= bar.height()


def test_that_pointing_at_a_piece_or_at_its_name_tells_of_it(bar: TimeBar) -> None:
    assert bar.part_at(bar.piece("forward").center().toPoint()) == "forward"
    named = next(entry for entry in bar.entries() if entry.part == "forward")
    assert bar.part_at(named.rect.center().toPoint()) == "forward"
    assert bar.part_at(QPoint(bar.width() // 2, BAR + 2)) is None


def test_that_what_is_pointed_at_is_framed_until_the_pointer_leaves(bar: TimeBar, qtbot: QtBot) -> None:
    piece = bar.piece("forward")
    edge = QPoint(round(piece.left()) + 1, BAR // 2)
    ink = theme.colors().text
    qtbot.mouseMove(bar, piece.center().toPoint())
    qtbot.waitUntil(lambda: bar.grab().toImage().pixelColor(edge).name() == ink)
    QApplication.sendEvent(bar, QEvent(QEvent.Type.Leave))
    assert bar.grab().toImage().pixelColor(edge).name() != ink


def test_that_the_time_is_told_in_words(bar: TimeBar) -> None:
    assert bar.accessibleName() == "Time of a step"
    assert bar.accessibleDescription() == describe(spent())
    assert describe(spent()) == (
        "A step takes 10.0 ms. Data wait 4.00 ms, 40 % of each step. Backward 3.60 ms, 36 % of each step. "
        "Forward 1.80 ms, 18 % of each step. Optimizer 0.40 ms, 4.0 % of each step. Augment 0.20 ms, 2.0 % of each step."
    )


def test_that_figures_are_short() -> None:
    assert [milliseconds(seconds) for seconds in (0.00042, 0.0315, 0.204, 1.2041)] == [
        "0.42 ms", "31.5 ms", "204 ms", "1,204 ms",
    ]  # fmt: skip
    assert [percent(share) for share in (0.002, 0.0994, 0.0996, 0.456)] == ["0.2 %", "9.9 %", "10 %", "46 %"]


@pytest.mark.parametrize("dark", [False, True])
def test_that_every_part_is_told_from_all_others_without_its_colour(
    styled: QApplication, monkeypatch: pytest.MonkeyPatch, dark: bool
) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    seen: list[tuple[object, QColor]] = []
    for part in ORDER:
        ground, pattern = fills.part_fill(part)
        alike = [other for style, other in seen if style == pattern.style()]
        assert all(fills.contrast(ground, other) > 1.25 for other in alike), part
        seen.append((pattern.style(), ground))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [240, 1900])
def test_that_bar_and_legend_are_painted_at_any_width_in_either_scheme(
    bar: TimeBar, monkeypatch: pytest.MonkeyPatch, dark: bool, width: int
) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    bar.resize(width, bar.height())
    drawn = bar.grab().toImage()
    backward = fills.part_fill("backward")[0].name()
    assert drawn.pixelColor(bar.piece("backward").center().toPoint()).name() == backward
    swatch = next(entry for entry in bar.entries() if entry.part == "backward").rect
    assert drawn.pixelColor(int(swatch.left()) + 6, int(swatch.center().y())).name() == backward


def test_that_nothing_is_shown_before_the_run_has_told_it(view: TimeSpentView) -> None:
    view.show_data(RunData(), active=True)
    assert view.isHidden()
    view.show_data(data(spent(FINE)), active=True)
    assert not view.isHidden()
    assert view.sentence.text() == FINE.sentence
    assert view.change.isHidden(), "nothing is to be changed"
    view.restart()
    assert view.isHidden()


def test_that_a_running_run_is_changed_as_it_goes(view: TimeSpentView, qtbot: QtBot) -> None:
    view.show_data(data(spent(MORE_WORKERS)), active=True)
    assert view.change.text() == "Use 4 workers now"
    with qtbot.waitSignal(view.loader_workers_wanted) as asked:
        view.change.click()
    assert asked.args == [4]
    assert (view.change.text(), view.change.isEnabled()) == ("Requested", False)
    again = msgspec.structs.replace(MORE_WORKERS, sentence="The CPU waits a little less.")
    view.show_data(data(spent(again)), active=True)
    assert not view.change.isEnabled(), "the same has been asked for"
    view.show_data(data(spent(msgspec.structs.replace(MORE_WORKERS, value=6))), active=True)
    assert (view.change.text(), view.change.isEnabled()) == ("Use 6 workers now", True)


def test_that_a_run_that_has_ended_is_changed_the_next_time(view: TimeSpentView, qtbot: QtBot) -> None:
    view.show_data(data(spent(MORE_WORKERS)), active=True)
    view.show_data(data(spent(MORE_WORKERS)), active=False)
    assert view.change.text() == "Use next time"
    with qtbot.waitSignal(view.next_time_wanted) as wanted:
        view.change.click()
    assert wanted.args == ["loader_workers", 4]
    assert view.change.text() == "Set for the next run"


def test_that_the_button_says_what_it_does(view: TimeSpentView) -> None:
    view.show_data(data(spent(NEXT_TIME)), active=True)
    assert view.change.text() == "Use next time"
    assert view.change.accessibleDescription() == "Sets Precision to bf16 in the form"


def test_that_advice_of_a_newer_footplate_has_no_button(view: TimeSpentView) -> None:
    view.show_data(data(spent(Advice(sentence="Turn it up.", field="warp", value=9))), active=True)
    assert view.sentence.text() == "Turn it up."
    assert view.change.isHidden()


def test_that_the_next_run_gets_what_was_advised(open_window: Callable[[], MainWindow]) -> None:
    window = open_window()
    assert window.workspace is not None
    window.workspace.run.next_time_wanted.emit("loader_workers", 7)
    assert window.form.field_value("loader_workers") == 7
    assert window.message.text() == "Loader workers is set to 7 in the form, for the next run."
    window.workspace.run.next_time_wanted.emit("precision", "bf16")
    assert window.form.values()["precision"] == "bf16"


def test_that_what_was_chosen_stands_in_the_log() -> None:
    said = RunData()
    said.apply(Chosen(n=1, field="picture_cache", choice="disk", why="Decoded once, for later runs."))
    said.apply(Chosen(n=2, field="precision", choice="bf16", why="the GPUs compute in it"))
    assert [line.text for line in said.lines] == [
        "Decoded images: disk. Decoded once, for later runs.",
        "Precision: bf16. The GPUs compute in it.",
    ]
