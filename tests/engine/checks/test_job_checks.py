"""Whether a job can run here: every reason why not, at its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.disk import model_file_sha256
from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.devices import Cpu, Gpu, Nvml, Snapshot
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem, errors
from engine.parallel.layout import choose_microbatches
from tests.support.consent import agreed

A, B = "GPU-aaaa", "GPU-bbbb"


def machine(*gpus: Gpu) -> Snapshot:
    cpu = Cpu(name="c", core_load_percent=(0.0,), load_percent=0.0, memory_used_bytes=0, memory_total_bytes=1)
    return Snapshot(time=0.0, host="h", nvml=Nvml("ok"), gpus=gpus, cpu=cpu)


TWO = machine(Gpu(uuid=A, name="one", nvml_index=0), Gpu(uuid=B, name="two", nvml_index=1))


@pytest.fixture
def good(tmp_path: Path) -> Job:
    return Job.from_fields(dataset=str(tmp_path), model="mnist_cnn")


def found(job: Job, snapshot: Snapshot | None = TWO) -> list[Problem]:
    return problems(job, load_catalogue(), snapshot)


def test_that_a_good_job_has_no_problems(good: Job) -> None:
    assert found(good) == []
    for strategy in ("ddp", "pipeline"):
        assert found(good.with_fields(strategy=strategy, devices=("cpu", "cpu"))) == []
    for strategy in ("dp", "ddp", "pipeline"):
        assert found(good.with_fields(strategy=strategy, devices=(A, B))) == []


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"dataset": ""}, "dataset", "No dataset folder is chosen"),
        ({"dataset": "/nowhere"}, "dataset", "There is no folder /nowhere"),
        ({"dataset": __file__}, "dataset", "is a file"),
        ({"task": "clasification"}, "task", "Did you mean “classification”?"),
        ({"model": "mnist_cn"}, "model", "Did you mean “mnist_cnn”?"),
        ({"strategy": "dpp"}, "strategy", "Did you mean"),
        ({"best_by": "top7"}, "best_by", "not a metric"),
        ({"loss": "dice"}, "loss", "Choose cross_entropy or bce."),
        ({"devices": ()}, "devices", "No device"),
        ({"devices": (A, "cpu"), "strategy": "ddp"}, "devices", "either GPUs or the CPU"),
        ({"devices": (A, A), "strategy": "ddp"}, "devices", "more than once"),
        ({"devices": ("GPU-cccc",)}, "devices", "no GPU GPU-cccc"),
        ({"devices": ("cpu", "cpu")}, "strategy", "uses one device"),
        ({"strategy": "ddp"}, "strategy", "at least 2 devices"),
        ({"strategy": "dp", "devices": ("cpu", "cpu")}, "strategy", "CUDA GPUs only"),
        ({"strategy": "ddp", "devices": ("cpu",) * 3, "batch_size": 2}, "batch_size", "among 3 devices"),
        ({"strategy": "pipeline", "devices": ("cpu",) * 64}, "devices", "at most "),
        (
            {"strategy": "pipeline", "devices": ("cpu",) * 2, "batch_size": 32, "microbatches": 5},
            "microbatches",
            "equal microbatches",
        ),
        (
            {"strategy": "pipeline", "devices": ("cpu",) * 3, "microbatches": 2, "pipeline_schedule": "1f1b"},
            "microbatches",
            "at least as many",
        ),
        (
            {"strategy": "pipeline", "devices": ("cpu",) * 2, "batch_size": 1, "pipeline_schedule": "1f1b"},
            "batch_size",
            "no divisor",
        ),
        ({"precision": "fp16"}, "precision", "needs a GPU"),
        ({"image_size": 8}, "image_size", "at least"),
        ({"pretrained": True}, "pretrained", "no known pretrained weights"),
        ({"weights_file": "/nowhere.pt"}, "weights_file", "no file"),
        ({"model": "/nowhere.py"}, "model", "can't be read"),
    ],
)
def test_that_what_cannot_run_is_told_at_its_field(good: Job, changes: dict[str, Any], field: str, words: str) -> None:
    problem = next(problem for problem in found(good.with_fields(**changes)) if problem.field == field)
    assert words in str(problem)
    assert problem.remedy
    assert problem.severity == "error"


def test_that_a_lost_gpu_is_not_offered(good: Job) -> None:
    lost = machine(Gpu(uuid=A, name="one", nvml_index=0, lost=True))
    assert "has been lost" in str(found(good.with_fields(devices=(A,)), lost)[0])


def test_that_the_machine_is_judged_only_where_it_is_known(good: Job) -> None:
    assert found(good.with_fields(devices=("GPU-cccc",)), None) == []


def test_that_consent_to_a_model_file_ends_when_it_changes(good: Job, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("one")
    asked = good.with_fields(model=str(file))
    assert "not allowed to run yet" in str(found(asked)[0])
    copied = asked.with_fields(model_file_sha256=model_file_sha256(str(file)))
    assert "not allowed to run yet" in str(found(copied)[0]), "what a job says is not the user's word"
    allowed = asked.with_fields(model_file_sha256=agreed(file))
    assert found(allowed) == []
    file.write_text("two")
    assert "It has changed" in str(found(allowed)[0])


def test_that_the_datasets_own_problems_are_among_them(good: Job) -> None:
    problem = Problem("dataset", "One class only.", "Add another.")
    report = DatasetReport(folder=good.data.dataset, format="imagefolder", problems=(problem,))
    assert problems(good, load_catalogue(), TWO, report) == [problem]


def test_that_masks_of_more_classes_than_a_task_tells_apart_are_told_at_the_folder(good: Job) -> None:
    def told(task: str, report: DatasetReport) -> list[str]:
        job = good.with_fields(task=task, model=known.task(task).model)  # type: ignore[union-attr]
        return [str(problem) for problem in problems(job, known, TWO, report) if problem.field == "dataset"]

    known = load_catalogue()
    three = DatasetReport(folder=good.data.dataset, format="masks", classes=("a", "b", "c"))
    (text,) = told("road_extraction", three)
    assert "The masks have 3 classes; the task Roads and lines distinguishes only lines and background." in text
    assert "ignore a third, or choose the task Semantic segmentation" in text
    assert told("segmentation", three) == []
    assert told("road_extraction", msgspec.structs.replace(three, classes=("a", "b"))) == []
    wrong = Problem("dataset", "No mask can be read.", "Give others.")
    assert told("road_extraction", msgspec.structs.replace(three, problems=(wrong,))) == [str(wrong)]
    assert told("road_extraction", DatasetReport(folder=good.data.dataset, format="")) == []


def test_that_the_measures_of_a_task_of_ones_own_are_judged_where_its_file_writes_them_out(
    good: Job, tmp_path: Path
) -> None:
    file = tmp_path / "task.py"
    row = 'Measure("error", "Error", False)'
    for text, known in (
        (f"class A(CustomTask):\n    metrics = ({row},)", True),
        ("class A(CustomTask): metrics = made()", False),
    ):
        file.write_text(text)
        for best_by, right in (("error", True), ("loss", True), ("eror", False)):
            job = good.with_fields(task="custom", model=str(file), best_by=best_by)
            told = [problem for problem in found(job) if problem.field == "best_by"]
            assert bool(told) == (known and not right)
            assert all("Did you mean “error”?" in problem.remedy for problem in told)


def test_that_a_frozen_random_backbone_is_a_warning_that_keeps_nothing_off(good: Job) -> None:
    warned = found(good.with_fields(freeze_epochs=2))
    assert [problem.severity for problem in warned] == ["warning"]
    assert errors(warned) == []


@given(st.integers(1, 300), st.integers(1, 12), st.sampled_from(["gpipe", "1f1b"]))
def test_that_the_chosen_microbatches_divide_the_batch(batch: int, stages: int, schedule: str) -> None:
    chosen = choose_microbatches(batch, stages, schedule)
    if chosen is None:
        assert schedule == "1f1b"
        assert batch < stages
    else:
        assert batch % chosen == 0
        assert schedule == "gpipe" or chosen >= stages


@given(
    st.builds(
        Job.from_fields,
        strategy=st.sampled_from(["single", "dp", "ddp", "pipeline", "none"]),
        devices=st.lists(st.sampled_from(["cpu", A, B, "GPU-c", ""]), max_size=5).map(tuple),
        batch_size=st.integers(1, 40),
        microbatches=st.none() | st.integers(1, 50),
        pipeline_schedule=st.sampled_from(["gpipe", "1f1b"]),
        model=st.sampled_from(["mnist_cnn", "resnet18", "x.py", ""]),
    )
)
def test_that_every_problem_names_a_field_and_a_remedy(job: Job) -> None:
    for problem in found(job):
        assert problem.field in FIELDS
        assert problem.message.endswith((".", "?"))
        assert problem.remedy


@pytest.mark.parametrize(
    ("fields", "field", "severity"),
    [
        ({"nesterov": True, "momentum": 0.0}, "nesterov", "error"),
        ({"nesterov": True, "optimizer": "adamw"}, "nesterov", "warning"),
        ({"optimizer": "lamb", "strategy": "fsdp", "devices": ("cpu", "cpu")}, "optimizer", "error"),
        ({"schedule": "step", "milestones": (0, 3)}, "milestones", "error"),
        ({"milestones": (2, 3)}, "milestones", "warning"),
        ({"schedule": "onecycle", "warmup_epochs": 1.0}, "warmup_epochs", "warning"),
        ({"schedule": "onecycle", "warmup_steps": 9}, "warmup_steps", "warning"),
        ({"warmup_epochs": 5.0}, "warmup_epochs", "warning"),
    ],
)
def test_that_an_optimizer_and_a_schedule_that_do_not_go_together_are_told(
    good: Job, fields: dict[str, Any], field: str, severity: str
) -> None:
    assert not any(problem.field == field for problem in found(good))
    told = [problem for problem in found(good.with_fields(**fields)) if problem.field == field]
    assert [problem.severity for problem in told] == [severity]


def test_that_dropout_of_a_model_that_has_none_is_told_beforehand(good: Job) -> None:
    for model, wrong in (
        ("efficientnet_b0", []),
        ("vgg11", ["stochastic_depth"]),
        ("resnet18", ["dropout", "stochastic_depth"]),
    ):
        job = good.with_fields(model=model, image_size=64, dropout=0.2, stochastic_depth=0.1)
        assert [problem.field for problem in errors(found(job))] == wrong
