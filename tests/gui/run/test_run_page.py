"""The page of a run: past runs, live ones, and how it is used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import pytest
from msgspec import structs
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent, LogLine, Planned, StepMetrics
from engine.runs.folder import RunFolder, SupervisorFile, create_run, process_start
from gui.plots.plot import LinePlot
from gui.plots.smoothing import Smoother
from gui.run.loading_code import loading_code
from gui.run.log_view import LogView
from gui.run.page import RunPage
from gui.sources.run_data import Line
from gui.sources.run_session import RunSession
from gui.style import theme
from tests.gui.sources.written_runs import a_run, job, story, write

Open = Callable[[RunFolder], RunPage]


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> RunPage:
    store = RunSession()
    made = RunPage(store)
    store.setParent(made)
    qtbot.addWidget(made, before_close_func=lambda _page: store.close())
    made.resize(1000, 1000)
    made.show()
    return made


@pytest.fixture
def show(page: RunPage, qtbot: QtBot) -> Open:
    """Opens a run and waits until all of it is on screen."""

    def opened(run: RunFolder) -> RunPage:
        page.store.open(run)
        qtbot.waitUntil(lambda: not page.store.loading and page.charts is not None)
        qtbot.waitUntil(lambda: page.store.up_to_date)
        return page

    return opened


def texts(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())


def button(widget: QWidget, name: str) -> QAbstractButton:
    return next(found for found in widget.findChildren(QAbstractButton) if found.accessibleName() == name)


def test_that_without_a_run_the_page_greets(page: RunPage) -> None:
    assert "Welcome to Footplate" in texts(page)
    assert page.welcome.sample.isVisible()


def test_that_a_completed_run_shows_what_it_was_and_what_came_of_it(show: Open) -> None:
    run = a_run(80, strategy="ddp", devices=("cpu", "cpu"), name="first try")
    page = show(run)
    shown = texts(page)
    assert "first try · ResNet-18 · flowers · DistributedDataParallel on 2 CPU workers" in shown
    assert "Completed · 4 epochs · best top-1 80.0 %" in shown
    assert "Top-1 accuracy 80.0 %" in shown
    assert "(epoch 3)" in shown
    assert "best.pt (42.9 MiB)" in shown
    assert f"in {run.path / 'checkpoints'}" in shown


def test_that_two_lines_of_pytorch_load_the_best_checkpoint_and_can_be_copied(show: Open) -> None:
    run = a_run(80)
    page = show(run)
    code = page.result.code
    assert len(code.splitlines()) == 2
    assert "get_model('resnet18', num_classes=2)" in code
    assert f"torch.load({str(run.path / 'checkpoints/best.pt')!r}, weights_only=True)" in code
    compile(code, "shown", "exec")
    button(page, "Copy loading code").click()
    assert QGuiApplication.clipboard().text() == code


@pytest.mark.parametrize(
    "model",
    [
        "resnet18",
        "vit_b_16",
        "googlenet",
        "mnist_cnn",
        "/home/anna/it's mine.py",
        "unet",
        "fcn_resnet50",
        "linknet_mtl",
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["best", "last"])
def test_that_the_lines_that_load_a_checkpoint_are_python_for_every_kind_of_model(
    model: str, channels: int, kind: str
) -> None:
    plan = Planned(
        epochs=1, steps_per_epoch=1, train_images=1, val_images=1, classes=("a", "b"), image_size=64,
        channels=channels, parameters=1, trainable_parameters=1,
    )  # fmt: skip
    code = loading_code(job(model=model), plan, f"/runs/it's/{kind}.pt", kind)
    compile(code, "shown", "exec")
    assert code.startswith("import torch")
    assert ('["model"])' in code) == (kind == "last")


def test_that_a_failed_run_says_why_in_plain_words(show: Open) -> None:
    page = show(a_run(12, "failed", cause="Out of memory on NVIDIA H200 at step 12"))
    assert texts(page).count("Failed: Out of memory on NVIDIA H200 at step 12") == 1
    assert "Error: Out of memory on NVIDIA H200 at step 12" in page.log.text.toPlainText()


def test_that_an_interrupted_run_without_checkpoints_offers_no_code(show: Open) -> None:
    run = a_run(1, None, strategy="single")
    os.utime(run.job_file, (0, 0))
    run.events_file.write_bytes(b"\n".join(run.events_file.read_bytes().split(b"\n")[:6]) + b"\n")
    page = show(run)
    assert "Interrupted" in texts(page)
    assert "No checkpoint was saved." in texts(page)
    assert page.result.code == ""
    assert not button(page, "Copy loading code").isVisible()


def test_that_every_plot_has_a_name_and_tells_its_latest_values(show: Open, qtbot: QtBot) -> None:
    page = show(a_run(80))
    plots = {plot.accessibleName(): plot for plot in page.findChildren(LinePlot)}
    assert len(plots) == len(page.findChildren(LinePlot))

    def told(name: str) -> str:
        return plots[name].accessibleDescription()

    qtbot.waitUntil(lambda: "validation 0.5" in told("Loss"))
    assert told("Accuracy") == "Latest: training 100.0 %, validation top-1 80.0 %, validation top-5 99.0 %"
    assert told("Speed") == "Latest: all devices 880 images/s"
    assert told("Time per step") == "Latest: data wait 2.0 ms, compute 40.0 ms"
    assert told("Utilization of the run's devices") == "Latest: CPU 90 %"
    assert told("Memory of the run's devices") == "Latest: CPU 3.0 GiB"


def test_that_loss_and_devices_share_one_time_axis_which_can_count_steps(show: Open, qtbot: QtBot) -> None:
    page = show(a_run(80))
    assert page.charts is not None
    loss, devices = page.charts.loss, page.charts.devices["utilization_percent"]
    assert loss.horizontal_range == devices.horizontal_range
    assert loss.horizontal_range[1] == pytest.approx(8.0, rel=0.1)
    page.header.controls.axis.setCurrentIndex(1)
    assert loss.horizontal_range == devices.horizontal_range
    assert loss.horizontal_range[1] == pytest.approx(80, rel=0.1)


def test_that_smoothing_and_the_logarithmic_axis_act_on_the_loss(show: Open, qtbot: QtBot) -> None:
    page = show(a_run(80))
    assert page.charts is not None
    unsmoothed = page.charts.loss.describe()
    page.header.controls.smoothing.setValue(90)
    assert page.charts.loss.describe() != unsmoothed
    page.header.controls.smoothing.setValue(0)
    assert page.charts.loss.describe() == unsmoothed
    page.header.controls.log_scale.setChecked(True)
    qtbot.waitUntil(lambda: page.charts is not None and page.charts.loss.vertical_range[1] < 1)


def test_that_a_zoomed_run_keeps_its_place_while_more_comes_and_a_button_leads_back(
    page: RunPage, qtbot: QtBot
) -> None:
    run = a_run(80, None)
    page.store.open(run)  # made just now, so that it counts as starting and is read on
    qtbot.waitUntil(lambda: page.charts is not None)
    assert page.charts is not None
    group = page.charts.group
    qtbot.waitUntil(lambda: group.extent[1] == pytest.approx(8.0, abs=0.1))
    qtbot.keyClick(page.charts.loss, Qt.Key.Key_Plus)
    seen = group.range
    assert page.header.newest.isVisible()
    last = page.store.data.last_n
    write(run.events_file, [LogLine(time=page.store.data.last_time + 60, text="later")], first_n=last + 1)
    more = [event for event in a_run(200, None).events() if event.n > last]
    write(run.events_file, more, first_n=last + 2)
    qtbot.waitUntil(lambda: group.extent[1] > 15)
    assert group.range == seen
    page.header.newest.click()
    assert page.charts.loss.horizontal_range[1] >= page.store.data.steps.seconds.last
    assert not page.header.newest.isVisible()


def test_that_opening_another_run_leaves_nothing_of_the_one_before(show: Open) -> None:
    show(a_run(80, "failed", cause="a fault"))
    page = show(a_run(8))
    assert "a fault" not in texts(page)
    assert "a fault" not in page.log.text.toPlainText()
    assert page.charts is not None
    assert page.charts.loss.horizontal_range[1] < 2


def test_that_the_log_marks_warnings_by_word(show: Open, qtbot: QtBot) -> None:
    page = show(a_run(8))
    qtbot.waitUntil(lambda: "That was all" in page.log.text.toPlainText())
    assert "0:00:00  Warning: 3 images could not be read and are left out" in page.log.text.toPlainText()


def test_that_the_log_follows_its_end_unless_it_has_been_scrolled_up(styled: QApplication, qtbot: QtBot) -> None:
    log = LogView()
    qtbot.addWidget(log)
    log.resize(500, 200)
    log.show()
    lines = [Line(float(n), "info", f"line {n}") for n in range(100)]
    log.show_lines(lines)
    bar = log.text.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 0 and bar.value() == bar.maximum())
    bar.setValue(10)
    lines += [Line(200.0, "info", "later")]
    log.show_lines(lines)
    assert bar.value() == 10
    log.scroll_to_newest()
    lines += [Line(201.0, "info", "last")]
    log.show_lines(lines)
    assert bar.value() == bar.maximum()


def test_that_a_huge_log_is_taken_in_piece_by_piece_and_ends_with_its_newest(
    styled: QApplication, qtbot: QtBot
) -> None:
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


@pytest.mark.parametrize("dark", [False, True])
def test_that_the_log_and_the_plots_follow_the_scheme(
    show: Open, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, dark: bool
) -> None:
    page = show(a_run(8))
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    theme.notifier.changed.emit()
    assert page.charts is not None
    wanted = theme.DARK if dark else theme.LIGHT
    assert page.charts.loss._view.backgroundBrush().color().name() == wanted.panel
    warning = page.log.text.document().find("Warning")
    assert warning.charFormat().foreground().color().name() == wanted.warning
    readout = page.charts.loss._readout
    qtbot.waitUntil(lambda: wanted.accent in readout.text)


def test_that_a_job_without_a_first_event_still_has_a_title(page: RunPage, qtbot: QtBot) -> None:
    page.store.open(create_run(job()))
    qtbot.waitUntil(lambda: page.charts is not None)
    assert "ResNet-18 · flowers · Single device on CPU" in texts(page)
    qtbot.waitUntil(lambda: "Starting" in texts(page))


def test_that_a_run_that_goes_on_keeps_its_curves_and_says_so(show: Open, qtbot: QtBot) -> None:
    run = a_run(60, "paused")
    page = show(run)
    assert page.charts is not None
    page.header.controls.smoothing.setValue(90)
    assert page.result.isVisible()
    qtbot.waitUntil(lambda: "validation 0.5" in page.charts.loss.accessibleDescription())  # type: ignore[union-attr]
    last = page.store.data.last_n
    on_two = job(strategy="ddp", devices=("cpu", "cpu"))
    # As many steps as before, of which a plot could think that nothing has changed.
    again = list(story(on_two, 60, None, begun=time.time() - 60, from_step=30, execution=2))
    own = os.getpid()
    supervisor = SupervisorFile(pid=own, start_time=process_start(own), endpoint="unix:/nowhere", execution=2)
    run.write_supervisor(supervisor)
    write(run.events_file, [_worse(event) for event in again], first_n=last + 1)
    qtbot.waitUntil(lambda: len(page.store.data.steps.loss) == 60 and page.store.data.cuts == 1)
    qtbot.waitUntil(lambda: not page.result.isVisible())
    shown = texts(page)
    assert "DistributedDataParallel on 2 CPU workers" in shown
    assert "Resumed at " in shown
    assert "⚠ 3 images could not be read and are left out (2 times)" in shown
    line = page.charts.loss._lines["train"]
    fresh = Smoother(0.9)
    qtbot.waitUntil(lambda: len(line.y) == 60)
    np.testing.assert_allclose(line.smoothed, fresh.update(page.store.data.steps.loss.values))
    assert line.smoothed[-1] > 50


def _worse(event: AnyEvent) -> AnyEvent:
    return structs.replace(event, loss=100.0) if isinstance(event, StepMetrics) else event


def test_that_the_axis_says_what_its_time_leaves_out(page: RunPage) -> None:
    assert "time in the queue are left out" in page.header.controls.axis.toolTip()
