"""Status of a run that downloads pretrained weights."""

from __future__ import annotations

from engine.contract.events import Fetching, PhaseChanged, RunStarted
from gui.sources.run_data import RunData
from gui.sources.run_status import status_of
from tests.gui.sources.written_runs import job

DETAIL = "the pretrained weights timm/resnet50.a1_in1k from huggingface.co"
MIB = 1 << 20


def started_data() -> RunData:
    data = RunData()
    started = RunStarted(
        n=1, time=100.0, run_id="a", job=job(), devices=(), world_size=1, environment={}, supervisor_pid=1
    )
    data.apply(started)
    data.apply(PhaseChanged(n=2, time=100.0, phase="fetching", detail=DETAIL))
    return data


def fetching(n: int, seconds: float, done: int, total: int | None = 100 * MIB) -> Fetching:
    return Fetching(n=n, time=100.0 + seconds, source="timm/resnet50.a1_in1k", done_bytes=done, total_bytes=total)


def test_status_reports_download_progress() -> None:
    data = started_data()
    assert status_of(data, "running").text == f"Fetching · {DETAIL}"
    data.apply_all((fetching(3, 1, 10 * MIB), fetching(4, 2, 20 * MIB), fetching(5, 3, 30 * MIB)))
    status = status_of(data, "running")
    assert (status.label, status.text) == ("Fetching", f"Fetching · {DETAIL}, 30.0 MiB of 100.0 MiB")
    assert (status.fraction, status.seconds_left) == (0.3, 7.0)
    assert status.active
    assert status.why_no_stop == ""
    assert [line.text for line in data.lines][1:] == [f"Fetching: {DETAIL}"]


def test_status_without_download_size() -> None:
    data = started_data()
    data.apply_all((fetching(3, 1, 10 * MIB, None), fetching(4, 2, 20 * MIB, None)))
    status = status_of(data, "running")
    assert status.text == f"Fetching · {DETAIL}, 20.0 MiB"
    assert (status.fraction, status.seconds_left) == (None, None)


def test_status_drops_finished_download() -> None:
    data = started_data()
    data.apply_all((fetching(3, 1, 10 * MIB), PhaseChanged(n=4, time=104.0, phase="starting")))
    status = status_of(data, "running")
    assert (status.label, status.fraction, status.seconds_left) == ("Starting", None, None)
