"""Devices and hosts on which a job in the form depends, and changes of them that require a new validation."""

from __future__ import annotations

import pytest

from gui.form.environment import JobEnvironment, list_device_texts
from tests.engine.checks.machines import driver, gpu, held_by, machine

HELD = held_by("python")


@pytest.mark.parametrize(
    ("before", "after", "is_validated"),
    [
        ({}, {"cuda_index": 1}, True),
        ({}, {"lost": True}, True),
        ({}, {"mig_enabled": True}, True),
        ({}, {"compute_mode": "prohibited"}, True),
        ({"compute_mode": "exclusive_process"}, {"processes": HELD}, True),
        ({}, {"processes": HELD}, False),
        ({}, {"memory_used_bytes": 5}, False),
    ],
)
def test_only_changes_that_affect_a_job_start_a_validation(
    before: dict[str, object], after: dict[str, object], is_validated: bool
) -> None:
    environment = JobEnvironment()
    assert environment.set_machine(machine(gpu(**before)))
    assert environment.set_machine(machine(gpu(**before | after))) == is_validated


def test_changed_hosts_start_a_validation() -> None:
    environment = JobEnvironment()
    changes = [({"ws1:cpu": "ws1 CPU"}, {}), ({"ws1:cpu": "ws1 CPU"}, {"ws1": "off"}), ({}, {"ws1": "off"})]
    assert [environment.set_hosts(*change) for change in (*changes, changes[-1])] == [True, True, True, False]


def test_facts_about_devices_are_complete_or_unknown() -> None:
    environment, total = JobEnvironment(), machine().cpu.memory_total_bytes
    small, large = gpu(0, memory_total_bytes=8), gpu(1, memory_total_bytes=16, name="B200")
    assert (environment.device_kinds(("cpu",)), environment.device_memory_bytes(("cpu",))) == (None, None)
    environment.set_machine(machine(small, large))
    assert environment.device_memory_bytes((large.uuid, small.uuid)) == 8
    assert environment.device_memory_bytes(("cpu",)) == total
    assert environment.device_memory_bytes((large.uuid, "GPU-gone")) is None
    assert environment.device_kinds((large.uuid, small.uuid)) == ("B200", small.name)
    assert environment.device_kinds((large.uuid, "GPU-gone")) is None
    devices = (large.uuid, "cpu", "cpu", "ws1:cpu", "ws1:cpu", "ws1:cpu", "ws2:cpu")
    texts = ["GPU 1", "CPU, 2 workers", "ws1 CPU, 3 workers", "ws2 CPU"]
    assert list_device_texts(devices, environment.device_names()) == texts


def test_changed_driver_starts_a_validation() -> None:
    environment = JobEnvironment()
    environment.set_machine(machine())
    assert environment.set_machine(machine(nvml=driver("1")))
