"""Setups that the advisor tries for a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.advisor.advice.setups import Setup, device_counts, list_setups, list_smaller_setups
from engine.contract.advice import apply_candidate
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.system import paths
from tests.support.golden import check_section

SAMPLE = str(paths.sample_dataset())


def test_setups_include_all_strategies_or_refusals() -> None:
    catalogue = load_catalogue()
    requested = Job.from_fields(dataset=SAMPLE, devices=("cpu", "cpu"), strategy="ddp", learning_rate=0.3)
    setups = list_setups(requested, catalogue)
    assert len({setup.job for setup in setups}) == len(setups)
    assert [setup.job for setup in setups if setup.is_requested] == [requested]
    able = [setup for setup in setups if not setup.refusal]
    assert {setup.job.parallel.strategy for setup in able} == {
        "single",
        "ddp",
        "zero1",
        "fsdp",
        "model_parallel",
        "pipeline",
    }
    assert "CUDA GPUs only" in next(setup.refusal for setup in setups if setup.job.parallel.strategy == "dp")
    assert {setup.job.parallel.pipeline_schedule for setup in able} == {
        "gpipe",
        "1f1b",
        "interleaved_1f1b",
        "zb1p",
        "zbv",
    }
    assert all(setup.job.training.batch_size == 32 and setup.job.optimizer.learning_rate == 0.3 for setup in setups)
    assert all(apply_candidate(requested, setup.create_candidate(requested)) == setup.job for setup in able)


def test_setups_for_eight_gpus_keep_job_settings() -> None:
    gpus = tuple(f"GPU-{number}" for number in range(8))
    requested = Job.from_fields(
        dataset=SAMPLE, model="vit_b_16", devices=gpus, strategy="ddp", batch_size=64, precision="fp32"
    )
    able = [setup for setup in list_setups(requested, load_catalogue()) if not setup.refusal]
    assert 30 < len(able) < 200
    assert {len(setup.job.parallel.devices) for setup in able} == {1, 2, 4, 8}
    assert {setup.job.precision.name for setup in able} == {"fp32"}
    hybrid = [setup.job.parallel for setup in able if setup.job.parallel.strategy == "hsdp"]
    assert {(len(parallel.devices), parallel.replicas) for parallel in hybrid} == {(4, 2), (8, 2), (8, 4)}
    assert device_counts(6) == [1, 2, 4, 6]


GPUS = tuple(f"GPU-{number}" for number in range(4))
REQUESTS: dict[str, dict[str, Any]] = {
    "three CPU workers": {
        "devices": ("cpu",) * 3,
        "accumulation": 2,
        "activation_checkpointing": True,
        "precision": "auto",
    },
    "sharded": {"devices": GPUS, "strategy": "hsdp", "cpu_offload": True, "precision": "fp32", "batch_size": 64},
    "pipeline": {"devices": GPUS[:2], "strategy": "pipeline", "split_points": ("layer2.0.conv1",), "bucket_mib": 5.0},
    "single": {"devices": GPUS[:1], "precision": "fp32", "batch_size": 256, "image_size": 64},
    "fixed precision": {"devices": ("cpu",), "precision": "fp32"},
    "invalid": {"devices": ("cpu",) * 2, "strategy": "single", "precision": "fp16", "batch_size": 2},
}


def describe_setup(setup: Setup, requested: Job) -> str:
    """Describe a setup with its differences from the requested job, and with its flags."""
    candidate = setup.create_candidate(requested)
    flags = [name for name in ("is_requested", "saves_memory") if getattr(setup, name)]
    of_base = f" (varies {setup.base_name})" if setup.base_name else ""
    return f"{setup.name}{of_base}: {dict(candidate.changes)} {' '.join(flags)} {setup.refusal}".rstrip()


@pytest.mark.parametrize("name", REQUESTS)
def test_setups_equal_the_golden_file(name: str) -> None:
    catalogue = load_catalogue()
    job = Job.from_fields(**({"model": "resnet18", "image_size": 32} | REQUESTS[name]))
    requested = job.with_fields(strategy=job.resolved_strategy)
    setups = list_setups(requested, catalogue)
    smaller = list_smaller_setups(setups[0], requested, catalogue)
    lines = [describe_setup(setup, requested) for setup in setups]
    lines += ["Smaller:", *(describe_setup(setup, requested) for setup in smaller)]
    check_section(Path(__file__).with_name("golden_setups.txt"), name, "\n".join(lines))


@pytest.mark.parametrize(("batch_size", "largest"), [(64, 16), (4096, 64)])
def test_smaller_setups_offload_with_possible_accumulations(batch_size: int, largest: int) -> None:
    catalogue = load_catalogue()
    requested = Job.from_fields(
        model="resnet18", image_size=64, devices=GPUS, strategy="fsdp", batch_size=batch_size, accumulation=4
    )
    smaller = list_smaller_setups(list_setups(requested, catalogue)[0], requested, catalogue)
    offloaded = [setup.job for setup in smaller if setup.job.parallel.cpu_offload]
    assert max(job.training.accumulation for job in offloaded) == largest
    assert [job.training.accumulation for job in offloaded[:2]] == [4, 4]
