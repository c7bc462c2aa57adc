"""Sampling of a run's devices once per second, and a check whether its GPUs have released their memory."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Container

import msgspec

from engine.contract.devices import CPU, DeviceSample, Gpu, Snapshot, is_gpu
from engine.processes.line_child import LineChild

INTERVAL_S = 1.0
RESTART_S = 10.0
"""Seconds until a sampler that has exited is restarted."""
FREED_SLACK_BYTES = 64 << 20
"""Maximum increase of a free GPU's used memory since before the run, in bytes.

A larger increase means that the GPU's memory has not been released.
"""

_SNAPSHOT = msgspec.json.Decoder(Snapshot)


class Sampler:
    """Sampler of the load and memory of a run's `devices`.

    It runs ``python -m engine.gpus`` as a child process, and calls `on_samples` with samples.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        devices: tuple[str, ...],
        on_samples: Callable[[tuple[DeviceSample, ...]], None],
    ) -> None:
        self._selector = selector
        self._devices = tuple(dict.fromkeys(devices))
        self._on_samples = on_samples
        self._child: LineChild | None = None
        self._start_at: float | None = None  # time of a scheduled start
        self._memory_before: dict[str, int] = {}  # used bytes of each GPU before the run, by UUID
        self.worker_pids: set[int] = set()
        """Process ids of the run's workers, which the supervisor sets."""
        self._gpus_with_known_pids: set[str] = set()
        """UUIDs of the GPUs whose NVML process list has contained a worker of this run."""
        self.latest: Snapshot | None = None
        self.latest_at = 0.0  # time (monotonic) of `latest`

    def start(self, delay_s: float = 0.0) -> None:
        """Start the child process `delay_s` from now, unless it is running or its start is already scheduled."""
        if self._child is not None or self._start_at is not None:
            return
        self._start_at = time.monotonic() + delay_s
        self.tick()

    def drop(self, devices: Container[str]) -> None:
        """Ignore the lost `devices` from now on."""
        self._devices = tuple(device for device in self._devices if device not in devices)

    def tick(self) -> None:
        """Start the child process if the time of its scheduled start has come."""
        if self._start_at is not None and time.monotonic() >= self._start_at:
            self._start_at = None
            self._start()

    def is_memory_free(self, since: float) -> bool:
        """Return True if a snapshot taken after the time `since` (monotonic) shows that the run uses no GPU memory.

        A GPU is free if its used memory is down to the amount before the run, or if NVML no longer lists workers that
        it listed before. In a container, NVML lists process ids of the host, which are unknown here. Returns True for a
        run without GPUs, too.
        """
        gpus = [device for device in self._devices if is_gpu(device)]
        if not gpus:
            return True
        if self.latest is None or self.latest_at <= since:
            return False
        rows = {gpu.uuid: gpu for gpu in self.latest.gpus}
        return all(uuid in rows and self._is_free(rows[uuid]) for uuid in gpus)

    def close(self) -> None:
        """Stop the child process, and cancel a scheduled start. `start` may be called again."""
        self._start_at = None
        if self._child is not None:
            self._child.close()
            self._child = None

    def _is_free(self, gpu: Gpu) -> bool:
        """Return True if the latest snapshot's row `gpu` shows that the run uses no memory of this GPU."""
        if gpu.lost:
            return False
        # Check memory first: each snapshot measures it, but lists processes only every other second.
        before, used = self._memory_before.get(gpu.uuid), gpu.memory_used_bytes
        if before is not None and used is not None and used <= before + FREED_SLACK_BYTES:
            return True
        return gpu.uuid in self._gpus_with_known_pids and gpu.processes is not None and not self._has_workers(gpu)

    def _has_workers(self, gpu: Gpu) -> bool:
        """Return True if a worker of the run is among the processes that NVML lists for a GPU."""
        return any(process.pid in self.worker_pids for process in gpu.processes or ())

    def _start(self) -> None:
        """Start the child process, after waiting for the exit of the previous one. If that fails, retry later."""
        if self._child is not None:
            self._child.close()
            self._child = None
        arguments = ("engine.gpus", "--only-basics", "--interval", str(INTERVAL_S))
        try:
            self._child = LineChild(
                self._selector, arguments, lambda line: self.add(_SNAPSHOT.decode(line)), self._on_end, quiet=True
            )
        except OSError as error:
            self._retry_later(f"the sampler can't be started: {error}")

    def _on_end(self, error: str) -> None:
        """Schedule a restart after the end of the child's output. `error` describes an invalid line, or is ""."""
        assert self._child is not None
        self._child.stop()
        self._retry_later(error or "the sampler has exited")

    def _retry_later(self, reason: str) -> None:
        """Print why samples are missing, and schedule another start of the child process."""
        print(f"Device samples are missing: {reason}", flush=True)
        self._start_at = time.monotonic() + RESTART_S

    def add(self, snapshot: Snapshot) -> None:
        """Store a snapshot from the child process, and call `on_samples` with the samples in it."""
        self.latest, self.latest_at = snapshot, time.monotonic()
        for gpu in snapshot.gpus:
            if gpu.memory_used_bytes is not None and not self.worker_pids:  # before the first worker
                self._memory_before[gpu.uuid] = gpu.memory_used_bytes
            if self._has_workers(gpu):
                self._gpus_with_known_pids.add(gpu.uuid)
        samples = samples_of(snapshot, self._devices)
        if samples:
            self._on_samples(samples)


def samples_of(snapshot: Snapshot, devices: tuple[str, ...]) -> tuple[DeviceSample, ...]:
    """Convert a snapshot to samples, one for each of `devices` that it contains."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    samples = []
    for device in devices:
        gpu = gpus.get(device)
        if device == CPU:
            cpu = snapshot.cpu
            samples.append(
                DeviceSample(
                    device=CPU,
                    utilization_percent=cpu.load_percent,
                    memory_used_bytes=cpu.memory_used_bytes,
                    memory_total_bytes=cpu.memory_total_bytes,
                    temperature_c=cpu.temperature_c,
                )
            )
        elif gpu is not None and not gpu.lost:
            samples.append(
                DeviceSample(
                    device=gpu.uuid,
                    utilization_percent=gpu.utilization_percent,
                    memory_used_bytes=gpu.memory_used_bytes,
                    memory_total_bytes=gpu.memory_total_bytes,
                    temperature_c=gpu.temperature_c,
                    power_w=gpu.power_w,
                )
            )
    return tuple(samples)
