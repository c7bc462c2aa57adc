"""MIG: the instances that a GPU is cut into, each of which is used as if it were a GPU.

Use, power and temperatures are those of the whole GPU; an instance tells its memory, its processes and, through GPM,
how busy its multiprocessors are.
"""

from __future__ import annotations

from typing import Any

from engine.contract.devices import Gpu, Mig
from engine.gpus.host import HostProcesses
from engine.gpus.nvml.activity import Activity
from engine.gpus.nvml.calls import Ask, GpuLost, Stopwatch, address, text
from engine.gpus.nvml.processes import ProcessTable
from engine.gpus.nvml.queries import Values, Wanted, identity, memory


class MigInstances:
    """The instances of the GPU that `ask` asks, of which `whole` never changes. They are looked up in the slow lane."""

    def __init__(self, ask: Ask, stopwatch: Stopwatch, whole: Values, host: HostProcesses | None) -> None:
        self._ask = ask
        self._stopwatch = stopwatch
        self._whole = whole
        self._host = host
        self._instances: dict[tuple[int | None, str], _Instance] = {}
        self.enabled: bool | None = None

    def read(self, wanted: Wanted) -> tuple[Gpu, ...]:
        """A row for each instance. Raises `GpuLost`."""
        if wanted.slow_due:
            mode = self._ask.tell("nvmlDeviceGetMigMode")
            self.enabled = None if mode is None else bool(mode[0])
            self._instances = self._look() if self.enabled else {}
        rows = []
        for key, instance in list(self._instances.items()):
            try:
                rows.append(instance.read(wanted))
            except GpuLost:  # the instance is gone; were it the GPU, that would have been noticed before
                del self._instances[key]
        return tuple(rows)

    def _look(self) -> dict[tuple[int | None, str], _Instance]:
        """Those there are now. A handle becomes another instance's when its own is destroyed."""
        count = self._ask.tell("nvmlDeviceGetMaxMigDeviceCount") or 0
        found = {}
        for number in range(count):
            handle = self._ask(("instance", number), lambda number=number: self._handle(number))  # type: ignore[misc]
            if handle is not None:
                ask = Ask(self._ask.nvml, handle, self._stopwatch)
                uuid, gpu_instance = ask.tell("nvmlDeviceGetUUID"), ask.tell("nvmlDeviceGetGpuInstanceId")
                if uuid is not None and gpu_instance is not None:
                    key = (address(handle), text(uuid))
                    found[key] = self._instances.get(key) or self._new(ask, text(uuid), gpu_instance)
        return found

    def _handle(self, number: int) -> Any:
        """None where there is no instance of that number, of which NVML speaks as of a GPU that is not found."""
        nvml = self._ask.nvml
        try:
            return nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._ask.handle, number)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                return None
            raise

    def _new(self, ask: Ask, uuid: str, gpu_instance: int) -> _Instance:
        values = identity(ask, uuid, self._whole["nvml_index"], self._whole["pci_bus_id"])
        _, _, profile = values["name"].partition(" MIG ")
        mig = Mig(
            parent_uuid=self._whole["uuid"],
            gpu_instance=gpu_instance,
            compute_instance=ask.tell("nvmlDeviceGetComputeInstanceId"),
            profile=profile,
        )
        processes = ProcessTable(ask, self._host, mig=True)
        values |= {"mig": mig, "compute_capability": self._whole["compute_capability"]}
        return _Instance(ask, values, processes, Activity(self._ask, gpu_instance))


class _Instance:
    """One instance, asked by `ask`; `values` never change."""

    def __init__(self, ask: Ask, values: Values, processes: ProcessTable, activity: Activity) -> None:
        self._ask = ask
        self._values = values
        self._processes = processes
        self._held_processes: Any = None
        self._activity = activity

    def read(self, wanted: Wanted) -> Gpu:
        """The instance now."""
        values = self._values | memory(self._ask)
        if not wanted.processes:
            self._held_processes = None
        elif wanted.processes_due:
            self._held_processes = self._processes.table(values["memory_total_bytes"])
        if wanted.activity:
            shares = self._activity.read()
            values |= {"sm_active_percent": shares.sm, "tensor_active_percent": shares.tensor}
        else:
            self._activity.forget()
        return Gpu(**values, processes=self._held_processes)
