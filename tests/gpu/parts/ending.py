"""Runs that are stopped or fail. The GPU must be free immediately, and restarted workers must continue training."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import psutil

from engine.contract.events import DevicesFree, Failed, Restarting, RunFinished, StepMetrics
from engine.contract.job import Job
from engine.contract.protocol import Pause, Stop
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader
from engine.system import paths
from tests.benchmarks.recovery import AIMS_S, Follower
from tests.gpu.checks import CheckContext, run_checks

FREE_S = AIMS_S["stop -> devices free"]
AGAIN_S = 2.0 + 3.0
"""Maximum seconds until a restarted worker trains again. It creates a CUDA context and loads cuDNN."""
SLACK = 64 << 20
PERIOD_S = 0.02


class MemoryWatch:
    """Context manager that samples the GPU's used memory in a thread. It does nothing in a rehearsal on the CPU."""

    def __init__(self, context: CheckContext) -> None:
        self._uuid = "" if context.rehearsing else context.gpu
        self._samples: list[tuple[float, int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> Self:
        if self._uuid:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._uuid:
            self._thread.join()

    def seconds_until_free(self, since: float) -> float | None:
        """Return the seconds from `since` until the used memory fell to its initial value, or None if it never did."""
        if not self._samples:
            return None
        limit = self._samples[0][1] + SLACK
        return next((at - since for at, used in self._samples if at >= since and used <= limit), None)

    def peak_mib(self) -> float:
        """Return the peak of used memory in MiB, minus its initial value."""
        return (max(used for _, used in self._samples) - self._samples[0][1]) / 2**20 if self._samples else 0.0

    def _watch(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        (handle,) = (each for each in handles if pynvml.nvmlDeviceGetUUID(each) == self._uuid)
        while not self._ending.wait(PERIOD_S):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            self._samples.append((time.monotonic(), memory.used))
        pynvml.nvmlShutdown()


class SharedGpuStarter:
    """Starter of supervisors whose workers all run on one GPU."""

    def start_run(self, run: RunFolder) -> None:
        with open(run.path / "supervisor.log", "ab") as log:
            command = [sys.executable, "-m", "tests.gpu.supervise", str(run.path)]
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        threading.Thread(target=process.wait, daemon=True).start()


@contextlib.contextmanager
def start_preloader() -> Iterator[Preloader]:
    preloader = Preloader()
    preloader.start()
    try:
        while not preloader.ready:
            select.select([preloader], [], [], 60.0)
            preloader.poll()
            if preloader.fileno() < 0:
                raise RuntimeError("the preloader exited before it was ready")
        yield preloader
    finally:
        preloader.close()


def _job(context: CheckContext, **fields: Any) -> Job:
    given: dict[str, Any] = {
        "dataset": str(paths.sample_dataset()), "model": "mnist_cnn" if context.rehearsing else "resnet50", "epochs": 10_000,
        "image_size": 28 if context.rehearsing else 64, "checkpoint_steps": 5, "compile": "off", "devices": (context.gpu,),
    }  # fmt: skip
    return Job.from_fields(**(given | fields))


def _worker(run: RunFolder, rank: int) -> psutil.Process:
    supervisor = run.supervisor()
    assert supervisor is not None
    (worker,) = [one for one in psutil.Process(supervisor.pid).children() if one.name() == f"footplate-w{rank}"]
    return worker


def _follow_to_end(context: CheckContext, what: str, follower: Follower, watch: MemoryWatch, since: float) -> None:
    """Follow a run to its end, and report how many seconds after the time `since` its GPU became free.

    This is measured twice: by the run's event `DevicesFree`, and by the used memory that `watch` reads from NVML.
    `what` begins the names of the results in the report.
    """
    free: list[DevicesFree] = []
    at = follower.wait_until(lambda event: isinstance(event, DevicesFree) and (free.append(event) or True))
    follower.wait_until(lambda event: isinstance(event, RunFinished))
    follower.connection.close()
    context.claim(f"{what}: the run verifies that the GPU is free", free[0].verified, f"after {free[0].seconds:.2f} s")
    context.measure(f"{what}: the run reports a free GPU after", at - since, "s", at_most=FREE_S)
    seconds = watch.seconds_until_free(since)
    if seconds is not None:
        context.measure(f"{what}: NVML reports free memory after", seconds, "s", at_most=FREE_S,
                      text=f"{watch.peak_mib():.0f} MiB were in use")  # fmt: skip
    elif not context.rehearsing:
        context.claim(f"{what}: NVML reports free memory", False, f"{watch.peak_mib():.0f} MiB were in use")


def check_pause_and_stop(context: CheckContext) -> None:
    """Pause a run, resume it and stop it. Measure how long the GPU stays occupied after the pause and after the stop."""
    with start_preloader() as preloader:
        run = create_run(_job(context))
        for what, command in (("pause", Pause()), ("stop", Stop())):
            with MemoryWatch(context) as watch:
                time.sleep(0.2)  # get an initial value for comparison
                follower = Follower(preloader, run)
                follower.wait_for_training()
                asked = time.monotonic()
                follower.connection.send(command)
                _follow_to_end(context, what, follower, watch, asked)


def check_killed_worker(context: CheckContext) -> None:
    """Kill a worker of a run without restarts, and measure when the failure is reported and the GPU is free."""
    with start_preloader() as preloader, MemoryWatch(context) as watch:
        time.sleep(0.2)
        follower = Follower(preloader, create_run(_job(context, restarts=0)))
        follower.wait_for_training()
        killed = time.monotonic()
        _worker(follower.run, 0).send_signal(signal.SIGKILL)
        named = follower.wait_until(lambda event: isinstance(event, Failed))
        context.measure("killed worker: reported after", named - killed, "s", at_most=AIMS_S["killed -> named"])
        _follow_to_end(context, "killed worker", follower, watch, killed)


def check_restart(context: CheckContext) -> None:
    """Kill the worker of a run with restarts, and measure when the restarted worker trains again."""
    with start_preloader() as preloader:
        follower = Follower(preloader, create_run(_job(context)))
        _wait_for_restart(context, follower, "one worker", rank=0)


def check_killed_rank(context: CheckContext) -> None:
    """Kill one of two DDP ranks on the GPU, and check that the other rank is terminated and that both restart."""
    job = _job(context, strategy="ddp", devices=(context.gpu,) * 2, precision="fp32")
    follower = Follower(SharedGpuStarter(), create_run(job))  # type: ignore[arg-type]
    _wait_for_restart(context, follower, "one of two ranks", rank=1)


def _wait_for_restart(context: CheckContext, follower: Follower, what: str, *, rank: int) -> None:
    follower.wait_for_training()
    killed = time.monotonic()
    _worker(follower.run, rank).send_signal(signal.SIGKILL)
    named = follower.wait_until(lambda event: isinstance(event, Restarting) and event.rank == rank)
    context.measure(f"{what} killed: reported after", named - killed, "s", at_most=AIMS_S["killed -> named"])
    trains = follower.wait_until(lambda event: isinstance(event, StepMetrics))
    context.measure(f"{what} killed: trains again after", trains - killed, "s", at_most=AGAIN_S)
    follower.end_run(Stop())


def check_killed_supervisor(context: CheckContext) -> None:
    """Kill the supervisor of a run, and check that its workers exit and that the GPU becomes free."""
    with start_preloader() as preloader, MemoryWatch(context) as watch:
        time.sleep(0.2)
        follower = Follower(preloader, create_run(_job(context)))
        follower.wait_for_training()
        worker = _worker(follower.run, 0)
        supervisor = follower.run.supervisor()
        assert supervisor is not None
        killed = time.monotonic()
        os.kill(supervisor.pid, signal.SIGKILL)
        ended, _ = psutil.wait_procs([worker], timeout=10)
        context.claim("killed supervisor: its worker exits", bool(ended))
        while watch.seconds_until_free(killed) is None and not context.rehearsing and time.monotonic() < killed + 10:
            time.sleep(PERIOD_S)
        seconds = watch.seconds_until_free(killed)
        if not context.rehearsing:
            context.measure("killed supervisor: NVML reports free memory after", seconds or 10.0, "s", at_most=FREE_S)
        follower.connection.close()


def main() -> None:
    run_checks({
        "pause and stop": (check_pause_and_stop, 90),
        "killed worker": (check_killed_worker, 60),
        "killed worker with restart": (check_restart, 60),
        "one of two workers killed": (check_killed_rank, 90),
        "killed supervisor": (check_killed_supervisor, 60),
    })  # fmt: skip


if __name__ == "__main__":
    main()
