"""Format snapshots in Prometheus' text format 0.0.4.

Quantities that NVIDIA's dcgm-exporter also exports have the same names, units and labels (its `etc/*.csv` and DCGM's
`dcgm_fields.h`), so that dashboards and alerts for it work. All others are named `footplate_…` with the unit at the
end. Unknown values, and all values of a lost or sleeping GPU, are left out rather than exported as 0.

`prometheus_client` is not used because it appends `_total` to the names of counters, unlike dcgm-exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Literal, NamedTuple, get_args

from engine.checks.gpu_checks import physical_gpu
from engine.contract.devices import Gpu, NvLink, Snapshot, Throttle
from engine.gpus.quantities import MIB

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Metric(NamedTuple):
    """Quantity of a GPU that is exported as one metric.

    `source` is the path of an attribute of `Gpu`, whose value is multiplied by `scale` to get the exported unit.
    """

    name: str
    meaning: str
    source: str
    kind: Literal["gauge", "counter"] = "gauge"
    scale: float = 1

    def read(self, gpu: Gpu) -> float | None:
        """Return the value to export for a GPU, or None if it is unknown."""
        value = attrgetter(self.source)(gpu)
        if self.source == "xids":  # the last one, as in dcgm-exporter
            value = value[-1].number if value else None
        elif self.source == "compute_mode":
            value = _COMPUTE_MODES.get(value)
        return None if value is None else value * self.scale


class Family(NamedTuple):
    """Metric with several values per GPU, which differ in the value of the label `label`.

    `read` returns pairs of a label value and a metric value, or None if the latter is unknown.
    """

    name: str
    meaning: str
    label: str
    read: Callable[[Gpu], Iterable[tuple[str, float | None]]]


def format_exposition(snapshot: Snapshot) -> str:
    """Return the text with all metrics of a snapshot, ending with a newline."""
    return "\n".join([*_format_host(snapshot), *_format_gpus(snapshot)]) + "\n"


def _format_host(snapshot: Snapshot) -> Iterator[str]:
    """Yield the lines of the metrics about the host, its processor and NVML."""
    host = {"Hostname": snapshot.host}
    cpu = snapshot.cpu
    metrics: tuple[tuple[str, str, float | None], ...] = (
        ("footplate_nvml_up", "Whether NVML answers.", snapshot.nvml.status == "ok"),
        ("footplate_nvml_call_seconds", "How long NVML's own calls took for one snapshot.", snapshot.nvml_call_s),
        ("footplate_snapshot_timestamp_seconds", "When these values were read, since the epoch.", snapshot.time),
        ("footplate_cpu_load_percent", "Load of the processor, over all its cores (in %).", cpu.load_percent),
        ("footplate_cpu_temperature_celsius", "Temperature of the processor (in C).", cpu.temperature_c),
        ("footplate_host_memory_used_bytes", "The host's memory in use.", cpu.memory_used_bytes),
        ("footplate_host_memory_total_bytes", "The host's memory.", cpu.memory_total_bytes),
    )
    for name, meaning, value in metrics:
        yield from _format_metric(name, "gauge", meaning, [(host, value)])


def _format_gpus(snapshot: Snapshot) -> Iterator[str]:
    """Yield the lines of the metrics about the GPUs. Lost and sleeping GPUs have only their state."""
    current_gpus = snapshot.gpus if snapshot.nvml.status == "ok" else ()  # otherwise the readings are old
    gpus = [(gpu, _create_labels(gpu, snapshot)) for gpu in current_gpus]
    lost = [(labels, gpu.lost) for gpu, labels in gpus]
    yield from _format_metric("footplate_gpu_lost", "gauge", "Whether the GPU was lost.", lost)
    asleep = [(labels, gpu.asleep) for gpu, labels in gpus]
    yield from _format_metric(
        "footplate_gpu_asleep", "gauge", "Whether the GPU is powered down, and not woken.", asleep
    )
    awake = [(gpu, labels) for gpu, labels in gpus if not gpu.lost and not gpu.asleep]
    for metric in METRICS:
        values = [(labels, metric.read(gpu)) for gpu, labels in awake]
        yield from _format_metric(metric.name, metric.kind, metric.meaning, values)
    for family in FAMILIES:
        samples = [
            ({**labels, family.label: label_value}, value)
            for gpu, labels in awake
            for label_value, value in family.read(gpu)
        ]
        yield from _format_metric(family.name, "gauge", family.meaning, samples)


def _create_labels(gpu: Gpu, snapshot: Snapshot) -> Labels:
    """Return the labels of a GPU. dcgm-exporter uses the same labels.

    A MIG instance has the number and UUID of its parent GPU, its profile, and its instance ids.
    """
    physical = physical_gpu(gpu, snapshot)
    labels = {
        "gpu": str(physical.nvml_index),
        "UUID": gpu.mig.parent_uuid if gpu.mig is not None else gpu.uuid,
        "pci_bus_id": physical.pci_bus_id or "",
        "device": f"nvidia{physical.nvml_index}",
        "modelName": physical.name,
    }
    if gpu.mig is not None:
        labels |= {"GPU_I_PROFILE": gpu.mig.profile, "GPU_I_ID": str(gpu.mig.gpu_instance)}
        if gpu.mig.compute_instance is not None:  # several may share one GPU instance
            labels["compute_instance"] = str(gpu.mig.compute_instance)
    return labels | {"Hostname": snapshot.host, "DCGM_FI_DRIVER_VERSION": snapshot.nvml.driver_version or ""}


def _format_metric(name: str, kind: str, meaning: str, samples: Iterable[tuple[Labels, float | None]]) -> Iterator[str]:
    """Yield the lines of a metric, or nothing if all its samples are unknown."""
    lines = [f"{name}{{{_format_labels(labels)}}} {value:.15g}" for labels, value in samples if value is not None]
    if lines:
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        yield from lines


def _format_labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _list_clock_reasons(gpu: Gpu) -> Iterator[tuple[str, float]]:
    """Yield each possible reason for reduced clocks, with 1 if it applies, else 0. Yield nothing if this is unknown."""
    if gpu.throttled is not None:
        for reason in get_args(Throttle):
            yield reason, reason in gpu.throttled


def _create_link_reader(read: Callable[[NvLink], float | None]) -> Callable[[Gpu], Iterable[tuple[str, float | None]]]:
    """Return a function that applies `read` to each NVLink of a GPU, for `Family.read`."""
    return lambda gpu: [(str(link.link), read(link)) for link in gpu.nvlinks]


_COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
"""Numbers of the compute modes in `nvmlComputeMode_t`, which DCGM exports."""

METRICS: tuple[Metric, ...] = (
    Metric("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "sm_clock_mhz"),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "memory_clock_mhz"),
    Metric("DCGM_FI_DEV_MAX_SM_CLOCK", "Highest SM clock (in MHz).", "sm_clock_max_mhz"),
    Metric("DCGM_FI_DEV_MAX_MEM_CLOCK", "Highest memory clock (in MHz).", "memory_clock_max_mhz"),
    Metric("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", "memory_temperature_c"),
    Metric("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "temperature_c"),
    Metric("DCGM_FI_DEV_SLOWDOWN_TEMP", "The GPU slows down from here on (in C).", "slowdown_c"),
    Metric("DCGM_FI_DEV_SHUTDOWN_TEMP", "The GPU shuts down from here on (in C).", "shutdown_c"),
    Metric("DCGM_FI_DEV_MEM_MAX_OP_TEMP", "Highest temperature for the memory (in C).", "memory_max_c"),
    Metric("DCGM_FI_DEV_FAN_SPEED", "Fan speed (in %).", "fan_percent"),
    Metric("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power_w"),
    Metric("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit in force (in W).", "power_limit_w"),
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded (in mJ).", "energy_j",
           "counter", scale=1000),
    Metric("DCGM_FI_DEV_PSTATE", "Performance state, 0 is the highest.", "performance_state"),
    Metric("DCGM_FI_PROF_PCIE_TX_BYTES", "Data sent over PCIe (in bytes per second).", "pcie.sent_bytes_per_s"),
    Metric("DCGM_FI_PROF_PCIE_RX_BYTES", "Data received over PCIe (in bytes per second).", "pcie.received_bytes_per_s"),
    Metric("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe generation in use.", "pcie.generation"),
    Metric("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "Highest PCIe generation.", "pcie.max_generation"),
    Metric("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe lanes in use.", "pcie.width"),
    Metric("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "Most PCIe lanes.", "pcie.max_width"),
    Metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "pcie.replays", "counter"),
    Metric("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "utilization_percent"),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "memory_busy_percent"),
    Metric("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", "encoder_percent"),
    Metric("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", "decoder_percent"),
    Metric("DCGM_FI_PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.",
           "sm_active_percent", scale=0.01),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipes are active.",
           "tensor_active_percent", scale=0.01),
    Metric("DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory (in MiB).", "memory_total_bytes", scale=1 / MIB),
    Metric("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory_free_bytes", scale=1 / MIB),
    Metric("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory_used_bytes", scale=1 / MIB),
    Metric("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "memory_reserved_bytes", scale=1 / MIB),
    Metric("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", "xids"),
    Metric("DCGM_FI_DEV_ECC_CURRENT", "Whether ECC is on.", "ecc.enabled"),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.",
           "ecc.corrected", "counter"),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.",
           "ecc.uncorrected", "counter"),
    Metric("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors.",
           "ecc.total_corrected", "counter"),
    Metric("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors.",
           "ecc.total_uncorrected", "counter"),
    Metric("DCGM_FI_DEV_RETIRED_SBE", "Total number of retired pages due to single-bit errors.",
           "retired.pages_single_bit", "counter"),
    Metric("DCGM_FI_DEV_RETIRED_DBE", "Total number of retired pages due to double-bit errors.",
           "retired.pages_double_bit", "counter"),
    Metric("DCGM_FI_DEV_RETIRED_PENDING", "Whether pages are pending retirement.", "retired.pages_pending"),
    Metric("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors",
           "retired.rows_uncorrected", "counter"),
    Metric("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors",
           "retired.rows_corrected", "counter"),
    Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "retired.rows_failed"),
    Metric("DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether remapping of rows is pending", "retired.rows_pending"),
    Metric("DCGM_FI_DEV_COMPUTE_MODE", "0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.",
           "compute_mode"),
    Metric("DCGM_FI_DEV_PERSISTENCE_MODE", "Whether the driver stays loaded.", "persistence"),
    Metric("DCGM_FI_DEV_MIG_MODE", "Whether MIG mode is enabled.", "mig_enabled"),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family("footplate_gpu_throttled", "Whether this is a reason why clocks are not higher.", "reason", _list_clock_reasons),
    Family("footplate_nvlink_received_bytes_per_second", "Data received over an NVLink.", "link",
           _create_link_reader(lambda link: link.received_bytes_per_s)),
    Family("footplate_nvlink_sent_bytes_per_second", "Data sent over an NVLink.", "link",
           _create_link_reader(lambda link: link.sent_bytes_per_s)),
    Family("footplate_nvlink_active", "Whether an NVLink is up.", "link", _create_link_reader(lambda link: link.active)),
)  # fmt: skip
