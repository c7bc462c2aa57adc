"""Read MIG instances, which are partitions of a GPU that are used like GPUs.

Utilization, power and temperatures are those of the entire GPU. An instance has separate memory and processes. With
GPM, its multiprocessor activity is known, too.
"""

from __future__ import annotations

from typing import Any

from engine.contract.devices import Gpu, Mig
from engine.gpus.host import HostProcesses
from engine.gpus.nvml.activity import ActivityReader
from engine.gpus.nvml.calls import DeviceCalls, GpuLost, Stopwatch, address, decode_text
from engine.gpus.nvml.processes import ProcessTable
from engine.gpus.nvml.queries import ReadRequest, Values, read_identity, read_memory


class MigInstances:
    """MIG instances of a GPU.

    `parent` holds the values of the GPU that never change. The list of instances is read as often as the values
    that change slowly.
    """

    def __init__(self, calls: DeviceCalls, stopwatch: Stopwatch, parent: Values, host: HostProcesses | None) -> None:
        self._calls = calls
        self._stopwatch = stopwatch
        self._parent = parent
        self._host = host
        self._instances: dict[tuple[int | None, str], _Instance] = {}
        self.enabled: bool | None = None

    def read(self, request: ReadRequest) -> tuple[Gpu, ...]:
        """Read the requested quantities of all MIG instances of the GPU. Raises GpuLost if the GPU does not respond."""
        if request.slow_due:
            mode = self._calls.call("nvmlDeviceGetMigMode")
            self.enabled = None if mode is None else bool(mode[0])  # mode[1] is the mode after the next reset
            self._instances = self._list_instances() if self.enabled else {}
        rows = []
        for key, instance in list(self._instances.items()):
            try:
                rows.append(instance.read(request))
            except GpuLost:  # the instance was destroyed; a lost GPU would have been detected before
                del self._instances[key]
        return tuple(rows)

    def _list_instances(self) -> dict[tuple[int | None, str], _Instance]:
        """Return the current instances, keyed by handle and UUID.

        Both are needed because a new instance may get the handle of a destroyed one.
        """
        count = self._calls.call("nvmlDeviceGetMaxMigDeviceCount") or 0
        found = {}
        for number in range(count):
            # The pair names the reading, which is counted like that of a quantity.
            handle = self._calls.attempt(("instance", number), lambda number=number: self._get_instance_handle(number))  # type: ignore[misc]
            if handle is not None:
                calls = DeviceCalls(self._calls.nvml, handle, self._stopwatch)
                uuid, gpu_instance = calls.call("nvmlDeviceGetUUID"), calls.call("nvmlDeviceGetGpuInstanceId")
                if uuid is not None and gpu_instance is not None:
                    key = (address(handle), decode_text(uuid))
                    found[key] = self._instances.get(key) or self._create_instance(
                        calls, decode_text(uuid), gpu_instance
                    )
        return found

    def _get_instance_handle(self, number: int) -> Any:
        """Return the handle of the instance with this number, or None if there is none.

        NVML reports a missing instance with the same error as a missing GPU.
        """
        nvml = self._calls.nvml
        try:
            return nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._calls.handle, number)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                return None
            raise

    def _create_instance(self, calls: DeviceCalls, uuid: str, gpu_instance: int) -> _Instance:
        """Prepare the queries for a new instance, and read its values that never change."""
        values = read_identity(calls, uuid, self._parent["nvml_index"], self._parent["pci_bus_id"])
        _, _, profile = values["name"].partition(" MIG ")
        mig = Mig(
            parent_uuid=self._parent["uuid"],
            gpu_instance=gpu_instance,
            compute_instance=calls.call("nvmlDeviceGetComputeInstanceId"),
            profile=profile,
        )
        processes = ProcessTable(calls, self._host, mig=True)
        values |= {"mig": mig, "compute_capability": self._parent["compute_capability"]}
        activity = ActivityReader(self._calls, gpu_instance)  # NVML measures it by the handle of the GPU
        return _Instance(calls, values, processes, activity)


class _Instance:
    """MIG instance. `values` holds its values that never change."""

    def __init__(self, calls: DeviceCalls, values: Values, processes: ProcessTable, activity: ActivityReader) -> None:
        self._calls = calls
        self._values = values
        self._processes = processes
        self._last_processes: Any = None  # processes at their last reading
        self._activity = activity

    def read(self, request: ReadRequest) -> Gpu:
        """Read the requested quantities of the instance. Raises GpuLost if it was destroyed."""
        values = self._values | read_memory(self._calls)
        if not request.processes:
            self._last_processes = None
        elif request.processes_due:
            self._last_processes = self._processes.read(values["memory_total_bytes"])
        if request.activity:
            activity = self._activity.read()
            values |= {"sm_active_percent": activity.sm, "tensor_active_percent": activity.tensor}
        else:
            self._activity.reset()
        return Gpu(**values, processes=self._last_processes)
