"""What the devices have done in the last hour."""

from __future__ import annotations

from engine.contract.devices import CPU, Cpu, Gpu, Snapshot
from gui.devices.words import card_order, gpu_title
from gui.plots.columns import Floats, Ring

QUANTITIES = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")
"""What is kept of each device, in the order of the graphs."""

HOUR_AT_ONE_HZ = 3600


class DeviceHistory:
    """A ring of times and quantities for each device; what a device could not tell is NaN.

    `titles` names each device as its card does now (CUDA's numbers come a little after the first snapshot), in the
    order of the cards, those no longer there last; `additions` counts the snapshots taken in.
    A device that is missing from a snapshot gets a row of NaN, so that its graphs show the gap.
    """

    def __init__(self, capacity: int = HOUR_AT_ONE_HZ) -> None:
        self._capacity = capacity
        self._rings: dict[str, Ring] = {}
        self.titles: dict[str, str] = {}
        self.additions = 0

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices seen so far: UUIDs and "cpu", in the order of `titles`."""
        return tuple(self.titles)

    def add(self, snapshot: Snapshot) -> None:
        gpus = sorted(snapshot.gpus, key=card_order)
        seen: dict[str, tuple[float | None, ...]] = {gpu.uuid: _gpu_row(gpu) for gpu in gpus}
        seen[CPU] = _cpu_row(snapshot.cpu)
        titles = {gpu.uuid: gpu_title(gpu) for gpu in gpus} | {CPU: "CPU"}
        self.titles = titles | {device: title for device, title in self.titles.items() if device not in titles}
        self.additions += 1
        for device in seen:
            if device not in self._rings:
                self._rings[device] = Ring(1 + len(QUANTITIES), self._capacity)
        nothing = (None,) * len(QUANTITIES)
        for device, ring in self._rings.items():
            ring.append((snapshot.time, *seen.get(device, nothing)))

    def times(self, device: str) -> Floats:
        """Seconds since the epoch, oldest first; a view that is valid until the next `add`."""
        return self._rings[device].column(0)

    def values(self, device: str, quantity: str) -> Floats:
        """One of `QUANTITIES` at `times(device)`; a view that is valid until the next `add`."""
        return self._rings[device].column(1 + QUANTITIES.index(quantity))


def _gpu_row(gpu: Gpu) -> tuple[float | None, ...]:
    if gpu.lost:
        return (None,) * len(QUANTITIES)
    return gpu.utilization_percent, gpu.memory_used_bytes, gpu.power_w, gpu.temperature_c


def _cpu_row(cpu: Cpu) -> tuple[float | None, ...]:
    return cpu.load_percent, cpu.memory_used_bytes, None, cpu.temperature_c
