"""Facts outside of the form, whose changes start a new validation."""

from __future__ import annotations

import pytest

from gui.form.environment import JobEnvironment
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


def test_changed_driver_starts_a_validation() -> None:
    environment = JobEnvironment()
    environment.set_machine(machine())
    assert environment.set_machine(machine(nvml=driver("1")))
