"""Xid errors from NVML's events."""

from __future__ import annotations

import time
from pathlib import Path

from tests.engine.gpus.conftest import Start, has_gpus, readers_of
from tests.support import nvml_stub as stubs
from tests.support.nvml_stub import NvmlStub, make_gpu_profile

QUICK = ("--interval", "0.1")


def add(file: Path, *numbers: int) -> None:
    with file.open("a") as lines:
        lines.writelines(f"{number}\n" for number in numbers)


def test_xid_has_time_and_gpu(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    events = tmp_path / "xids"
    add(events, 13)  # before the sampler starts
    nvml_stub.write([make_gpu_profile(0), make_gpu_profile(1, mig=None, xid_file=events)])
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    assert sampler.wait_for(has_gpus).gpus[1].xids == ()
    before = time.time()
    add(events, 79)
    add(events, 31)
    gpus = sampler.wait_for(lambda s: len(s.gpus[1].xids) == 2).gpus
    assert [xid.number for xid in gpus[1].xids] == [79, 31]
    assert all(before <= xid.time <= time.time() for xid in gpus[1].xids)
    assert gpus[0].xids == ()


def test_latest_xids_survive_a_new_reader(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    events = tmp_path / "xids"
    nvml_stub.write([make_gpu_profile(0, xid_file=events)])
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    sampler.wait_for(has_gpus)
    add(events, *range(1, 21))
    xids = sampler.wait_for(lambda s: bool(s.gpus[0].xids) and s.gpus[0].xids[-1].number == 20).gpus[0].xids
    assert [xid.number for xid in xids] == list(range(5, 21))
    readers_of(sampler)[0].kill()
    sampler.wait_for(lambda s: s.nvml.status == "error")
    sampler.wait_for(lambda s: s.nvml.status == "ok")
    add(events, 94)
    xids = sampler.wait_for(lambda s: s.gpus[0].xids[-1].number == 94).gpus[0].xids
    assert [xid.number for xid in xids] == [*range(6, 21), 94]


def test_gpu_without_events_has_no_xids(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, events_error=stubs.NOT_SUPPORTED)])
    snapshot = start_sampler("--once", stub=nvml_stub).next()
    assert (snapshot.gpus[0].xids, snapshot.gpus[0].utilization_percent) == ((), 5)
