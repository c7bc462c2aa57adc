"""The parts on a run's strategy, on the page of the run."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent, Planned, StepMetrics
from engine.runs.folder import RunFolder, create_run
from gui.run.page import RunPage
from gui.sources.run_session import RunSession
from tests.gui.cut.example import a_cut
from tests.gui.run.strategy.steps import timed, trace
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.gui.sources.written_runs import job, story, write


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> RunPage:
    store = RunSession()
    made = RunPage(store)
    store.setParent(made)
    qtbot.addWidget(made, before_close_func=lambda _page: store.close())
    made.resize(900, 1400)
    made.show()
    return made


def run_with(said: AnyEvent, **plan: object) -> RunFolder:
    """A run on two GPUs that says `said` at its tenth step."""
    chosen = job(strategy="pipeline", devices=UUIDS[:2])
    run = create_run(chosen)
    events: list[AnyEvent] = []
    for event in story(chosen, 40, "completed"):
        events.append(msgspec.structs.replace(event, **plan) if isinstance(event, Planned) else event)
        if isinstance(event, StepMetrics) and event.step == 10:
            events.append(msgspec.structs.replace(said, time=event.time))
    write(run.events_file, events)
    return run


def show(page: RunPage, run: RunFolder, qtbot: QtBot) -> None:
    page.store.open(run)
    qtbot.waitUntil(lambda: page.store.data.finished is not None)
    qtbot.waitUntil(lambda: page.store.up_to_date)


def test_that_cut_and_schedule_stand_between_the_curves_and_the_log(page: RunPage, qtbot: QtBot) -> None:
    page.set_machine(snapshot(gpu(0), gpu(1)))
    show(page, run_with(trace(), cut=a_cut(devices=UUIDS[:2])), qtbot)
    assert page.strategy.isVisible()
    assert page.charts is not None
    heights = [widget.mapTo(page, widget.rect().topLeft()).y() for widget in (page.charts, page.strategy, page.log)]
    assert heights == sorted(heights)
    assert "Rank 1 · GPU 0" in page.strategy.schedule.accessibleDescription()


def test_that_what_a_lower_part_leaves_free_goes_to_the_curves(page: RunPage, qtbot: QtBot) -> None:
    page.resize(1000, 2600)
    show(page, run_with(trace(), cut=a_cut(devices=UUIDS[:2])), qtbot)
    before = page._splitter.sizes()
    show(page, run_with(timed()), qtbot)
    assert not page.strategy.cut.isVisible()
    qtbot.waitUntil(lambda: page._splitter.sizes()[1] == page.strategy.maximumHeight())
    assert page._splitter.sizes()[0] > before[0]


def test_that_a_run_without_a_strategy_to_tell_of_folds_it_away(page: RunPage, qtbot: QtBot) -> None:
    show(page, run_with(trace(), cut=a_cut(devices=UUIDS[:2])), qtbot)
    chosen = job()
    plain = create_run(chosen)
    write(plain.events_file, story(chosen, 40, "completed"))
    show(page, plain, qtbot)
    assert not page.strategy.isVisible()
