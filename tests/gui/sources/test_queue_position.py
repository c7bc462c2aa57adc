"""Messages about a run's position in the queue."""

from __future__ import annotations

import pytest

from engine.contract.events import Waiting
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes
from engine.runs.queue import Ticket
from gui.sources.run_queue import (
    CannotReturn,
    describe_device_user,
    describe_queue_position,
    put_back,
    read_queue_positions,
    start_now,
    take_out,
)
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import job, supervise_here, write_run

TITLES = {UUIDS[0]: "GPU 0", UUIDS[1]: "GPU 1"}
USERS = {"a": "“flowers · 6e2a”", "b": "“birds”", "c": "the use of “cars”’s model"}


@pytest.mark.parametrize(
    ("position", "ordinal"),
    [(1, "next"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_queue_message_has_ordinal(position: int, ordinal: str) -> None:
    message = describe_queue_position(Waiting(position=position), ["cpu"], {}, USERS)
    assert message == f"{ordinal} in the queue for the CPU"


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ((UUIDS[0],), "GPU 0"),
        ((UUIDS[0], UUIDS[0], UUIDS[1]), "GPU 0, 1"),
        (("cpu", "cpu"), "the CPU"),
        (("GPU-unknown",), "its GPU"),
        ((UUIDS[0], "GPU-unknown"), "its 2 GPUs"),
    ],
)
def test_queue_message_names_devices(devices: tuple[str, ...], text: str) -> None:
    assert describe_queue_position(Waiting(position=1), devices, TITLES, USERS) == f"next in the queue for {text}"


@pytest.mark.parametrize(
    ("waiting", "message"),
    [
        (Waiting(position=2, behind=("a",)), "2nd in the queue for GPU 0, behind “flowers · 6e2a”"),
        (
            Waiting(position=3, behind=("b", "c")),
            "3rd in the queue for GPU 0, behind “birds” and the use of “cars”’s model",
        ),
        (Waiting(position=4, behind=("b", "c", "a")), "4th in the queue for GPU 0, behind “birds” and 2 more runs"),
        (
            Waiting(position=1, others=("python of anna is on GPU 0",)),
            "next in the queue for GPU 0, python of anna is on GPU 0",
        ),
        (Waiting(position=2, behind=("a",), held=True), "2nd in the queue for GPU 0, on hold until released"),
    ],
)
def test_queue_message_names_other_runs(waiting: Waiting, message: str) -> None:
    assert describe_queue_position(waiting, UUIDS[:1], TITLES, USERS) == message


def test_queue_positions_name_runs_in_and_outside_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    active, first, second = (write_run(8, None, name=name) for name in ("active", "first", "second"))
    tickets = [
        Ticket(
            run_id=run.run_id, folder=str(run.path), pid=1, start_time=1.0, devices=("cpu",), since=1.0,
            behind=behind, held=run is second,
        )
        for run, behind in ((first, ()), (second, (active.run_id, first.run_id)))
    ]  # fmt: skip
    monkeypatch.setattr("engine.runs.queue.list_waiting", lambda: tickets)
    assert [(each.number, each.name, each.held, each.waits_for) for each in read_queue_positions()] == [
        (1, "first", False, "its turn"),
        (2, "second", True, "your release, “active”, “first”"),
    ]


def test_queue_reports_runs_that_it_cannot_change(monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(8)
    with pytest.raises(CannotReturn, match="is completed: it has trained all of its 4 epochs"):
        put_back(str(run.path))
    take_out(str(run.path))  # its supervisor has exited
    monkeypatch.setattr("gui.sources.run_queue.PATIENCE_S", 0.0)
    with pytest.raises(TimeoutError, match=f"{run.run_id} has not ended 0 s after the request"):
        take_out(str(supervise_here(run).path))


def test_run_starts_with_its_changed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr("gui.sources.run_queue.start_supervisor", lambda run: started.append(run.job().value("start")))
    start_now(str(write_run(8, "paused").path))
    assert started == ["at_once"]


def test_user_of_devices_is_run_or_use_of_its_model() -> None:
    unnamed, renamed = create_run(job()), write_run(8, name="first try")
    change_notes(renamed.path, name="second try")
    deleted = RunFolder(unnamed.path.with_name("20990101-000000-gone-abcd"))
    assert [describe_device_user(run) for run in (unnamed, renamed, deleted)] == [
        f"“flowers · {unnamed.run_id[-4:]}”",
        "the use of “second try”’s model",
        "“20990101-000000-gone-abcd”",
    ]
