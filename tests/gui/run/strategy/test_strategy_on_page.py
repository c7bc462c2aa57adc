"""Strategy view on the page of a run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from engine.contract.events import AnyEvent, Planned, StepMetrics
from engine.runs.folder import RunFolder, create_run
from gui.run.page import RunPage
from tests.gui.cut.example import a_cut
from tests.gui.run.strategy.steps import trace
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.gui.sources.written_runs import job, story, write


def run_with(extra: AnyEvent, **plan: object) -> RunFolder:
    """Return a run on two GPUs that logs `extra` at its tenth step."""
    chosen = job(strategy="pipeline", devices=UUIDS[:2])
    run = create_run(chosen)
    events: list[AnyEvent] = []
    for event in story(chosen, 40, "completed"):
        events.append(msgspec.structs.replace(event, **plan) if isinstance(event, Planned) else event)
        if isinstance(event, StepMetrics) and event.step == 10:
            events.append(msgspec.structs.replace(extra, time=event.time))
    write(run.events_file, events)
    return run


def test_page_shows_strategy_between_curves_and_log(page: RunPage, show: Callable[[RunFolder], RunPage]) -> None:
    page.set_machine(snapshot(gpu(0), gpu(1)))
    show(run_with(trace(), cut=a_cut(devices=UUIDS[:2])))
    assert page.strategy.isVisible()
    assert page.charts is not None
    heights = [widget.mapTo(page, widget.rect().topLeft()).y() for widget in (page.charts, page.strategy, page.log)]
    assert heights == sorted(heights)
    assert "Rank 1 · GPU 0" in page.strategy.schedule.accessibleDescription()


def test_page_hides_strategy_of_other_run(page: RunPage, show: Callable[[RunFolder], RunPage]) -> None:
    show(run_with(trace(), cut=a_cut(devices=UUIDS[:2])))
    chosen = job()
    plain = create_run(chosen)
    write(plain.events_file, story(chosen, 40, "completed"))
    show(plain)
    assert not page.strategy.isVisible()
