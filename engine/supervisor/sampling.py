"""The run's own devices, once a second, from a sampler of its own; and whether they are free again."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

import msgspec

from engine.contract.devices import CPU, DeviceSample, Gpu, Snapshot, is_gpu
from engine.processes.line_child import LineChild

INTERVAL_S = 1.0
RESTART_S = 10.0
"""A sampler that has exited is restarted after this long."""
FREED_SLACK_BYTES = 64 << 20
"""Memory beyond the use before the run that still does not count as held by the run."""

_SNAPSHOT = msgspec.json.Decoder(Snapshot)


class Sampler:
    """Runs ``python -m engine.gpus`` and calls `on_samples` with what concerns `devices`."""

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
        self._start_at: float | None = None
        self._baseline: dict[str, int] = {}
        self._ours: set[int] = set()
        self._seen: set[str] = set()
        self.latest: Snapshot | None = None
        self.latest_at = 0.0

    def start(self, delay_s: float = 0.0) -> None:
        """Starts the sampler after `delay_s`, from within `tick`. Does nothing where it is started."""
        if self._child is not None or self._start_at is not None:
            return
        self._start_at = time.monotonic() + delay_s
        self.tick()

    def tick(self) -> None:
        if self._start_at is not None and time.monotonic() >= self._start_at:
            self._start_at = None
            self._start()

    def own(self, pids: set[int]) -> None:
        """Tells which processes are the run's workers, so that their hold on a GPU is recognised."""
        self._ours = pids

    def free(self, since: float) -> bool:
        """Whether a snapshot later than `since` (monotonic) shows the run's GPUs without it.

        By the memory in use being back to what it was; where others have taken some meanwhile, by the workers' pids, if
        NVML was seen to name them (in a container it names the host's). True for a run without GPUs.
        """
        gpus = [device for device in self._devices if is_gpu(device)]
        if not gpus:
            return True
        if self.latest is None or self.latest_at <= since:
            return False
        rows = {gpu.uuid: gpu for gpu in self.latest.gpus}
        return all(uuid in rows and self._is_free(rows[uuid]) for uuid in gpus)

    def close(self) -> None:
        self._start_at = None
        if self._child is not None:
            self._child.close()
            self._child = None

    def _is_free(self, gpu: Gpu) -> bool:
        if gpu.lost:
            return False
        # Memory first: the sampler asks for it every time, for processes every other second.
        baseline, used = self._baseline.get(gpu.uuid), gpu.memory_used_bytes
        if baseline is not None and used is not None and used <= baseline + FREED_SLACK_BYTES:
            return True
        return gpu.uuid in self._seen and gpu.processes is not None and not self._held(gpu)

    def _held(self, gpu: Gpu) -> bool:
        return any(process.pid in self._ours for process in gpu.processes or ())

    def _start(self) -> None:
        if self._child is not None:
            self._child.close()
        arguments = ("engine.gpus", "--only-basics", "--interval", str(INTERVAL_S))
        self._child = LineChild(
            self._selector, arguments, lambda line: self._take(_SNAPSHOT.decode(line)), self._ended, quiet=True
        )

    def _ended(self, why: str) -> None:
        assert self._child is not None
        print(f"Device samples are missing: {why or 'the sampler has exited'}", flush=True)
        self._child.stop()
        self._start_at = time.monotonic() + RESTART_S

    def _take(self, snapshot: Snapshot) -> None:
        self.latest, self.latest_at = snapshot, time.monotonic()
        for gpu in snapshot.gpus:
            if gpu.memory_used_bytes is not None and not self._ours:
                self._baseline[gpu.uuid] = gpu.memory_used_bytes
            if self._held(gpu):
                self._seen.add(gpu.uuid)
        samples = samples_of(snapshot, self._devices)
        if samples:
            self._on_samples(samples)


def samples_of(snapshot: Snapshot, devices: tuple[str, ...]) -> tuple[DeviceSample, ...]:
    """What `snapshot` says of `devices`; one that it does not know is left out."""
    found = []
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    for device in devices:
        gpu = gpus.get(device)
        if device == CPU:
            cpu = snapshot.cpu
            found.append(
                DeviceSample(
                    device=CPU,
                    utilization_percent=cpu.load_percent,
                    memory_used_bytes=cpu.memory_used_bytes,
                    memory_total_bytes=cpu.memory_total_bytes,
                    temperature_c=cpu.temperature_c,
                )
            )
        elif gpu is not None and not gpu.lost:
            found.append(
                DeviceSample(
                    device=gpu.uuid,
                    utilization_percent=gpu.utilization_percent,
                    memory_used_bytes=gpu.memory_used_bytes,
                    memory_total_bytes=gpu.memory_total_bytes,
                    temperature_c=gpu.temperature_c,
                    power_w=gpu.power_w,
                )
            )
    return tuple(found)
