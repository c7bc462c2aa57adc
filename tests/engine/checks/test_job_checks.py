"""Problems that the checks find in complete jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.disk import model_file_sha256
from engine.checks.job_checks import problems
from engine.contract.catalogue import ModelEntry, load_catalogue
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


def test_valid_job_has_no_problems(good: Job) -> None:
    assert found(good) == []
    for strategy in ("ddp", "pipeline"):
        assert found(good.with_fields(strategy=strategy, devices=("cpu", "cpu"))) == []
    for strategy in ("dp", "ddp", "pipeline"):
        assert found(good.with_fields(strategy=strategy, devices=(A, B))) == []


def test_valid_job_may_use_models_of_another_task(good: Job) -> None:
    catalogue = load_catalogue()
    task = catalogue.task("classification")
    assert task is not None
    added = msgspec.structs.replace(task, id="grading", models="classification")
    catalogue = msgspec.structs.replace(catalogue, tasks=(*catalogue.tasks, added))
    assert problems(good.with_fields(task="grading"), catalogue, TWO) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dataset": ""}, "dataset"),
        ({"dataset": "/nowhere"}, "dataset"),
        ({"dataset": __file__}, "dataset"),
        ({"task": "clasification"}, "task"),
        ({"model": "mnist_cn"}, "model"),
        ({"strategy": "dpp"}, "strategy"),
        ({"best_by": "top7"}, "best_by"),
        ({"loss": "dice"}, "loss"),
        ({"devices": ()}, "devices"),
        ({"devices": (A, "cpu"), "strategy": "ddp"}, "devices"),
        ({"devices": (A, A), "strategy": "ddp"}, "devices"),
        ({"devices": ("GPU-cccc",)}, "devices"),
        ({"strategy": "single", "devices": ("cpu", "cpu")}, "strategy"),
        ({"strategy": "ddp"}, "strategy"),
        ({"strategy": "dp", "devices": ("cpu", "cpu")}, "strategy"),
        ({"strategy": "ddp", "devices": ("cpu",) * 3, "batch_size": 2}, "batch_size"),
        ({"strategy": "pipeline", "devices": ("cpu",) * 64}, "devices"),
        ({"strategy": "pipeline", "devices": ("cpu",) * 2, "batch_size": 32, "microbatches": 5}, "microbatches"),
        (
            {"strategy": "pipeline", "devices": ("cpu",) * 3, "microbatches": 2, "pipeline_schedule": "1f1b"},
            "microbatches",
        ),
        ({"strategy": "pipeline", "devices": ("cpu",) * 2, "batch_size": 1, "pipeline_schedule": "1f1b"}, "batch_size"),
        ({"precision": "fp16"}, "precision"),
        ({"image_size": 8}, "image_size"),
        ({"pretrained": True}, "pretrained"),
        ({"weights_file": "/nowhere.pt"}, "weights_file"),
        ({"model": "/nowhere.py"}, "model"),
    ],
)
def test_job_problems_name_the_field(good: Job, changes: dict[str, Any], field: str) -> None:
    problem = next(problem for problem in found(good.with_fields(**changes)) if problem.field == field)
    assert problem.remedy
    assert problem.severity == "error"


def test_lost_gpu_is_a_problem(good: Job) -> None:
    lost = machine(Gpu(uuid=A, name="one", nvml_index=0, lost=True))
    assert [problem.field for problem in found(good.with_fields(devices=(A,)), lost)] == ["devices"]


def test_lost_gpu_offers_unused_gpu(good: Job) -> None:
    gpus = Gpu(uuid=A, name="one", nvml_index=0, lost=True), Gpu(uuid="GPU-b", name="two", nvml_index=1)
    (problem,) = found(good.with_fields(devices=(A,)), machine(*gpus))
    assert [choice.values for choice in problem.choices] == [{"devices": "GPU-b"}]


def test_unknown_machine_is_not_checked(good: Job) -> None:
    assert found(good.with_fields(devices=("GPU-cccc",)), None) == []


def test_changed_model_file_needs_new_consent(good: Job, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("one")
    with_file = good.with_fields(model=str(file))
    assert [problem.field for problem in found(with_file)] == ["model"]
    with_hash = with_file.with_fields(model_file_sha256=model_file_sha256(str(file)))
    assert [problem.field for problem in found(with_hash)] == ["model"], "a hash in a job is no consent"
    permitted = with_file.with_fields(model_file_sha256=agreed(file))
    assert found(permitted) == []
    file.write_text("two")
    assert [problem.field for problem in found(permitted)] == ["model"]


@pytest.mark.parametrize(("classes", "is_constant"), [(3, True), (12, False)])
def test_best_checkpoint_needs_a_metric_that_varies(good: Job, classes: int, is_constant: bool) -> None:
    names = tuple(map(str, range(classes)))
    report = DatasetReport(folder=good.data.dataset, format="imagefolder", classes=names)
    of_job = problems(good.with_fields(best_by="top5"), load_catalogue(), TWO, report)
    assert ("best_by" in [problem.field for problem in of_job]) == is_constant


def test_dataset_problems_include_those_of_the_report(good: Job) -> None:
    problem = Problem("dataset", "One class only.", "Add another.")
    report = DatasetReport(folder=good.data.dataset, format="imagefolder", problems=(problem,))
    assert problems(good, load_catalogue(), TWO, report) == [problem]


def test_class_count_problem_of_line_tasks(good: Job) -> None:
    def dataset_problems(task: str, report: DatasetReport) -> list[str]:
        job = good.with_fields(task=task, model=known.task(task).model)  # type: ignore[union-attr]
        return [str(problem) for problem in problems(job, known, TWO, report) if problem.field == "dataset"]

    known = load_catalogue()
    three = DatasetReport(folder=good.data.dataset, format="masks", classes=("a", "b", "c"))
    assert len(dataset_problems("road_extraction", three)) == 1
    assert dataset_problems("segmentation", three) == []
    assert dataset_problems("road_extraction", msgspec.structs.replace(three, classes=("a", "b"))) == []
    wrong = Problem("dataset", "No mask can be read.", "Give others.")
    assert dataset_problems("road_extraction", msgspec.structs.replace(three, problems=(wrong,))) == [str(wrong)]
    assert dataset_problems("road_extraction", DatasetReport(folder=good.data.dataset, format="")) == []


def test_best_by_is_checked_against_literal_custom_metrics(good: Job, tmp_path: Path) -> None:
    file = tmp_path / "task.py"
    row = 'Measure("error", "Error", False)'
    for text, known in (
        (f"class A(CustomTask):\n    metrics = ({row},)", True),
        ("class A(CustomTask): metrics = made()", False),
    ):
        file.write_text(text)
        for best_by, right in (("error", True), ("loss", True), ("eror", False)):
            job = good.with_fields(task="custom", model=str(file), best_by=best_by)
            matching = [problem for problem in found(job) if problem.field == "best_by"]
            assert bool(matching) == (known and not right)
            assert all("Did you mean “error”?" in problem.remedy for problem in matching)


def test_frozen_random_backbone_is_a_warning(good: Job) -> None:
    warned = found(good.with_fields(freeze_epochs=2))
    assert [problem.severity for problem in warned] == ["warning"]
    assert errors(warned) == []


@given(st.integers(1, 300), st.integers(1, 12), st.sampled_from(["gpipe", "1f1b"]))
def test_microbatches_must_divide_the_batch(batch: int, stages: int, schedule: str) -> None:
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
def test_any_job_problem_has_field_and_remedy(job: Job) -> None:
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
def test_optimizer_problems_of_conflicting_fields(good: Job, fields: dict[str, Any], field: str, severity: str) -> None:
    assert not any(problem.field == field for problem in found(good))
    matching = [problem for problem in found(good.with_fields(**fields)) if problem.field == field]
    assert [problem.severity for problem in matching] == [severity]


@pytest.mark.parametrize(
    "model", [each for each in load_catalogue().models if each.image_size], ids=lambda model: model.id
)
def test_image_size_that_the_model_rejects_is_a_problem(model: ModelEntry, good: Job) -> None:
    sizes = (model.image_size, model.image_size + model.image_size_step // 2, model.min_image_size - 1)
    jobs = [good.with_fields(task=model.task, model=model.id, image_size=size) for size in sizes]
    is_refused = ["image_size" in [problem.field for problem in errors(found(job))] for job in jobs]
    assert is_refused == [False, model.image_size_step > 1, True]


def test_dropout_of_a_model_without_it_is_a_problem(good: Job) -> None:
    for model, wrong in (
        ("efficientnet_b0", []),
        ("vgg11", ["stochastic_depth"]),
        ("resnet18", ["dropout", "stochastic_depth"]),
    ):
        job = good.with_fields(model=model, image_size=64, dropout=0.2, stochastic_depth=0.1)
        assert [problem.field for problem in errors(found(job))] == wrong
