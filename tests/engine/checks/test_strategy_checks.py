"""Problems of a strategy with the devices, batch, model and options of a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.job_checks import problems
from engine.contract.catalogue import ModelEntry, load_catalogue
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem, errors
from tests.support.golden import check_problems

A, B, C, D = "GPU-a", "GPU-b", "GPU-c", "GPU-d"
GOLDEN = Path(__file__).with_name("golden_problems.txt")
CATALOGUE = load_catalogue()
SPLIT_POINTS = CATALOGUE.model("resnet18").possible_split_points  # type: ignore[union-attr]


def make_unsupported_model() -> ModelEntry:
    """Return a model that no multi-device strategy supports."""
    return ModelEntry(
        id="odd",
        title="Odd",
        task="classification",
        family="Odd",
        parameters=1,
        image_size=32,
        min_image_size=8,
        unsplittable_reason="it is one piece",
        tied=("head.weight", "stem.weight"),
    )


TIED = msgspec.structs.replace(make_unsupported_model(), id="tied", tensor_parallel=True)
ODD = msgspec.structs.replace(CATALOGUE, models=(*CATALOGUE.models, make_unsupported_model(), TIED))


def find_problems(tmp_path: Path, **fields: Any) -> list[Problem]:
    return problems(Job.from_fields(**({"dataset": str(tmp_path), "model": "resnet18"} | fields)), ODD)


@pytest.mark.parametrize("strategy", [entry.id for entry in CATALOGUE.strategies])
def test_job_without_devices_has_one_problem(tmp_path: Path, strategy: str) -> None:
    fields = [
        problem.field for problem in errors(find_problems(tmp_path, strategy=strategy, devices=(), model="vit_b_16"))
    ]
    assert [field for field in fields if field in ("devices", "strategy")] == ["devices"]


def cpus(count: int) -> tuple[str, ...]:
    return ("cpu",) * count


@pytest.mark.parametrize(
    "fields",
    [
        {
            "strategy": "single",
            "accumulation": 4,
            "clip_norm": 1.0,
            "ema_decay": 0.99,
            "activation_checkpointing": True,
        },
        {"strategy": "dp", "devices": (A, B), "accumulation": 2, "precision": "fp16"},
        {"strategy": "ddp", "devices": cpus(3), "balance": "speed", "bucket_mib": 1.0, "gradient_compression": "bf16"},
        {"strategy": "ddp", "devices": (A, B), "sync_batchnorm": True, "static_graph": True},
        {"strategy": "model_parallel", "devices": cpus(2), "split_points": (SPLIT_POINTS[4],)},
        {"strategy": "model_parallel", "devices": cpus(len(SPLIT_POINTS) + 1)},
        {"strategy": "pipeline", "devices": (A, B), "precision": "fp16"},
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "interleaved_1f1b", "stages_per_device": 3},
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "zb1p", "microbatches": 4},
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "zbv", "split_points": SPLIT_POINTS[2:5]},
        {"strategy": "fsdp", "devices": (A, B), "cpu_offload": True, "shard_precision": "bf16"},
        {"strategy": "ddp_pipeline", "devices": cpus(4), "accumulation": 2},
        {"strategy": "hsdp", "devices": cpus(6), "replicas": 3},
        {"strategy": "pipeline", "devices": cpus(2), "model": "mnist_cnn", "activation_checkpointing": True},
        {"strategy": "zero1", "devices": cpus(2), "optimizer": "lamb"},
        {"strategy": "tp", "devices": cpus(2), "model": "vit_b_16", "batch_size": 1},
        {"strategy": "fsdp_tp", "devices": (A, B, C, D), "model": "swin_t", "shard_precision": "bf16", "batch_size": 2},
    ],
)
def test_strategies_accept_valid_jobs(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert find_problems(tmp_path, **fields) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    # Devices and replicas
    ({"strategy": "hsdp", "devices": cpus(3)}, "strategy"),
    ({"strategy": "ddp", "devices": cpus(1)}, "strategy"),
    ({"strategy": "ddp", "devices": (A,)}, "strategy"),
    ({"strategy": "single", "devices": cpus(2)}, "strategy"),
    ({"strategy": "hsdp", "devices": cpus(12), "replicas": 5}, "replicas"),
    ({"strategy": "hsdp", "devices": cpus(5)}, "replicas"),
    ({"strategy": "ddp_pipeline", "devices": cpus(6), "replicas": 4}, "replicas"),
    ({"strategy": "ddp_pipeline", "devices": cpus(4), "replicas": 4}, "replicas"),
    ({"strategy": "ddp", "devices": (A, A)}, "devices"),
    # The batch
    ({"strategy": "single", "batch_size": 4, "accumulation": 8}, "accumulation"),
    (
        {"strategy": "ddp", "devices": cpus(3), "batch_size": 10, "accumulation": 4}, "accumulation"),
    ({"strategy": "fsdp", "devices": cpus(4), "batch_size": 3}, "batch_size"),
    (
        {"strategy": "ddp_pipeline", "devices": cpus(4), "batch_size": 30, "accumulation": 4}, "batch_size"),
    (
        {"strategy": "model_parallel", "devices": cpus(2), "batch_size": 3, "accumulation": 5}, "batch_size"),
    (
        {"strategy": "ddp_pipeline", "devices": cpus(8), "batch_size": 12, "accumulation": 2,
         "pipeline_schedule": "1f1b"}, "batch_size"),
    (
        {"strategy": "ddp_pipeline", "devices": cpus(4), "batch_size": 24, "microbatches": 5}, "microbatches"),
    (
        {"strategy": "pipeline", "devices": cpus(4), "batch_size": 12, "microbatches": 3,
         "pipeline_schedule": "1f1b"}, "microbatches"),
    (
        {"strategy": "pipeline", "devices": cpus(2), "batch_size": 20, "microbatches": 5,
         "pipeline_schedule": "zb1p"}, "microbatches"),
    (
        {"strategy": "pipeline", "devices": cpus(2), "batch_size": 12, "microbatches": 7, "image_size": 32}, "microbatches"),
    (
        {"strategy": "ddp_pipeline", "devices": cpus(4), "batch_size": 4, "microbatches": 2, "image_size": 32}, "batch_size"),
    # The split points
    ({"strategy": "pipeline", "devices": cpus(2), "model": "odd"}, "strategy"),
    ({"strategy": "model_parallel", "devices": cpus(99), "batch_size": 99}, "devices"),
    (
        {"strategy": "ddp_pipeline", "devices": cpus(40), "batch_size": 400}, "devices"),
    (
        {"strategy": "pipeline", "devices": cpus(5), "pipeline_schedule": "interleaved_1f1b",
         "stages_per_device": 4}, "stages_per_device"),
    (
        {"strategy": "pipeline", "devices": cpus(7), "pipeline_schedule": "interleaved_1f1b",
         "stages_per_device": 2}, "stages_per_device"),
    (
        {"strategy": "pipeline", "devices": cpus(7), "pipeline_schedule": "zbv"}, "pipeline_schedule"),
    ({"strategy": "pipeline", "devices": cpus(2), "split_points": SPLIT_POINTS[:3]}, "split_points"),
    ({"strategy": "pipeline", "devices": cpus(2), "split_points": ("maxpol",)}, "split_points"),
    ({"strategy": "pipeline", "devices": cpus(3), "split_points": (SPLIT_POINTS[1],) * 2}, "split_points"),
    (
        {"strategy": "pipeline", "devices": cpus(3), "split_points": (SPLIT_POINTS[2], SPLIT_POINTS[1])}, "split_points"),
    # The options
    ({"model": "odd", "activation_checkpointing": True}, "activation_checkpointing"),
    (
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "zbv", "activation_checkpointing": True}, "activation_checkpointing"),
    ({"strategy": "fsdp", "devices": cpus(2), "model": "odd"}, "strategy"),
    ({"strategy": "hsdp", "devices": cpus(4), "model": "odd"}, "strategy"),
    ({"strategy": "tp", "devices": cpus(2)}, "strategy"),
    ({"strategy": "tp", "devices": cpus(2), "model": "tied"}, "strategy"),
    (
        {"strategy": "ddp_tp", "devices": cpus(4), "model": "vit_b_16", "batch_size": 1}, "batch_size"),
    (
        {"strategy": "tp", "devices": cpus(2), "model": "vit_b_16", "optimizer": "lamb"}, "optimizer"),
    ({"strategy": "ddp", "devices": cpus(2), "sync_batchnorm": True}, "sync_batchnorm"),
    ({"strategy": "fsdp", "devices": cpus(2), "cpu_offload": True}, "cpu_offload"),
    (
        {"strategy": "fsdp", "devices": (A, B), "shard_precision": "bf16", "precision": "fp16"}, "shard_precision"),
    ({"precision": "fp16"}, "precision"),
    ({"resume_from": "/nowhere/last.pt"}, "resume_from"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field"), REFUSED)
def test_strategy_problems_name_field_and_remedy(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    (wrong,) = errors(find_problems(tmp_path, **fields))
    assert (wrong.field, bool(wrong.remedy)) == (field, True)
    offered = re.match(r"Set (\d+(?: or \d+)*)", wrong.remedy)
    for number in offered[1].split(" or ") if offered else ():
        left = errors(find_problems(tmp_path, **fields | {field: int(number)}))
        assert field not in {problem.field for problem in left}


IDLE: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "ddp", "devices": cpus(2), "microbatches": 4}, "microbatches"),
    ({"sync_batchnorm": True}, "sync_batchnorm"),
    ({"bucket_mib": 4.0}, "bucket_mib"),
    ({"balance": "speed"}, "balance"),
    ({"replicas": 3}, "replicas"),
    ({"strategy": "pipeline", "devices": cpus(2), "stages_per_device": 2}, "stages_per_device"),
    (
        {"strategy": "ddp", "devices": (A, B), "sync_batchnorm": True, "model": "vgg11", "image_size": 64},
        "sync_batchnorm",
    ),
    (
        {"strategy": "ddp", "devices": cpus(2), "activation_checkpointing": True, "pipeline_schedule": "zb1p"},
        "pipeline_schedule",
    ),
]


@pytest.mark.parametrize(("fields", "field"), IDLE)
def test_option_without_effect_is_a_warning(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    (problem,) = find_problems(tmp_path, **fields)
    assert (problem.field, problem.severity) == (field, "warning")


def test_model_file_is_not_checked_for_split_points(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("")
    fields = {"model": str(file), "devices": cpus(3), "activation_checkpointing": True, "split_points": ("one", "two")}
    assert {problem.field for problem in find_problems(tmp_path, strategy="pipeline", **fields)} == {"model"}
    fields["split_points"] = ("one", "one")
    assert {problem.field for problem in find_problems(tmp_path, strategy="pipeline", **fields)} == {
        "model",
        "split_points",
    }


def test_strategy_problems_are_reported_together(tmp_path: Path) -> None:
    reported = find_problems(
        tmp_path,
        strategy="pipeline",
        devices=cpus(3),
        batch_size=32,
        microbatches=5,
        split_points=("nowhere",),
        precision="fp16",
        resume_from="/nowhere.pt",
        balance="speed",
    )
    fields = ["balance", "microbatches", "precision", "resume_from", "split_points"]
    assert sorted({problem.field for problem in reported}) == fields


def test_texts_of_strategy_problems(tmp_path: Path) -> None:
    cases = {
        str(fields).replace("'cpu', " * 30, "…"): find_problems(tmp_path, **fields) for fields, _ in (*REFUSED, *IDLE)
    }
    points = (SPLIT_POINTS[2], SPLIT_POINTS[1], SPLIT_POINTS[1], "nowhere")
    cases[f"{points}"] = find_problems(
        tmp_path, strategy="pipeline", devices=cpus(5), batch_size=40, split_points=points
    )
    file = tmp_path / "net.py"
    file.write_text("")
    for strategy in ("ddp", "fsdp"):
        fields = {"strategy": strategy, "devices": cpus(2), "model": str(file), "static_graph": True}
        cases[f"static graph of a model file under {strategy}"] = find_problems(tmp_path, **fields)
    check_problems(GOLDEN, "strategy checks", cases, tmp_path)


STRATEGY_FIELDS = [field.name for field in FIELDS.values() if field.group == "parallel"]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "devices": st.integers(0, 9).map(cpus) | st.sampled_from([(A, B), (A, B, C, D), (A, A)]),
    "batch_size": st.integers(1, 70),
    "accumulation": st.integers(1, 9),
    "replicas": st.integers(2, 6),
    "pipeline_schedule": st.sampled_from(FIELDS["pipeline_schedule"].choices),
    "microbatches": st.none() | st.integers(1, 20),
    "stages_per_device": st.none() | st.integers(2, 8),
    "split_points": st.lists(st.sampled_from([*SPLIT_POINTS[:4], "nowhere"]), max_size=4).map(tuple),
    "model": st.sampled_from(["resnet18", "odd", "mnist_cnn"]),
    "precision": st.sampled_from(FIELDS["precision"].choices),
    "strategy": st.sampled_from([strategy.id for strategy in CATALOGUE.strategies]),
    "compile": st.sampled_from(FIELDS["compile"].choices),
    "memory_format": st.sampled_from(FIELDS["memory_format"].choices),
    "cpu_threads": st.none() | st.integers(1, 8),
} | {
    name: st.booleans() if FIELDS[name].kind == "bool" else st.sampled_from(FIELDS[name].choices)
    for name in STRATEGY_FIELDS
    if FIELDS[name].kind in ("bool", "choice")
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_any_strategy_problem_has_field_and_remedy(values: dict[str, Any]) -> None:
    reported = problems(Job.from_fields(**values), ODD)
    for problem in reported:
        assert problem.field in FIELDS
        assert problem.message.endswith((".", "?"))
        assert problem.remedy
    assert len({str(problem) for problem in reported}) == len(reported)


@pytest.mark.parametrize("devices", [("cpu",), ("cpu", "cpu")])
def test_automatic_strategy_trains_every_model(devices: tuple[str, ...]) -> None:
    catalogue = load_catalogue()
    for model in catalogue.models:
        task = next(task for task in catalogue.tasks if (task.models or task.id) == model.task)
        job = Job.from_fields(task=task.id, model=model.id, devices=devices)
        assert "strategy" not in {problem.field for problem in problems(job, catalogue)}, model.id


def test_conflicting_strategy_offers_the_automatic_one() -> None:
    job = Job.from_fields(devices=("cpu", "cpu"), strategy="single")
    (problem,) = [problem for problem in problems(job, load_catalogue()) if problem.field == "strategy"]
    repaired = job.with_fields(**problem.choices[0].values)
    assert repaired.resolved_strategy == "ddp"
    assert "strategy" not in {problem.field for problem in problems(repaired, load_catalogue())}
