"""What a strategy cannot do with a job's devices, batch, model and options: told at the field, with the remedy."""

from __future__ import annotations

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

A, B, C, D = "GPU-a", "GPU-b", "GPU-c", "GPU-d"
CATALOGUE = load_catalogue()
CUTS = CATALOGUE.model("resnet18").split_points  # type: ignore[union-attr]


def tied_and_without_blocks() -> ModelEntry:
    """A model that no strategy is made for, which the catalogue has none of."""
    return ModelEntry(
        id="odd",
        title="Odd",
        task="classification",
        family="Odd",
        parameters=1,
        image_size=32,
        min_image_size=8,
        uncuttable="it is one piece",
        tied=("head.weight", "stem.weight"),
    )


ODD = msgspec.structs.replace(CATALOGUE, models=(*CATALOGUE.models, tied_and_without_blocks()))


def found(tmp_path: Path, **fields: Any) -> list[Problem]:
    return problems(Job.from_fields(**({"dataset": str(tmp_path), "model": "resnet18"} | fields)), ODD)


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
        {"strategy": "model_parallel", "devices": cpus(2), "cuts": (CUTS[4],)},
        {"strategy": "pipeline", "devices": (A, B), "precision": "fp16"},
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "interleaved_1f1b", "stages_per_device": 3},
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "zb1p", "microbatches": 4},
        {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "zbv", "cuts": CUTS[2:5]},
        {"strategy": "fsdp", "devices": (A, B), "cpu_offload": True, "shard_precision": "bf16"},
        {"strategy": "ddp_pipeline", "devices": cpus(4), "accumulation": 2},
        {"strategy": "hsdp", "devices": cpus(6), "replicas": 3},
        {"strategy": "zero1", "devices": cpus(2), "optimizer": "lamb"},
        {"strategy": "tp", "devices": cpus(2), "model": "vit_b_16", "batch_size": 1},
        {"strategy": "fsdp_tp", "devices": (A, B, C, D), "model": "swin_t", "shard_precision": "bf16", "batch_size": 2},
    ],
)
def test_that_what_every_strategy_can_do_is_let_pass(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert found(tmp_path, **fields) == []


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        # Devices and replicas
        ({"strategy": "hsdp", "devices": cpus(3)}, "strategy", "needs at least 4 devices; 3 are chosen"),
        ({"strategy": "hsdp", "devices": cpus(5)}, "replicas", "5 devices can't be divided among 2 equal replicas"),
        ({"strategy": "ddp_pipeline", "devices": cpus(6), "replicas": 4}, "replicas", "Set 2 or 3 replicas"),
        ({"strategy": "ddp_pipeline", "devices": cpus(4), "replicas": 4}, "replicas", "have 1 each"),
        ({"strategy": "ddp", "devices": (A, A)}, "devices", "NCCL allows one worker per GPU"),
        # The batch
        ({"strategy": "single", "batch_size": 4, "accumulation": 8}, "accumulation", "Set 4 or less"),
        (
            {"strategy": "ddp", "devices": cpus(3), "batch_size": 10, "accumulation": 4},
            "accumulation",
            "among 3 devices and then into 4 parts",
        ),
        ({"strategy": "fsdp", "devices": cpus(4), "batch_size": 3}, "batch_size", "Set 4 or more"),
        (
            {"strategy": "ddp_pipeline", "devices": cpus(4), "batch_size": 30, "accumulation": 4},
            "batch_size",
            "which 2 replicas with 4 parts each do not allow. Set 24 or 32",
        ),
        (
            {"strategy": "model_parallel", "devices": cpus(2), "batch_size": 3, "accumulation": 5},
            "batch_size",
            "which 5 parts do not allow. Set 5, or change Gradient accumulation",
        ),
        (
            {"strategy": "ddp_pipeline", "devices": cpus(4), "batch_size": 24, "microbatches": 5},
            "microbatches",
            "A part of 12 images of the batch of 24 can't be divided into 5 equal microbatches",
        ),
        (
            {"strategy": "pipeline", "devices": cpus(4), "batch_size": 12, "microbatches": 3,
             "pipeline_schedule": "1f1b"},
            "microbatches",
            "Set 4 or more, choose GPipe",
        ),
        (
            {"strategy": "pipeline", "devices": cpus(2), "batch_size": 20, "microbatches": 5,
             "pipeline_schedule": "zb1p"},
            "microbatches",
            "can't divide 5 microbatches into 2 equal rounds on 2 devices",
        ),
        # The cuts
        ({"strategy": "pipeline", "devices": cpus(2), "model": "odd"}, "strategy", "it is one piece"),
        ({"strategy": "model_parallel", "devices": cpus(99), "batch_size": 99}, "devices", "at most "),
        (
            {"strategy": "ddp_pipeline", "devices": cpus(40), "batch_size": 400},
            "devices",
            "each replica has 20 devices",
        ),
        (
            {"strategy": "pipeline", "devices": cpus(5), "pipeline_schedule": "interleaved_1f1b",
             "stages_per_device": 4},
            "stages_per_device",
            "puts 4 stages on each, so 20. Set 2 or less",
        ),
        (
            {"strategy": "pipeline", "devices": cpus(7), "pipeline_schedule": "zbv"},
            "pipeline_schedule",
            "ZBV puts 2 stages on each, so 14. Choose another pipeline schedule",
        ),
        ({"strategy": "pipeline", "devices": cpus(2), "cuts": CUTS[:3]}, "cuts", "would make 4 stages; 2 are needed"),
        ({"strategy": "pipeline", "devices": cpus(2), "cuts": ("maxpol",)}, "cuts", "Did you mean “maxpool”?"),
        ({"strategy": "pipeline", "devices": cpus(3), "cuts": (CUTS[1],) * 2}, "cuts", "listed more than once"),
        (
            {"strategy": "pipeline", "devices": cpus(3), "cuts": (CUTS[2], CUTS[1])},
            "cuts",
            f"List them as {CUTS[1]}, {CUTS[2]}",
        ),
        # The options
        ({"model": "odd", "activation_checkpointing": True}, "activation_checkpointing", "no repeated blocks"),
        (
            {"strategy": "pipeline", "devices": cpus(2), "pipeline_schedule": "zbv", "activation_checkpointing": True},
            "activation_checkpointing",
            "choose 1F1B",
        ),
        ({"strategy": "fsdp", "devices": cpus(2), "model": "odd"}, "strategy", "share their memory (head.weight"),
        ({"strategy": "hsdp", "devices": cpus(4), "model": "odd"}, "strategy", "can't divide among devices"),
        ({"strategy": "tp", "devices": cpus(2)}, "strategy", "ResNet-18 has no layers that Tensor parallel can divide"),
        (
            {"strategy": "ddp_tp", "devices": cpus(4), "model": "vit_b_16", "batch_size": 1},
            "batch_size",
            "among 2 replicas. Set 2 or more",
        ),
        (
            {"strategy": "tp", "devices": cpus(2), "model": "vit_b_16", "optimizer": "lamb"},
            "optimizer",
            "only a part of them",
        ),
        ({"strategy": "ddp", "devices": cpus(2), "sync_batchnorm": True}, "sync_batchnorm", "GPUs only"),
        ({"strategy": "fsdp", "devices": cpus(2), "cpu_offload": True}, "cpu_offload", "main memory already"),
        (
            {"strategy": "fsdp", "devices": (A, B), "shard_precision": "bf16", "precision": "fp16"},
            "shard_precision",
            "Autocast to fp16 has no effect",
        ),
        ({"precision": "fp16"}, "precision", "needs a GPU"),
        ({"resume_from": "/nowhere/last.pt"}, "resume_from", "There is no file /nowhere/last.pt"),
    ],
)  # fmt: skip
def test_that_what_cannot_be_is_told_at_its_field_with_the_remedy(
    tmp_path: Path, fields: dict[str, Any], field: str, words: str
) -> None:
    told = errors(found(tmp_path, **fields))
    assert [problem.field for problem in told] == [field], told
    assert words in str(told[0])
    assert told[0].remedy


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (
            {"strategy": "ddp", "devices": cpus(2), "microbatches": 4},
            "microbatches",
            "Microbatches has no effect under DistributedDataParallel. Leave it empty, or choose Pipeline or",
        ),
        ({"sync_batchnorm": True}, "sync_batchnorm", "has no effect under Single device. Turn it off"),
        (
            {"bucket_mib": 4.0},
            "bucket_mib",
            "Set it to 25, or choose DistributedDataParallel or DDP, sharded optimizer (ZeRO-1).",
        ),
        ({"balance": "speed"}, "balance", "Set it to equal, or choose"),
        ({"replicas": 3}, "replicas", "has no effect"),
        (
            {"strategy": "pipeline", "devices": cpus(2), "stages_per_device": 2},
            "stages_per_device",
            "no effect while Pipeline schedule is gpipe. Leave it empty, or set Pipeline schedule to interleaved_1f1b.",
        ),
        (
            {"strategy": "ddp", "devices": (A, B), "sync_batchnorm": True, "model": "vgg11", "image_size": 64},
            "sync_batchnorm",
            "has no BatchNorm",
        ),
    ],
)
def test_that_an_option_that_changes_nothing_is_a_warning_at_its_field(
    tmp_path: Path, fields: dict[str, Any], field: str, words: str
) -> None:
    (problem,) = found(tmp_path, **fields)
    assert (problem.field, problem.severity) == (field, "warning")
    assert words in str(problem)


def test_that_a_static_graph_of_a_model_file_is_the_users_to_answer_for(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("")
    told = found(tmp_path, strategy="ddp", devices=cpus(2), model=str(file), static_graph=True)
    assert [problem.severity for problem in told if problem.field == "static_graph"] == ["warning"]


def test_that_a_model_file_is_not_judged_by_what_only_its_run_knows(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("")
    fields = {"model": str(file), "devices": cpus(3), "activation_checkpointing": True, "cuts": ("one", "two")}
    assert {problem.field for problem in found(tmp_path, strategy="pipeline", **fields)} == {"model"}
    fields["cuts"] = ("one", "one")
    assert {problem.field for problem in found(tmp_path, strategy="pipeline", **fields)} == {"model", "cuts"}


def test_that_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    told = found(
        tmp_path,
        strategy="pipeline",
        devices=cpus(3),
        batch_size=32,
        microbatches=5,
        cuts=("nowhere",),
        precision="fp16",
        resume_from="/nowhere.pt",
        balance="speed",
    )
    assert {problem.field for problem in told} == {"microbatches", "cuts", "precision", "resume_from", "balance"}


STRATEGY_FIELDS = [field.name for field in FIELDS.values() if field.group == "parallel"]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "devices": st.integers(0, 9).map(cpus) | st.sampled_from([(A, B), (A, B, C, D), (A, A)]),
    "batch_size": st.integers(1, 70),
    "accumulation": st.integers(1, 9),
    "replicas": st.integers(2, 6),
    "pipeline_schedule": st.sampled_from(FIELDS["pipeline_schedule"].choices),
    "microbatches": st.none() | st.integers(1, 20),
    "stages_per_device": st.none() | st.integers(2, 8),
    "cuts": st.lists(st.sampled_from([*CUTS[:4], "nowhere"]), max_size=4).map(tuple),
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
def test_that_every_problem_of_any_job_names_a_field_and_a_remedy(values: dict[str, Any]) -> None:
    told = problems(Job.from_fields(**values), ODD)
    for problem in told:
        assert problem.field in FIELDS
        assert problem.message.endswith((".", "?"))
        assert problem.remedy
    assert len({str(problem) for problem in told}) == len(told)
