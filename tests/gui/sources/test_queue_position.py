"""Messages about a run's position in the queue."""

from __future__ import annotations

import pytest

from engine.contract.events import Waiting
from engine.runs.folder import create_run
from engine.runs.notes import change_notes
from gui.sources.run_queue import queue_message, run_name
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import job

TITLES = {UUIDS[0]: "GPU 0", UUIDS[1]: "GPU 1"}
NAMES = {"a": "ResNet-50 on flowers", "b": "birds", "c": "cars"}


@pytest.mark.parametrize(
    ("position", "ordinal"),
    [(1, "next"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_queue_message_has_ordinal(position: int, ordinal: str) -> None:
    message = queue_message(Waiting(position=position), ["cpu"], {}, NAMES.__getitem__)
    assert message == f"{ordinal} in the queue for the CPU"


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ((UUIDS[0],), "GPU 0"),
        ((UUIDS[0], UUIDS[1]), "GPU 0, 1"),
        (("cpu", "cpu"), "the CPU"),
        (("GPU-unknown",), "its GPU"),
        ((UUIDS[0], "GPU-unknown"), "its 2 GPUs"),
    ],
)
def test_queue_message_names_devices(devices: tuple[str, ...], text: str) -> None:
    assert queue_message(Waiting(position=1), devices, TITLES, NAMES.__getitem__) == f"next in the queue for {text}"


@pytest.mark.parametrize(
    ("waiting", "message"),
    [
        (Waiting(position=2, behind=("a",)), "2nd in the queue for GPU 0, behind ResNet-50 on flowers"),
        (Waiting(position=3, behind=("b", "c")), "3rd in the queue for GPU 0, behind birds and cars"),
        (Waiting(position=4, behind=("b", "c", "a")), "4th in the queue for GPU 0, behind birds and 2 more runs"),
        (
            Waiting(position=1, others=("python of anna is on GPU 0",)),
            "next in the queue for GPU 0, python of anna is on GPU 0",
        ),
        (Waiting(position=2, behind=("a",), held=True), "2nd in the queue for GPU 0, on hold until released"),
    ],
)
def test_queue_message_names_other_runs(waiting: Waiting, message: str) -> None:
    assert queue_message(waiting, UUIDS[:1], TITLES, NAMES.__getitem__) == message


def test_run_name_falls_back_to_model_and_dataset() -> None:
    unnamed, *named = create_run(job()), *(create_run(job(name="first try")) for _ in range(3))
    change_notes(named[1].path, name="second try")
    change_notes(named[2].path, name="")
    assert [run_name(run.run_id) for run in (unnamed, *named)] == [
        "ResNet-18 on flowers",
        "first try",
        "second try",
        "ResNet-18 on flowers",
    ]
    assert run_name("20990101-000000-gone-abcd") == "20990101-000000-gone-abcd"
