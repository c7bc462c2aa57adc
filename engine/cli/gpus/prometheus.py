"""Snapshot in Prometheus' text format 0.0.4.

Quantities that NVIDIA's dcgm-exporter also exports have its names, units and labels (its `etc/*.csv` and DCGM's
`dcgm_fields.h`), so that its dashboards and alerts work; all others are named `footplate_…` with the unit at the end.
Unknown values, and all values of a lost or sleeping GPU, are left out instead of exported as 0.

`prometheus_client` is no alternative: it appends `_total` to the names of counters, which dcgm-exporter does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from engine.contract.devices import Gpu, NvLink, Snapshot, Throttle
from engine.gpus.quantities import MIB

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Metric(NamedTuple):
    """Quantity of a GPU; `read` returns None if it is unknown."""

    name: str
    kind: Literal["gauge", "counter"]
    meaning: str
    read: Callable[[Gpu], float | None]


class Family(NamedTuple):
    """Gauges of a GPU, distinguished by `label`; `read` returns a value for each label."""

    name: str
    meaning: str
    label: str
    read: Callable[[Gpu], Iterable[tuple[str, float | None]]]


def exposition(snapshot: Snapshot) -> str:
    """Return the metrics of `snapshot` with a newline at the end."""
    return "\n".join([*_host_lines(snapshot), *_gpu_lines(snapshot)]) + "\n"


def _host_lines(snapshot: Snapshot) -> Iterator[str]:
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
        yield from _metric(name, "gauge", meaning, [(host, value)])


def _gpu_lines(snapshot: Snapshot) -> Iterator[str]:
    current = snapshot.gpus if snapshot.nvml.status == "ok" else ()  # otherwise the readings are old
    gpus = [(gpu, _labels(gpu, snapshot)) for gpu in current]
    yield from _metric("footplate_gpu_lost", "gauge", "Whether the GPU was lost.", [(at, gpu.lost) for gpu, at in gpus])
    sleep = [(at, gpu.asleep) for gpu, at in gpus]
    yield from _metric("footplate_gpu_asleep", "gauge", "Whether the GPU is powered down, and not woken.", sleep)
    awake = [(gpu, at) for gpu, at in gpus if not gpu.lost and not gpu.asleep]
    for metric in METRICS:
        values = [(at, metric.read(gpu)) for gpu, at in awake]
        yield from _metric(metric.name, metric.kind, metric.meaning, values)
    for family in FAMILIES:
        samples = [({**at, family.label: one}, value) for gpu, at in awake for one, value in family.read(gpu)]
        yield from _metric(family.name, "gauge", family.meaning, samples)


def _labels(gpu: Gpu, snapshot: Snapshot) -> Labels:
    """Return dcgm-exporter's labels; a MIG instance has its parent's number and UUID, and its own profile and ids."""
    parent = gpu
    if gpu.mig is not None:
        parent = next((other for other in snapshot.gpus if other.uuid == gpu.mig.parent_uuid), gpu)
    labels = {
        "gpu": str(parent.nvml_index),
        "UUID": gpu.mig.parent_uuid if gpu.mig is not None else gpu.uuid,
        "pci_bus_id": parent.pci_bus_id or "",
        "device": f"nvidia{parent.nvml_index}",
        "modelName": parent.name,
    }
    if gpu.mig is not None:
        labels |= {"GPU_I_PROFILE": gpu.mig.profile, "GPU_I_ID": str(gpu.mig.gpu_instance)}
        if gpu.mig.compute_instance is not None:  # several may share one GPU instance
            labels["compute_instance"] = str(gpu.mig.compute_instance)
    return labels | {"Hostname": snapshot.host, "DCGM_FI_DRIVER_VERSION": snapshot.nvml.driver_version or ""}


def _metric(name: str, kind: str, meaning: str, samples: Iterable[tuple[Labels, float | None]]) -> Iterator[str]:
    """Yield the lines of a metric; nothing if no sample has a value."""
    lines = [f"{name}{{{_format_labels(labels)}}} {value:.15g}" for labels, value in samples if value is not None]
    if lines:
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        yield from lines


def _format_labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _reasons(gpu: Gpu) -> Iterator[tuple[str, float]]:
    if gpu.throttled is not None:
        for reason in get_args(Throttle):
            yield reason, reason in gpu.throttled


def _links(read: Callable[[NvLink], float | None]) -> Callable[[Gpu], Iterable[tuple[str, float | None]]]:
    return lambda gpu: [(str(link.link), read(link)) for link in gpu.nvlinks]


_COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
"""Values of `nvmlComputeMode_t`, as in DCGM."""

METRICS: tuple[Metric, ...] = (
    Metric("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda gpu: gpu.sm_clock_mhz),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", lambda gpu: gpu.memory_clock_mhz),
    Metric("DCGM_FI_DEV_MAX_SM_CLOCK", "gauge", "Highest SM clock (in MHz).", lambda gpu: gpu.sm_clock_max_mhz),
    Metric("DCGM_FI_DEV_MAX_MEM_CLOCK", "gauge", "Highest memory clock (in MHz).", lambda gpu: gpu.memory_clock_max_mhz),
    Metric("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", lambda gpu: gpu.memory_temperature_c),
    Metric("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda gpu: gpu.temperature_c),
    Metric("DCGM_FI_DEV_SLOWDOWN_TEMP", "gauge", "The GPU slows down from here on (in C).", lambda gpu: gpu.slowdown_c),
    Metric("DCGM_FI_DEV_SHUTDOWN_TEMP", "gauge", "The GPU shuts down from here on (in C).", lambda gpu: gpu.shutdown_c),
    Metric("DCGM_FI_DEV_MEM_MAX_OP_TEMP", "gauge", "Highest temperature for the memory (in C).",
           lambda gpu: gpu.memory_max_c),
    Metric("DCGM_FI_DEV_FAN_SPEED", "gauge", "Fan speed (in %).", lambda gpu: gpu.fan_percent),
    Metric("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda gpu: gpu.power_w),
    Metric("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "gauge", "Power limit in force (in W).", lambda gpu: gpu.power_limit_w),
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded (in mJ).",
           lambda gpu: _scale(gpu.energy_j, 1000)),
    Metric("DCGM_FI_DEV_PSTATE", "gauge", "Performance state, 0 is the highest.", lambda gpu: gpu.performance_state),
    Metric("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Data sent over PCIe (in bytes per second).",
           lambda gpu: gpu.pcie.sent_bytes_per_s),
    Metric("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Data received over PCIe (in bytes per second).",
           lambda gpu: gpu.pcie.received_bytes_per_s),
    Metric("DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "PCIe generation in use.", lambda gpu: gpu.pcie.generation),
    Metric("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "gauge", "Highest PCIe generation.", lambda gpu: gpu.pcie.max_generation),
    Metric("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "PCIe lanes in use.", lambda gpu: gpu.pcie.width),
    Metric("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "gauge", "Most PCIe lanes.", lambda gpu: gpu.pcie.max_width),
    Metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", lambda gpu: gpu.pcie.replays),
    Metric("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda gpu: gpu.utilization_percent),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", lambda gpu: gpu.memory_busy_percent),
    Metric("DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", lambda gpu: gpu.encoder_percent),
    Metric("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", lambda gpu: gpu.decoder_percent),
    Metric("DCGM_FI_PROF_SM_ACTIVE", "gauge", "The ratio of cycles an SM has at least 1 warp assigned.",
           lambda gpu: _scale(gpu.sm_active_percent, 0.01)),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor pipes are active.",
           lambda gpu: _scale(gpu.tensor_active_percent, 0.01)),
    Metric("DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory (in MiB).",
           lambda gpu: _scale(gpu.memory_total_bytes, 1 / MIB)),
    Metric("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).",
           lambda gpu: _scale(gpu.memory_free_bytes, 1 / MIB)),
    Metric("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).",
           lambda gpu: _scale(gpu.memory_used_bytes, 1 / MIB)),
    Metric("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).",
           lambda gpu: _scale(gpu.memory_reserved_bytes, 1 / MIB)),
    Metric("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.",
           lambda gpu: gpu.xids[-1].number if gpu.xids else None),
    Metric("DCGM_FI_DEV_ECC_CURRENT", "gauge", "Whether ECC is on.", lambda gpu: gpu.ecc.enabled),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Total number of single-bit volatile ECC errors.",
           lambda gpu: gpu.ecc.corrected),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors.",
           lambda gpu: gpu.ecc.uncorrected),
    Metric("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "Total number of single-bit persistent ECC errors.",
           lambda gpu: gpu.ecc.total_corrected),
    Metric("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Total number of double-bit persistent ECC errors.",
           lambda gpu: gpu.ecc.total_uncorrected),
    Metric("DCGM_FI_DEV_RETIRED_SBE", "counter", "Total number of retired pages due to single-bit errors.",
           lambda gpu: gpu.retired.pages_single_bit),
    Metric("DCGM_FI_DEV_RETIRED_DBE", "counter", "Total number of retired pages due to double-bit errors.",
           lambda gpu: gpu.retired.pages_double_bit),
    Metric("DCGM_FI_DEV_RETIRED_PENDING", "gauge", "Whether pages are pending retirement.",
           lambda gpu: gpu.retired.pages_pending),
    Metric("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for uncorrectable errors",
           lambda gpu: gpu.retired.rows_uncorrected),
    Metric("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for correctable errors",
           lambda gpu: gpu.retired.rows_corrected),
    Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed",
           lambda gpu: gpu.retired.rows_failed),
    Metric("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether remapping of rows is pending",
           lambda gpu: gpu.retired.rows_pending),
    Metric("DCGM_FI_DEV_COMPUTE_MODE", "gauge", "0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.",
           lambda gpu: _COMPUTE_MODES.get(gpu.compute_mode)),
    Metric("DCGM_FI_DEV_PERSISTENCE_MODE", "gauge", "Whether the driver stays loaded.", lambda gpu: gpu.persistence),
    Metric("DCGM_FI_DEV_MIG_MODE", "gauge", "Whether MIG mode is enabled.", lambda gpu: gpu.mig_enabled),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family("footplate_gpu_throttled", "Whether this is a reason why clocks are not higher.", "reason", _reasons),
    Family("footplate_nvlink_received_bytes_per_second", "Data received over an NVLink.", "link",
           _links(lambda link: link.received_bytes_per_s)),
    Family("footplate_nvlink_sent_bytes_per_second", "Data sent over an NVLink.", "link",
           _links(lambda link: link.sent_bytes_per_s)),
    Family("footplate_nvlink_active", "Whether an NVLink is up.", "link", _links(lambda link: link.active)),
)  # fmt: skip
