"""Page of a completed or active run: log, plots and export."""

from __future__ import annotations

import os
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from PySide6.QtCore import QCoreApplication, QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from engine.contract.devices import gpu_title
from engine.contract.events import AnyEvent, LogLine, Outcome, RunFinished, StepMetrics, TimeSpent, Verdict
from engine.runs.folder import RunFolder, create_run
from gui.plots.plot import LinePlot
from gui.run.header import CLASSES, CURVES, PREDICT, PREDICTIONS
from gui.run.log_view import LogView
from gui.run.page import RunPage
from gui.run.use.view import CONVERT, UseView
from gui.run.use.view import PREDICT as PREDICT_USE
from gui.sources.run_data import Line
from gui.style import theme
from tests.gui.sources.devices.snapshots import gpu, snapshot
from tests.gui.sources.written_runs import append_events, job, list_run_events, supervise_here, write, write_run
from tests.support.plots import get_horizontal_range, get_vertical_range
from tests.support.widgets import ShowWidget, find_button, join_visible_texts, scroll

Open = Callable[[RunFolder], RunPage]


def test_next_steps_copy_loading_code(show: Open) -> None:
    run = write_run(80)
    page = show(run)
    code = page.next_steps.code
    assert f"Run({str(run.path)!r}).load('best').module" in code
    compile(code, "shown", "exec")
    find_button(page, "Copy loading code").click()
    assert QGuiApplication.clipboard().text() == code


def test_page_shows_cause_of_failure(show: Open) -> None:
    page = show(write_run(12, "failed", cause="Out of memory on NVIDIA H200 at step 12"))
    assert join_visible_texts(page).count("Failed: Out of memory on NVIDIA H200 at step 12") == 1
    assert "Error: Out of memory on NVIDIA H200 at step 12" in page.log.text.toPlainText()


def test_page_of_interrupted_run_has_no_code(show: Open) -> None:
    run = write_run(1, None, strategy="single")
    os.utime(run.job_file, (0, 0))
    run.events_file.write_bytes(b"\n".join(run.events_file.read_bytes().split(b"\n")[:6]) + b"\n")
    page = show(run)
    assert "Interrupted" in join_visible_texts(page)
    assert "No checkpoint was saved" in join_visible_texts(page)
    assert page.next_steps.code == ""
    assert "Copy loading code" not in [
        each.accessibleName() for each in page.findChildren(QAbstractButton) if each.isVisible()
    ]


def test_plots_describe_latest_values(show: Open, qtbot: QtBot) -> None:
    page = show(write_run(80))
    plots = {plot.accessibleName(): plot for plot in page.findChildren(LinePlot)}
    assert len(plots) == len(page.findChildren(LinePlot))
    qtbot.waitUntil(lambda: "validation 0.5" in plots["Loss"].accessibleDescription())
    for name, latest in {
        "Accuracy": "training 100.0%, top-1 80.0%",
        "Speed": "all devices 880 images/s",
        "Time per step": "data wait 2.0 ms, compute 40.0 ms",
        "Utilization of the run's devices": "CPU 90%",
        "Memory of the run's devices": "CPU 3.0 GiB",
    }.items():
        assert plots[name].accessibleDescription() == f"Latest: {latest}"


def test_plots_share_x_axis(show: Open, qtbot: QtBot) -> None:
    page = show(write_run(80))
    loss, devices = page.charts.loss, page.charts.devices["utilization_percent"]
    assert get_horizontal_range(loss) == get_horizontal_range(devices)
    assert get_horizontal_range(loss)[1] == pytest.approx(8.0, rel=0.1)
    page.header.controls.axis.setCurrentIndex(1)
    assert get_horizontal_range(loss) == get_horizontal_range(devices)
    assert get_horizontal_range(loss)[1] == pytest.approx(80, rel=0.1)


def test_curve_controls_change_loss_plot(show: Open, qtbot: QtBot) -> None:
    page = show(write_run(80))
    unsmoothed = page.charts.loss.describe()
    page.header.controls.smoothing.setValue(100)
    assert page.charts.loss.describe() != unsmoothed
    page.header.controls.smoothing.setValue(0)
    assert page.charts.loss.describe() == unsmoothed
    page.header.controls.log_scale.setChecked(True)
    qtbot.waitUntil(lambda: page.charts is not None and get_vertical_range(page.charts.loss)[1] < 1)


def test_zoomed_plots_stay_until_back_to_newest(page: RunPage, qtbot: QtBot) -> None:
    run = write_run(80, None)
    page.session.open(run)  # a new run counts as starting, so that its log is followed
    qtbot.waitUntil(lambda: page.charts is not None)
    group = page.charts.group
    qtbot.waitUntil(lambda: group.extent[1] == pytest.approx(8.0, abs=0.1))
    qtbot.keyClick(page.charts.loss, Qt.Key.Key_Plus)
    zoomed = group.range
    for view, is_visible in ((CLASSES, False), (CURVES, True)):
        page.show_view(view)
        assert page.header.newest.isVisible() is is_visible
    last = page.session.data.last_number
    write(run.events_file, [LogLine(time=page.session.data.last_time + 60, text="later")], first_n=last + 1)
    more = [event for event in write_run(200, None).events() if event.n > last]
    write(run.events_file, more, first_n=last + 2)
    qtbot.waitUntil(lambda: group.extent[1] > 15)
    assert group.range == zoomed
    page.header.newest.click()
    assert get_horizontal_range(page.charts.loss)[1] >= page.session.data.steps.seconds.last
    assert not page.header.newest.isVisible()


def test_page_forgets_previous_run(show: Open) -> None:
    show(write_run(80, "failed", cause="a fault"))
    page = show(write_run(8))
    assert "a fault" not in join_visible_texts(page)
    assert "a fault" not in page.log.text.toPlainText()
    assert get_horizontal_range(page.charts.loss)[1] < 2


def test_log_marks_warnings(show: Open, qtbot: QtBot) -> None:
    page = show(write_run(8))
    qtbot.waitUntil(lambda: "That was all" in page.log.text.toPlainText())
    assert "0:00:00  Warning: 3 images could not be read and are left out" in page.log.text.toPlainText()


@pytest.mark.parametrize("way", ["key", "wheel"])
@pytest.mark.usefixtures("normal_text")
def test_log_follows_end_unless_scrolled_up(show_widget: ShowWidget, qtbot: QtBot, way: str) -> None:
    log = show_widget(LogView(), 500, 200)
    lines = [Line(float(n), "info", f"line {n}" + " words" * (n % 20)) for n in range(100)]
    log.show_lines(lines)
    bar = log.text.verticalScrollBar()
    log.resize(300, 100)  # lines wrap
    height = log.text.fontMetrics().height()
    theme.choose("system", 150)
    QCoreApplication.processEvents()
    assert log.text.fontMetrics().height() == pytest.approx(1.5 * height, abs=2)
    assert bar.value() == bar.maximum()
    if way == "key":
        qtbot.keyClick(log.text, Qt.Key.Key_PageUp)
    else:
        scroll(log.text.viewport(), QPointF(20, 20), 1)
    scrolled = bar.value()
    assert scrolled < bar.maximum()
    newest = find_button(log, "Scroll to the newest line")
    lines += [Line(200.0, "info", "later")]
    log.show_lines(lines)
    assert bar.value() == scrolled
    newest.click()
    assert not newest.isVisible()
    lines += [Line(201.0, "info", "last")]
    log.show_lines(lines)
    assert bar.value() == bar.maximum()


def test_log_shows_newest_of_huge_log_in_batches(styled: QApplication, qtbot: QtBot) -> None:
    log = LogView()
    qtbot.addWidget(log)
    lines = [Line(float(n), "info", f"line {n}") for n in range(30_000)]
    calls = 1
    while log.show_lines(lines):
        calls += 1
    assert calls > 10
    text = log.text.toPlainText()
    assert text.endswith("line 29999")
    assert "line 1\n" not in text


def test_log_drops_its_oldest_lines(styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.run.log_view.MAX_LINES", 3)
    log = LogView()
    qtbot.addWidget(log)
    for count in (2, 4):
        log.show_lines([Line(3725.0 + number, "info", str(number)) for number in range(count)])
    assert log.text.toPlainText().split() == ["1:02:06", "1", "1:02:07", "2", "1:02:08", "3"]


def test_log_shows_all_lines_after_color_change(page: RunPage, qtbot: QtBot) -> None:
    run = write_run(8)
    append_events(run, *(LogLine(time=time.time(), text=f"line {n}") for n in range(1000)))
    page.session.open(run)
    qtbot.waitUntil(lambda: "line 999" in page.log.text.toPlainText())
    theme.notifier.changed.emit()
    qtbot.waitUntil(lambda: "line 999" in page.log.text.toPlainText())


@pytest.mark.parametrize("is_dark", [False, True])
def test_log_follows_color_scheme(show: Open, monkeypatch: pytest.MonkeyPatch, is_dark: bool) -> None:
    page = show(write_run(8))
    monkeypatch.setattr(theme, "is_dark", lambda: is_dark)
    lines = page.session.data.lines
    lines += [Line(9.0, "error", "no memory"), Line(9.0, "debug", "a detail"), Line(9.0, "info", "a fact")]
    theme.notifier.changed.emit()
    scheme = theme.DARK if is_dark else theme.LIGHT
    for text, color in (
        ("Warning", scheme.warning),
        ("Error: no memory", scheme.error),
        ("a detail", scheme.muted),
        ("a fact", scheme.text),
    ):
        found = page.log.text.document().find(text)
        assert found.charFormat().foreground().color().name() == color


def test_page_shows_title_before_first_event(page: RunPage, qtbot: QtBot) -> None:
    page.session.open(create_run(job()))
    qtbot.waitUntil(lambda: page.charts is not None)
    assert "ResNet-18 · flowers · Single device on CPU" in join_visible_texts(page)
    qtbot.waitUntil(lambda: "Starting" in join_visible_texts(page))


def test_page_of_a_run_that_is_being_read_shows_no_result(page: RunPage, qtbot: QtBot) -> None:
    for run in (write_run(8, "failed"), write_run(8)):
        page.session.open(run)
        assert page.session.loading
        assert page.header.hero.state.text().endswith("Reading the run's log…")
        assert page.header.hero.next_steps.isHidden()
        qtbot.waitUntil(lambda: not page.session.loading)


def test_page_continues_curves_of_resumed_run(show: Open, qtbot: QtBot) -> None:
    run = write_run(60, "paused")
    page = show(run)
    page.header.controls.smoothing.setValue(90)
    assert page.next_steps.isVisible()
    qtbot.waitUntil(lambda: "validation 0.5" in page.charts.loss.accessibleDescription())
    on_two = job(strategy="ddp", devices=("cpu", "cpu"))
    # The same number of steps, so that plots must compare more than lengths.
    resumed = list(list_run_events(on_two, 60, None, begun=time.time() - 60, from_step=30, execution=2))
    supervise_here(run, execution=2)
    append_events(run, *(_worse(event) for event in resumed))
    qtbot.waitUntil(lambda: len(page.session.data.steps.loss) == 60 and page.session.data.rollbacks == 1)
    qtbot.waitUntil(lambda: not page.next_steps.isVisible())
    text = join_visible_texts(page)
    assert "DistributedDataParallel on 2 CPU workers" in text
    assert "Resumed at " in text
    assert "⚠ 3 images could not be read and are left out (2 times)" in text
    loss = page.charts.loss
    qtbot.waitUntil(lambda: _training_loss(loss) > 50)  # smoothing has restarted


def test_views_of_the_model_follow_run_and_devices(show: Open, qtbot: QtBot, tmp_path: Path) -> None:
    run, other = write_run(8), write_run(8)
    page = show(run)
    page.set_machine(snapshot(gpu(0)))
    page.next_steps.conversion.click()
    use = page.findChild(UseView)
    assert use.tabs.currentIndex() == CONVERT
    titles = [[box.text() for box in use.predict_form.devices.boxes.values()]]
    page.set_machine(snapshot(gpu(0), gpu(1)))
    titles.append([box.text() for box in use.predict_form.devices.boxes.values()])
    one, two = gpu_title(gpu(0)), gpu_title(gpu(1))
    assert titles == [[one, "CPU"], [one, two, "CPU"]]
    qtbot.waitUntil(lambda: use.predict_form.submit_action.disabled_reason != "")
    page.try_images(["a.PNG", "b.txt", "c.png"])
    assert use.tabs.currentIndex() == PREDICT_USE
    assert use.predict_form.paths() == ["a.PNG", "c.png"]
    page.header.remote.fetched.emit()
    qtbot.waitUntil(lambda: use.predict_form.paths() == [])
    for opened in (other, run):
        show(opened)
        qtbot.waitUntil(lambda opened=opened: use.predict_form.out.line.placeholderText().count(opened.run_id) == 1)


def test_page_keys_continue_at_the_other_end(page: RunPage, qtbot: QtBot) -> None:
    keys = ((Qt.Key.Key_PageUp, PREDICT), (Qt.Key.Key_PageDown, CURVES))
    for key, view in keys:
        qtbot.keyClick(page, key, Qt.KeyboardModifier.ControlModifier)
        assert page.header.tabs.currentIndex() == view
    assert page.header.tabs.tabToolTip(CLASSES) == "Classes (Ctrl+PgUp and Ctrl+PgDown change the view)"
    for action in page.actions():
        action.setShortcut("")
    assert page.header.tabs.tabToolTip(CLASSES) == "Classes"


@pytest.mark.parametrize("view", [CLASSES, PREDICTIONS])
def test_active_run_without_details_of_a_validation_is_explained(show: Open, view: int) -> None:
    texts = []
    for run in (write_run(1), supervise_here(write_run(1, None))):
        page = show(run)
        page.show_view(view)
        texts.append(join_visible_texts(page.classes if view == CLASSES else page.predictions))
    assert texts[0] != texts[1]


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_plots_keep_their_place_when_run_ends(show: Open, qtbot: QtBot, outcome: Outcome) -> None:
    run = supervise_here(write_run(80, None))
    page = show(run)
    assert page.charts is not None
    loss = page.charts.loss
    qtbot.waitUntil(loss.isVisible)
    QApplication.processEvents()
    place = loss.mapTo(page, QPoint()), loss.size()
    if outcome == "completed":
        sentence = "Overfitted since epoch 19: validation loss rose from 0.75 to 0.93. Set augmentation to light."
        append_events(run, Verdict(code="overfitted", sentence=sentence, changes={"augmentation": "light"}))
    append_events(
        run, RunFinished(time=time.time(), outcome=outcome, seconds=8.0, cause="Out of memory on NVIDIA H200")
    )
    finding = page.advice.verdict if outcome == "completed" else page.advice.cause
    qtbot.waitUntil(lambda: finding.isVisible() and page.next_steps.isVisible())
    QApplication.processEvents()
    assert (loss.mapTo(page, QPoint()), loss.size()) == place


def test_step_times_are_folded_below_the_verdict(show: Open, qtbot: QtBot) -> None:
    for _ in range(2):  # another run is shown folded again
        run = write_run(80, None)
        spent = TimeSpent(step=80, step_s=0.01, parts={"forward": 0.01})
        verdict = Verdict(code="overfitted", sentence="Overfitted. Try augmentation light.", changes={})
        append_events(run, spent, verdict, RunFinished(time=time.time(), outcome="completed", seconds=8.0))
        advice = show(run).advice
        qtbot.waitUntil(advice.verdict.isVisible)
        assert not advice.time.isVisible()
        advice.more.click()
        assert advice.time.isVisible()


def _training_loss(plot: LinePlot) -> float:
    text = re.search(r"training ([\d.]+)", plot.describe())
    return float(text[1]) if text else 0.0


def _worse(event: AnyEvent) -> AnyEvent:
    return structs.replace(event, loss=100.0) if isinstance(event, StepMetrics) else event


@pytest.mark.long
def test_page_exports_run_to_chosen_file(show: Open, qtbot: QtBot, tmp_path: Path) -> None:
    page = show(write_run(40, "failed", cause="Out of memory"))
    qtbot.mouseClick(page.next_steps.export, Qt.MouseButton.LeftButton)
    dialog = page.findChild(QFileDialog)
    assert page.session.run is not None
    assert dialog.defaultSuffix() == "zip"
    target = tmp_path / "report.zip"
    target.write_text("previous content")
    with qtbot.waitSignal(page.exporter.done):
        dialog.fileSelected.emit(str(target))
    dialog.close()
    with zipfile.ZipFile(target) as archive:
        names = {Path(name).name for name in archive.namelist()}
    assert names == {"job.toml", "events.jsonl", "doctor.txt"}
    assert [path.name for path in tmp_path.glob("*.zip")] == ["report.zip"]


def test_page_reports_failed_export(show: Open, qtbot: QtBot, tmp_path: Path) -> None:
    page = show(write_run(40, "failed", cause="Out of memory"))
    assert page.session.run is not None
    messages: list[tuple[str, str]] = []
    page.message.connect(lambda text, severity: messages.append((text, severity)))
    with qtbot.waitSignal(page.exporter.failed):
        page.export(page.session.run, tmp_path / "missing" / "report.zip")
    assert messages[0][0].startswith(f"Exporting {page.session.run.run_id};")
    assert messages[-1][1] == "warning"
    page.exporter.done.emit("/tmp/report.zip")
    assert messages[-1] == ("The run was exported to /tmp/report.zip.", "info")
