"""Quantities of a GPU, read from the stub through the real pynvml."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from engine.contract.devices import Ecc, Gpu, Pcie, RetiredMemory, Snapshot
from tests.engine.gpus.conftest import Start, has_gpus, readings
from tests.support import nvml_stub as stubs
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import GIB, NvmlStub, Profile, make_gpu_profile, uuid_of

QUICK = ("--interval", "0.1")
STILL: dict[str, object] = {"pcie_bits": None, "pcie_received_per_s": None, "pcie_sent_per_s": None, "nvlinks": None}
"""Replacement values that remove measured rates from a reading, because rates vary slightly."""

MEMORY = ("memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes", "memory_free_bytes")
CLOCKS = ("sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_mhz", "memory_clock_max_mhz")
FIELDS_OF = {
    "name": ("name",),
    "compute_capability": ("compute_capability",),
    "memory": MEMORY,
    "utilization": ("utilization_percent", "memory_busy_percent"),
    "encoder": ("encoder_percent",),
    "decoder": ("decoder_percent",),
    "temperature": ("temperature_c",),
    "thresholds": ("slowdown_c", "shutdown_c", "memory_max_c"),
    "power": ("power_w",),
    "power_limit": ("power_limit_w",),
    "fan": ("fan_percent",),
    "clocks": CLOCKS,
    "throttle": ("throttled",),
    "pstate": ("performance_state",),
    "compute_mode": ("compute_mode",),
    "persistence": ("persistence",),
    "ecc_mode": ("ecc",),
    "pcie": ("pcie",),
    "mig": ("mig_enabled",),
    "gpm": ("sm_active_percent", "tensor_active_percent"),
    "processes": ("processes",),
    "energy": ("energy_j",),
    "memory_temperature": ("memory_temperature_c",),
    "ecc": ("ecc",),
    "retired": ("retired",),
    "rows": ("retired",),
    "pcie_replays": ("pcie",),
    "fields": ("energy_j", "memory_temperature_c", "ecc", "retired", "pcie"),
}
"""Quantities that are None if an NVML call or field is unsupported. Keys are the stub's names of the calls."""
IDENTITY = {"uuid", "pci_bus_id", "nvml_index"}


def is_last_complete(snapshot: Snapshot) -> bool:
    """Return True if the last GPU in a snapshot has the quantities that are only known after two readings."""
    return bool(snapshot.gpus) and snapshot.gpus[-1].sm_active_percent is not None


def sample(
    stub: NvmlStub, start_sampler: Start, profiles: Iterable[Profile], *, until: Callable[[Snapshot], bool] = has_gpus
) -> tuple[Gpu, ...]:
    stub.write(profiles)
    return start_sampler(*QUICK, stub=stub).wait_for(until).gpus


def test_all_supported_quantities_are_read(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    profile = make_gpu_profile(
        0, compute_capability=89, fan=130, temperature=0, memory_clock=1593, pcie_generation=2, pcie_width=1,
        management_limit_mw=800_000, throttle=4 | 32, retired_single=3, retired_double=1, retired_pending=1, **STILL,
    )  # fmt: skip
    (gpu,) = sample(nvml_stub, start_sampler, [profile], until=is_last_complete)
    assert gpu == Gpu(
        uuid=uuid_of(0),
        name="NVIDIA H200",
        nvml_index=0,
        pci_bus_id="000000FF:01:00.0",
        compute_capability=(8, 9),
        utilization_percent=5,
        memory_busy_percent=3,
        sm_active_percent=31,
        tensor_active_percent=22,
        encoder_percent=0,
        decoder_percent=12,
        memory_used_bytes=GIB,
        memory_total_bytes=140 * GIB,
        memory_reserved_bytes=GIB // 2,
        memory_free_bytes=140 * GIB - GIB - GIB // 2,
        temperature_c=0,
        memory_temperature_c=45,
        slowdown_c=87,
        shutdown_c=92,
        memory_max_c=95,
        fan_percent=130,
        power_w=100.5,
        power_limit_w=700,
        energy_j=123_456,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        memory_clock_mhz=1593,
        memory_clock_max_mhz=3201,
        throttled=("power_cap", "thermal"),
        performance_state=0,
        pcie=Pcie(generation=2, max_generation=5, width=1, max_width=16, replays=0),
        ecc=Ecc(enabled=True, corrected=0, uncorrected=0, total_corrected=2, total_uncorrected=0),
        retired=RetiredMemory(
            pages_single_bit=3, pages_double_bit=1, pages_pending=True, rows_corrected=1, rows_uncorrected=0,
            rows_pending=False, rows_failed=False,
        ),
        compute_mode="default",
        persistence=True,
        mig_enabled=False,
        processes=(),
    )  # fmt: skip


@pytest.mark.parametrize("names", [tuple(FIELDS_OF)[:14], tuple(FIELDS_OF)[14:]])
def test_unsupported_quantity_is_none_without_others(
    nvml_stub: NvmlStub, start_sampler: Start, names: tuple[str, ...]
) -> None:
    def profile(place: int, **errors: object) -> Profile:
        identity = {"uuid": uuid_of(place), "bus_id": f"000000FF:{place + 1:02X}:00.0"}
        return make_gpu_profile(0, fan=30, retired_single=0, **STILL, **identity, **errors)

    profiles = [profile(place, **{f"{name}_error": stubs.NOT_SUPPORTED}) for place, name in enumerate(names)]
    *gpus, complete = sample(nvml_stub, start_sampler, [*profiles, profile(len(names))], until=is_last_complete)
    for name, gpu in zip(names, gpus, strict=True):
        assert not gpu.lost
        differing = {
            field for field in gpu.__struct_fields__ if getattr(gpu, field) != getattr(complete, field)
        } - IDENTITY
        assert differing == set(FIELDS_OF[name]), name


def test_implausible_value_is_none_without_others(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    MACHINES["garbage"].write(nvml_stub)
    (gpu,) = start_sampler(*QUICK, stub=nvml_stub).wait_for(lambda s: bool(s.gpus) and bool(s.gpus[0].nvlinks)).gpus
    nonsense = (
        "utilization_percent", "memory_busy_percent", "encoder_percent", "decoder_percent", "temperature_c",
        "memory_temperature_c", "slowdown_c", "shutdown_c", "power_w", "power_limit_w", "memory_used_bytes",
        "memory_free_bytes", "fan_percent", "sm_clock_mhz", "sm_clock_max_mhz", "performance_state",
        "sm_active_percent", "tensor_active_percent",
    )  # fmt: skip
    assert [name for name in nonsense if getattr(gpu, name) is not None] == []
    assert (gpu.compute_mode, gpu.throttled, gpu.pcie.generation, gpu.pcie.width) == ("", (), None, None)
    assert (gpu.memory_total_bytes, gpu.memory_clock_mhz, gpu.memory_max_c) == (140 * GIB, 3201, 95)
    assert gpu.processes is not None
    assert [(p.pid, p.memory_used_bytes, p.sm_percent) for p in gpu.processes] == [(4_000_001, None, None)]


def test_shared_memory_is_none_not_zero(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    MACHINES["unified_memory"].write(nvml_stub)
    (gpu,) = start_sampler(*QUICK, stub=nvml_stub).wait_for(has_gpus).gpus
    assert [getattr(gpu, name) for name in MEMORY] == [None] * 4
    assert gpu.processes is not None
    assert gpu.processes[0].memory_used_bytes == 5 * GIB


def test_unknown_versions_are_none(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    gpu = make_gpu_profile(0, power_limit_mw=None, management_limit_mw=800_000)
    nvml_stub.write([gpu], driver_version="", cuda_version=0)
    snapshot = start_sampler("--once", stub=nvml_stub).next()
    assert (snapshot.nvml.driver_version, snapshot.nvml.cuda_version) == (None, None)
    assert snapshot.gpus[0].power_limit_w == 800  # without the enforced limit


def test_old_driver_lacks_newer_quantities_only(old_nvml_stub: NvmlStub, start_sampler: Start) -> None:
    MACHINES["old_driver"].write(old_nvml_stub)
    snapshot = start_sampler(*QUICK, stub=old_nvml_stub).wait_for(
        lambda s: bool(s.gpus) and s.gpus[0].pcie.received_bytes_per_s is not None
    )
    (gpu,) = snapshot.gpus
    assert (snapshot.nvml.driver_version, snapshot.nvml.cuda_version) == ("470.256.02", "11.4")
    assert (gpu.utilization_percent, gpu.temperature_c, gpu.fan_percent, gpu.sm_clock_mhz) == (5, 40, 34, 2520)
    assert (gpu.energy_j, gpu.slowdown_c, gpu.throttled) == (123_456, 90, ())
    assert (gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (6 * GIB + GIB // 2, None)
    assert (gpu.sm_active_percent, gpu.pcie.generation, gpu.mig_enabled) == (None, 4, None)


def test_temperature_is_known_without_deprecated_function(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0, temperature_error=stubs.FUNCTION_NOT_FOUND, temperature_v=61)])
    assert next(readings(nvml_stub)).gpus[0].temperature_c == 61


def test_threshold_margins_become_temperatures(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    distances = {"temperature": 45, "margin": 45, "slowdown_tlimit": -2, "shutdown_tlimit": -5}
    profiles = [
        make_gpu_profile(0, thresholds_error=stubs.NOT_SUPPORTED, **distances),
        make_gpu_profile(1, slowdown=None, shutdown=99, **distances),
    ]  # the GPUs reduce their clocks from 90 degrees on
    found = [(gpu.slowdown_c, gpu.shutdown_c, gpu.memory_max_c) for gpu in sample(nvml_stub, start_sampler, profiles)]
    assert found == [(92, 95, None), (92, 99, 95)]


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0, ()),
        (1, ("idle",)),
        (0x8 | 0x40, ("hardware_slowdown", "hardware_thermal")),
        (0x1FF, ("idle", "clocks_setting", "power_cap", "hardware_slowdown", "sync_boost", "thermal",
                 "hardware_thermal", "power_brake", "display_setting")),
        (1 << 20, ()),
    ],
)  # fmt: skip
def test_throttle_reasons_are_named(nvml_stub: NvmlStub, bits: int, reasons: tuple[str, ...]) -> None:
    nvml_stub.write([make_gpu_profile(0, throttle=bits)])
    assert next(readings(nvml_stub)).gpus[0].throttled == reasons


def test_energy_grows_with_power(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, wave=1, power_mw=500_000)])
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    first = sampler.wait_for(has_gpus)
    start_j = first.gpus[0].energy_j
    assert start_j is not None

    def five_hundred_watts(snapshot: Snapshot) -> bool:
        seconds = snapshot.time - first.time
        return seconds > 1 and (snapshot.gpus[0].energy_j or 0) - start_j == pytest.approx(500 * seconds, rel=0.2)

    sampler.wait_for(five_hundred_watts)  # the delay between reading clock and counter averages out


def test_activity_needs_two_samples(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0, wave=1)])
    activities = (reading.gpus[0].sm_active_percent for reading in readings(nvml_stub))
    assert next(activities) is None
    values: set[float] = set()
    while len(values) < 2:
        values.update(value for value in (next(activities),) if value is not None)
    assert all(31 <= value <= 51 for value in values)


def test_call_duration_is_that_of_the_last_reading(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)], delay_us=2000)
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    durations = [sampler.wait_for(has_gpus).nvml_call_s or 0 for _ in range(6)]
    assert min(durations) > 0.02  # more than a dozen calls of two milliseconds
    assert durations != sorted(durations)  # constants are only read once


def test_container_is_reported(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    in_container = os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC
    assert start_sampler("--once", stub=nvml_stub).next().foreign_pids is in_container
