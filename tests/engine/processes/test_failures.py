"""Causes of worker failures, and the environment of workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from engine.contract.events import Failed
from engine.contract.job import Job
from engine.processes import failures, imports
from engine.processes.worker_process import worker_environment
from tests.support.specs import make_worker_spec

LOST_PEER = Failed(cause="Rank 0: Connection closed by peer [127.0.0.1]", rank=0, kind="fault")
OUT_OF_MEMORY = Failed(cause="Rank 1: out of memory", rank=1)


def test_root_cause_is_not_a_lost_peer() -> None:
    killed = failures.Failure(Failed(cause="Rank 2 was killed by SIGKILL", rank=2), failures.CERTAIN)
    reported = [failures.Failure(event, failures.certainty_of_report(event)) for event in (LOST_PEER, OUT_OF_MEMORY)]
    assert failures.find_root_cause(reported).event is OUT_OF_MEMORY
    assert failures.find_root_cause([*reported, killed]) is killed
    assert failures.find_root_cause(reported[:1]).event is LOST_PEER


@pytest.mark.parametrize(("devices", "blames_gpu"), [(("cpu", "node1:cpu"), False), (("cpu", "node1:GPU-1"), True)])
def test_stuck_worker_blames_gpu_only_on_gpus(devices: tuple[str, ...], *, blames_gpu: bool) -> None:
    failed = failures.describe_stuck({2, 1}, devices)
    assert (failed.rank, failed.cause[:10]) == (1, "Rank 1, 2 ")
    assert ("GPU" in failed.cause) == blames_gpu


def test_certainty_of_death_distinguishes_abort_from_other_signals(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("NCCL watchdog: another rank is gone\n")
    certainties = {
        code: failures.certainty_of_death(failures.describe_death(0, code, log), code)
        for code in (-signal.SIGABRT, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGTERM)
    }
    assert certainties.pop(-signal.SIGABRT) == failures.FOLLOWING
    assert set(certainties.values()) == {failures.CERTAIN}
    assert failures.certainty_of_death(failures.describe_death(1, 3, tmp_path / "none.log"), 3) == failures.LIKELY


def test_death_shows_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "worker-3.log"
    assert (
        failures.describe_death(3, -11, log).cause == "Rank 3 was killed by SIGSEGV (signal 11). worker-3.log is empty."
    )
    bus_error = failures.describe_death(3, -signal.SIGBUS, log)
    assert "a memory-mapped file" in bus_error.cause
    assert bus_error.kind == "fault"
    log.write_bytes(b"\xff\xfe\n\n" + b"line\n" * 10_000)
    tail = "line\nline\nline\nline\nline"
    assert failures.describe_death(3, 0, log).cause.endswith(f"error. Last lines of worker-3.log: {tail}")


@pytest.mark.parametrize(
    ("devices", "visible"), [(("GPU-b", "GPU-a"), "GPU-b,GPU-a"), (("cpu", "cpu"), ""), (("cpu",), "")]
)
def test_worker_environment_limits_gpus_and_threads(devices: tuple[str, ...], visible: str) -> None:
    spec = make_worker_spec(Job.from_fields(devices=devices), run_folder="r", world_size=2, devices=devices, threads=3)
    threads = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    assert worker_environment(spec) == threads | {"CUDA_VISIBLE_DEVICES": visible}


@pytest.mark.parametrize("before", [None, "4"])
def test_imports_keep_the_environment(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", before or "")
    if before is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    imports.import_all(("json",))
    assert os.environ.get("OPENBLAS_NUM_THREADS") == before
