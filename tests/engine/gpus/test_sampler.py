"""GPU sampler process that uses the stub of NVIDIA's libraries through the real pynvml."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.engine.gpus.conftest import Start, has_gpus, readers_of
from tests.support import nvml_stub as stubs
from tests.support.nvml_stub import GIB, NvmlStub, make_gpu_profile, make_instance_profile, uuid_of

ASKED = (
    "compute_capability", "memory", "utilization", "encoder", "decoder", "temperature", "thresholds", "margin", "power", "power_limit", "fan",
    "clocks", "throttle", "pstate", "compute_mode", "persistence", "ecc_mode", "pcie", "pcie_throughput", "fields",
    "nvlink_state", "gpm", "events", "mig", "processes", "process_utilization", "topology", "affinity", "nvlink_remote",
)  # fmt: skip
"""NVML calls of the sampler for a GPU that is listed, by their names in the stub."""
QUICK = ("--interval", "0.1", "--silent", "2", "--retry", "0.2", "--again", "0.2")


def test_snapshot_of_one_gpu(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, utilization=87, process=[f"{os.getpid()}:{3 * GIB}"])])
    snapshot = start_sampler(*QUICK, stub=nvml_stub).wait_for(has_gpus)
    (gpu,) = snapshot.gpus
    assert snapshot.nvml.status == "ok"
    assert snapshot.nvml.message == ""
    assert (snapshot.nvml.driver_version, snapshot.nvml.cuda_version) == ("595.58.03", "13.2")
    assert (gpu.uuid, gpu.name, gpu.nvml_index) == (uuid_of(0), "NVIDIA H200", 0)
    assert (gpu.pci_bus_id, gpu.compute_capability) == ("000000FF:01:00.0", (9, 0))
    assert gpu.utilization_percent == 87
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_reserved_bytes) == (GIB, 140 * GIB, GIB // 2)
    assert gpu.memory_free_bytes == 140 * GIB - GIB - GIB // 2
    assert (gpu.temperature_c, gpu.power_w, gpu.power_limit_w) == (40, 100.5, 700)
    assert gpu.processes is not None
    assert [(process.pid, process.memory_used_bytes) for process in gpu.processes] == [(os.getpid(), 3 * GIB)]
    assert not gpu.lost


def test_snapshot_of_eight_gpus_has_cuda_order(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write(make_gpu_profile(index) for index in range(8))
    order = (3, 0, 1, 2, 7, 6, 5, 4)
    sampler = start_sampler(*QUICK, stub=nvml_stub, CUDA_VISIBLE_DEVICES="2", **nvml_stub.cuda_order(*order))
    gpus = sampler.wait_for(lambda s: bool(s.gpus) and s.gpus[0].cuda_index is not None).gpus
    assert [gpu.uuid for gpu in gpus] == [uuid_of(index) for index in range(8)]
    assert [gpu.utilization_percent for gpu in gpus] == [10 * index + 5 for index in range(8)]
    assert [gpu.cuda_index for gpu in gpus] == [order.index(index) for index in range(8)]
    assert sampler.next().topology == sampler.next().topology is not None


def test_gpu_lost_mid_run_keeps_its_row(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "lose"
    first = make_gpu_profile(0, lost_file=trigger, utilization=33, mig=1, instances=[make_instance_profile(0, 0)])
    nvml_stub.write([first, make_gpu_profile(1, wave=1)])
    sampler = start_sampler("--interval", "0.1", stub=nvml_stub)
    sampler.wait_for(has_gpus)
    before = time.time()
    trigger.touch()
    snapshot = sampler.wait_for(lambda s: s.gpus[0].lost)
    lost, instance, other = snapshot.gpus
    assert (instance.lost, instance.lost_since, instance.memory_used_bytes) == (True, lost.lost_since, GIB)
    assert lost.uuid == uuid_of(0)
    assert lost.utilization_percent == 33
    assert lost.memory_used_bytes == GIB
    assert lost.lost_since is not None
    assert before <= lost.lost_since <= snapshot.time
    assert not other.lost
    assert sampler.wait_for(lambda s: s.gpus[2].utilization_percent != other.utilization_percent).nvml.status == "ok"


def test_gpu_lost_later_is_reported(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, lost_after=3)])
    snapshot = start_sampler("--interval", "0.1", stub=nvml_stub).wait_for(lambda s: bool(s.gpus) and s.gpus[0].lost)
    assert snapshot.gpus[0].temperature_c == 40


def test_lost_gpu_is_found_again(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "lose"
    nvml_stub.write([make_gpu_profile(0, lost_file=trigger), make_gpu_profile(1)])
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    sampler.wait_for(has_gpus)
    first_reader = readers_of(sampler)[0].pid
    trigger.touch()
    sampler.wait_for(lambda s: s.gpus[0].lost)
    snapshot = sampler.wait_for(lambda s: any(reader.pid != first_reader for reader in readers_of(sampler)))
    assert [gpu.uuid for gpu in snapshot.gpus] == [uuid_of(0), uuid_of(1)]
    trigger.unlink()
    assert not sampler.wait_for(lambda s: not s.gpus[0].lost).gpus[0].lost_since


def test_gpu_lost_before_start_has_a_row(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "lose"
    trigger.touch()
    nvml_stub.write([make_gpu_profile(0), make_gpu_profile(1, lost_file=trigger), make_gpu_profile(2)])
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    gpus = sampler.wait_for(has_gpus).gpus
    assert [(gpu.nvml_index, gpu.lost, gpu.lost_since) for gpu in gpus] == [
        (0, False, None),
        (1, True, None),
        (2, False, None),
    ]
    assert len({gpu.uuid for gpu in gpus}) == 3
    trigger.unlink()
    assert [gpu.uuid for gpu in sampler.wait_for(lambda s: not any(gpu.lost for gpu in s.gpus)).gpus] == [
        uuid_of(index) for index in range(3)
    ]


def test_only_gpu_lost_is_reported(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "lose"
    trigger.touch()
    nvml_stub.write([make_gpu_profile(0, lost_file=trigger)])
    snapshot = start_sampler(*QUICK, stub=nvml_stub).wait_for(has_gpus)
    assert snapshot.nvml.status == "ok"
    assert [gpu.lost for gpu in snapshot.gpus] == [True]


def test_uncounted_lost_gpu_is_found_again(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "lose"
    both = [make_gpu_profile(0, lost_file=trigger), make_gpu_profile(1)]
    nvml_stub.write(both)
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    sampler.wait_for(has_gpus)
    nvml_stub.write([make_gpu_profile(1)])
    trigger.touch()
    snapshot = sampler.wait_for(lambda s: s.gpus[1].nvml_index == 0)  # by a reader that lists no other GPU
    assert [(gpu.uuid, gpu.lost) for gpu in snapshot.gpus] == [(uuid_of(0), True), (uuid_of(1), False)]
    trigger.unlink()
    nvml_stub.write(both)
    assert [gpu.uuid for gpu in sampler.wait_for(lambda s: not s.gpus[0].lost).gpus] == [uuid_of(0), uuid_of(1)]


def test_gpu_with_only_unknown_errors_is_lost(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    errors = dict.fromkeys((f"{quantity}_error" for quantity in ASKED), stubs.UNKNOWN)
    partial = {name: code for name, code in errors.items() if name != "temperature_error"}
    nvml_stub.write([make_gpu_profile(0, **errors), make_gpu_profile(1), make_gpu_profile(2, **partial)])
    gpus = start_sampler(*QUICK, stub=nvml_stub).wait_for(has_gpus).gpus
    assert [(gpu.lost, gpu.temperature_c) for gpu in gpus] == [(True, None), (False, 41), (False, 42)]


def test_unsupported_quantity_is_asked_once(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    refused = tmp_path / "refused"
    errors = {"power_error": stubs.NOT_SUPPORTED, "temperature_error": stubs.NOT_SUPPORTED}
    nvml_stub.write([make_gpu_profile(0, wave=1, **errors)], refused_file=refused)
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    values: set[float | None] = set()
    while len(values) < 4:  # four different readings of the utilization
        values.add(sampler.wait_for(has_gpus).gpus[0].utilization_percent)
    assert refused.stat().st_size == len(errors)


def test_gpu_without_memory_reports_none(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, total=0, used=0, reserved=0)])
    (gpu,) = start_sampler(*QUICK, stub=nvml_stub).wait_for(has_gpus).gpus
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_free_bytes) == (None, None, None)


def test_old_driver_uses_older_functions(old_nvml_stub: NvmlStub, start_sampler: Start) -> None:
    old_nvml_stub.write([make_gpu_profile(0, process=["4000001:1024"])])
    sampler = start_sampler(*QUICK, stub=old_nvml_stub, **old_nvml_stub.cuda_order(0))
    (gpu,) = sampler.wait_for(lambda s: bool(s.gpus) and s.gpus[0].cuda_index is not None).gpus
    assert gpu.memory_used_bytes == GIB + GIB // 2  # version 1 counts reserved memory as used
    assert gpu.memory_reserved_bytes is None
    assert gpu.throttled == ()
    assert gpu.processes is not None
    assert [process.pid for process in gpu.processes] == [4000001]


@pytest.mark.parametrize(
    ("code", "status", "remedy"),
    [
        (stubs.DRIVER_NOT_LOADED, "no_driver", "restart the computer"),
        (stubs.LIB_RM_VERSION_MISMATCH, "version_mismatch", "restart the computer"),
        (stubs.NO_PERMISSION, "no_permission", "/dev/nvidia"),
        (stubs.OPERATING_SYSTEM, "no_permission", "/dev/nvidia"),
        (stubs.FUNCTION_NOT_FOUND, "version_mismatch", "newer"),
        (stubs.UNKNOWN, "error", "nvidia-smi"),
    ],
)
def test_nvml_init_failure_has_a_remedy(
    nvml_stub: NvmlStub, start_sampler: Start, code: int, status: str, remedy: str
) -> None:
    nvml_stub.write([make_gpu_profile(0)], init=code)
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    nvml = sampler.wait_for(lambda s: s.nvml.status == status).nvml
    assert remedy in nvml.message
    nvml_stub.write([make_gpu_profile(0)])
    assert sampler.wait_for(lambda s: s.nvml.status == "ok").gpus  # the sampler retries automatically


def test_missing_library_is_reported(start_sampler: Start, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("this is no library, and hides any that is installed\n" * 10)
    sampler = start_sampler("--once", LD_LIBRARY_PATH=str(tmp_path))
    snapshot = sampler.next()
    assert snapshot.nvml.status == "no_library"
    assert "install the NVIDIA driver" in snapshot.nvml.message
    assert snapshot.gpus == ()


@pytest.mark.parametrize(
    ("source", "remedy"),
    [("def nvmlInit():\n    pass\n", "“pip uninstall pynvml"), ("raise ImportError", "missing: run “pip install")],
)
def test_foreign_pynvml_is_reported(start_sampler: Start, tmp_path: Path, source: str, remedy: str) -> None:
    (tmp_path / "pynvml.py").write_text(source)
    nvml = start_sampler("--once", PYTHONPATH=str(tmp_path)).next().nvml
    assert nvml.status == "wrong_module"
    assert remedy in nvml.message


def test_driver_without_gpus_is_reported(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([])
    nvml = start_sampler("--once", stub=nvml_stub).next().nvml
    assert nvml.status == "ok"
    assert "lists no GPU" in nvml.message


def test_denied_gpus_are_a_permission_problem(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, handle_error=stubs.NO_PERMISSION)])
    assert start_sampler("--once", stub=nvml_stub).next().nvml.status == "no_permission"
    nvml_stub.write([make_gpu_profile(0, handle_error=stubs.NO_PERMISSION), make_gpu_profile(1)])
    snapshot = start_sampler("--once", stub=nvml_stub).next()
    assert (snapshot.nvml.status, [gpu.uuid for gpu in snapshot.gpus]) == ("ok", [uuid_of(1)])


def test_first_snapshot_does_not_wait_for_nvml(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)], init_hang=1)
    sampler = start_sampler(*QUICK, "--first", "1.5", stub=nvml_stub)
    first = sampler.next()
    assert first.nvml.status == "not_answering"
    assert first.cpu.memory_total_bytes > 0
    reader = readers_of(sampler)[0]
    assert "is not answering" in sampler.wait_for(lambda s: "is not answering" in s.nvml.message).nvml.message
    sampler.wait_for(lambda s: not reader.is_running())
    nvml_stub.write([make_gpu_profile(0)])
    assert sampler.wait_for(has_gpus).nvml.status == "ok"


def test_rows_survive_an_nvml_hang(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "hang"
    nvml_stub.write([make_gpu_profile(0, wave=1), make_gpu_profile(1)], hang_file=trigger)
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    sampler.wait_for(has_gpus)
    reader = readers_of(sampler)[0]
    trigger.touch()
    snapshot = sampler.wait_for(lambda s: s.nvml.status == "not_answering")
    assert [gpu.uuid for gpu in snapshot.gpus] == [uuid_of(0), uuid_of(1)]
    assert snapshot.gpus[1].memory_used_bytes == 2 * GIB
    assert not any(gpu.lost for gpu in snapshot.gpus)
    sampler.wait_for(lambda s: not reader.is_running())
    assert sampler.next().cpu.core_load_percent
    trigger.unlink()
    frozen = snapshot.gpus[0].utilization_percent
    assert sampler.wait_for(lambda s: s.nvml.status == "ok" and s.gpus[0].utilization_percent != frozen).gpus


def test_nvml_crash_is_reported_and_survived(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "abort"
    nvml_stub.write([make_gpu_profile(0)], abort_file=trigger)
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    sampler.wait_for(has_gpus)
    trigger.touch()
    snapshot = sampler.wait_for(lambda s: s.nvml.status == "error")
    assert "SIGABRT" in snapshot.nvml.message
    assert [gpu.uuid for gpu in snapshot.gpus] == [uuid_of(0)]
    trigger.unlink()
    nvml_stub.write(init=stubs.DRIVER_NOT_LOADED)
    (gpu,) = sampler.wait_for(lambda s: s.nvml.status == "no_driver").gpus
    assert (gpu.uuid, gpu.lost) == (uuid_of(0), False)
    nvml_stub.write([make_gpu_profile(0)])
    sampler.wait_for(lambda s: s.nvml.status == "ok")
