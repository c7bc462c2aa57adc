"""Sleeping GPUs, which must not be woken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import pytest

from engine.contract.devices import Gpu, NvmlReading, SnapshotRequest
from tests.engine.gpus.conftest import ROOT
from tests.support.nvml_stub import GIB, NvmlStub, make_gpu_profile, make_instance_profile, uuid_of

READER = """
import json, sys
from pathlib import Path
from engine.gpus import reader
from engine.gpus.nvml import driver_files, nvml_reader
nvml_reader.READ_INTERVALS_S |= json.loads(sys.argv[6])
driver_files.SYSFS_PCI, driver_files.DRIVER_GPUS, driver_files.IDLE_PAUSE_S = Path(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5])
reader.main()
"""
UNKNOWN_YET = "GPU-????????-????-????-????-????????????"

Read = Callable[[Callable[[NvmlReading], bool]], NvmlReading]


class Laptop:
    """Machine with one GPU, whose power state a test sets with `set_status`.

    An idle GPU isn't read for `rest_s` seconds, so that it can fall asleep. `intervals_s` overrides the intervals at
    which groups of quantities are read.
    """

    def __init__(self, folder: Path) -> None:
        self.rest_s = 3600.0
        self.intervals_s: dict[str, float] = {}
        self.profile: dict[str, object] = {}
        self.pci, self.driver = folder / "pci", folder / "driver"
        self.requests: IO[bytes] | None = None  # input of the process that reads NVML
        self.status = self.pci / "00ff:01:00.0" / "power" / "runtime_status"
        self.status.parent.mkdir(parents=True)
        (self.driver / "00ff:01:00.0").mkdir(parents=True)

    def set_status(self, status: str) -> None:
        new = self.status.with_name("new")
        new.write_text(f"{status}\n")
        new.replace(self.status)

    def set_uuid(self, uuid: str) -> None:
        lines = f"Model: \t\t NVIDIA GeForce RTX 4070\nGPU UUID: \t {uuid}\n"
        (self.driver / "00ff:01:00.0" / "information").write_text(lines)

    def set_runtime_d3(self, status: str) -> None:
        lines = f"Runtime D3 status:          {status}\nVideo Memory:               Active\n"
        (self.driver / "00ff:01:00.0" / "power").write_text(lines)


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    laptop = Laptop(tmp_path)
    laptop.set_uuid(uuid_of(0))
    return laptop


@pytest.fixture
def read(nvml_stub: NvmlStub, laptop: Laptop, tmp_path: Path) -> Iterator[Read]:
    """Return a function that waits for a reading that meets a condition.

    Its first call starts the process that reads NVML.
    """
    (tmp_path / "calls").write_text("")
    readers: list[subprocess.Popen[bytes]] = []

    def until(condition: Callable[[NvmlReading], bool]) -> NvmlReading:
        if not readers:
            nvml_stub.write([make_gpu_profile(0, **laptop.profile)], calls_file=tmp_path / "calls")
            readers.append(
                subprocess.Popen(
                    [sys.executable, "-c", READER, "0.05", "60", str(laptop.pci), str(laptop.driver),
                     str(laptop.rest_s), json.dumps(laptop.intervals_s)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | nvml_stub.environment, cwd=ROOT,
                )
            )  # fmt: skip
            laptop.requests = readers[0].stdin
        assert readers[0].stdout is not None
        while True:
            reading = msgspec.json.decode(readers[0].stdout.readline(), type=NvmlReading)
            assert reading.nvml.status == "ok"
            if condition(reading):
                return reading

    yield until
    for reader in readers:
        reader.kill()
        reader.communicate()


def is_asleep(reading: NvmlReading) -> bool:
    return bool(reading.gpus) and reading.gpus[0].asleep


def is_awake(reading: NvmlReading) -> bool:
    return bool(reading.gpus) and not reading.gpus[0].asleep


def test_sleeping_gpu_is_named_without_queries(laptop: Laptop, read: Read, tmp_path: Path) -> None:
    laptop.set_status("suspended")
    for _ in range(5):
        reading = read(is_asleep)
    assert reading.gpus == (
        Gpu(uuid=uuid_of(0), name="NVIDIA GeForce RTX 4070", nvml_index=0, pci_bus_id="00ff:01:00.0", asleep=True),
    )
    assert (tmp_path / "calls").read_text() == ""
    laptop.set_status("active")
    gpu = read(is_awake).gpus[0]
    assert (gpu.uuid, gpu.utilization_percent, gpu.name) == (uuid_of(0), 5, "NVIDIA H200")


def test_gpu_falling_asleep_gets_no_more_queries(laptop: Laptop, read: Read, tmp_path: Path) -> None:
    laptop.profile = {"mig": 1, "instances": [make_instance_profile(0, 0)]}
    laptop.set_status("active")
    gpu, _instance = read(is_awake).gpus
    assert gpu.temperature_c == 40
    laptop.set_status("suspended")
    read(is_asleep)
    (tmp_path / "calls").write_text("")
    for _ in range(5):
        (gpu,) = read(is_asleep).gpus
    assert (tmp_path / "calls").read_text() == ""
    assert (gpu.uuid, gpu.temperature_c, gpu.utilization_percent, gpu.processes) == (uuid_of(0), None, None, None)
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (140 * GIB, None)
    assert not gpu.lost
    laptop.set_status("active")
    assert read(is_awake).gpus[0].temperature_c == 40


def test_woken_gpu_is_read_at_once(laptop: Laptop, read: Read) -> None:
    laptop.profile = {"utilization": 0}
    laptop.set_runtime_d3("Enabled (fine-grained)")
    laptop.set_status("active")
    read(is_awake)
    laptop.set_status("suspended")
    read(is_asleep)
    laptop.set_status("active")
    assert read(is_awake).gpus[0].temperature_c == 40


def test_sleeping_gpu_without_uuid_is_listed_when_it_wakes(laptop: Laptop, read: Read, tmp_path: Path) -> None:
    laptop.set_uuid(UNKNOWN_YET)
    laptop.set_status("suspended")
    reading = read(lambda reading: True)
    assert reading.gpus == ()
    assert "asleep" in reading.nvml.message
    assert (tmp_path / "calls").read_text() == ""
    laptop.set_status("active")
    assert read(is_awake).gpus[0].uuid == uuid_of(0)


def test_idle_laptop_gpu_is_skipped_for_a_while(laptop: Laptop, read: Read, tmp_path: Path) -> None:
    laptop.profile = {"utilization": 0}
    laptop.rest_s = 0.5
    laptop.set_runtime_d3("Enabled (fine-grained)")
    laptop.set_status("active")
    calls = tmp_path / "calls"
    sizes: list[int] = []
    for _ in range(40):  # for more than two seconds
        assert read(is_awake).gpus[0].temperature_c == 40
        sizes.append(calls.stat().st_size)
    is_queried = np.diff(sizes) > 0
    assert is_queried[5:].any()
    assert is_queried.mean() < 0.5
    queries = calls.read_text()
    assert queries.count(" mig\n") >= queries.count(" utilization\n") - 1
    assert queries.count(" processes\n") >= 3 * (queries.count(" utilization\n") - 1)


def test_idle_laptop_gpu_is_read_for_another_panel(laptop: Laptop, read: Read) -> None:
    laptop.profile = {"utilization": 0}
    laptop.set_runtime_d3("Enabled (fine-grained)")
    laptop.set_status("active")
    assert read(is_awake).gpus[0].sm_clock_mhz == 1755
    assert laptop.requests is not None
    laptop.requests.write(msgspec.json.encode(SnapshotRequest(details=False)) + b"\n")
    laptop.requests.flush()
    assert any(read(is_awake).gpus[0].sm_clock_mhz is None for _ in range(60))


@pytest.mark.parametrize(
    ("runtime_d3", "profile"),
    [
        ("Enabled (fine-grained)", {"utilization": 3}),
        ("Enabled (fine-grained)", {"utilization": 0, "process": "4000001:1024"}),
        ("Disabled by default", {"utilization": 0}),
        ("Not supported", {"utilization": 0}),
    ],
)
def test_busy_or_desktop_gpu_is_always_read(
    laptop: Laptop, read: Read, tmp_path: Path, runtime_d3: str, profile: dict[str, object]
) -> None:
    laptop.profile = profile
    laptop.intervals_s = {"processes": 0.0}
    laptop.set_runtime_d3(runtime_d3)
    laptop.set_status("active")
    for _ in range(3):
        read(is_awake)
    (tmp_path / "calls").write_text("")
    for _ in range(5):
        read(is_awake)
    calls = (tmp_path / "calls").read_text()
    assert calls.count(" utilization\n") >= 4
    assert calls.count(" processes\n") >= 3 * 4  # of three kinds
