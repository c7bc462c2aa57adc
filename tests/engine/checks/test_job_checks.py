"""Problems that the checks find in complete jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.disk import RealDisk, model_file_sha256
from engine.checks.job_checks import problems
from engine.contract.catalogue import ModelEntry, load_catalogue
from engine.contract.dataset import DatasetReport, SplitReport
from engine.contract.devices import Gpu, Nvml, Snapshot
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem, errors
from engine.parallel.layout import choose_microbatches
from tests.engine.checks.machines import gpu, held_by, machine
from tests.support.consent import permit_model_file
from tests.support.golden import check_problems

A, B = "GPU-aaaa", "GPU-bbbb"
HERE = str(Path(__file__).parent)
GOLDEN = Path(__file__).with_name("golden_problems.txt")


TWO = machine(Gpu(uuid=A, name="one", nvml_index=0), Gpu(uuid=B, name="two", nvml_index=1))


@pytest.fixture
def good(tmp_path: Path) -> Job:
    return Job.from_fields(dataset=str(tmp_path), model="mnist_cnn")


def find_problems(job: Job, snapshot: Snapshot | None = TWO) -> list[Problem]:
    return problems(job, load_catalogue(), snapshot)


def test_valid_job_has_no_problems(good: Job) -> None:
    on_unet = {"task": "segmentation", "model": "unet"}
    for changes in (
        {}, {"precision": "bf16"}, on_unet | {"encoder": "tu-convnext_atto"}, {"freeze_epochs": 1, "weights_file": __file__},
        *({"strategy": strategy, "devices": ("cpu", "cpu")} for strategy in ("ddp", "pipeline")),
        *({"strategy": strategy, "devices": (A, B)} for strategy in ("dp", "ddp", "pipeline")),
    ):  # fmt: skip
        assert find_problems(good.with_fields(**changes)) == [], changes


def test_valid_job_may_use_models_of_another_task(good: Job) -> None:
    catalogue = load_catalogue()
    task = catalogue.task("classification")
    assert task is not None
    added = msgspec.structs.replace(task, id="grading", models="classification")
    broken = Problem("", "A plug-in can't be loaded.", "Update it.", "warning")
    catalogue = msgspec.structs.replace(catalogue, tasks=(*catalogue.tasks, added), problems=(broken,))
    assert problems(good.with_fields(task="grading"), catalogue, TWO) == [broken]


JOBS: list[tuple[dict[str, Any], str, str]] = [
    ({"dataset": ""}, "dataset", "error"),
    ({"dataset": "/nowhere"}, "dataset", "error"),
    ({"dataset": __file__}, "dataset", "error"),
    ({"task": "clasification"}, "task", "error"),
    ({"model": "mnist_cn"}, "model", "error"),
    ({"strategy": "dpp"}, "strategy", "error"),
    ({"best_by": "top7"}, "best_by", "error"),
    ({"loss": "dice"}, "loss", "error"),
    ({"devices": ()}, "devices", "error"),
    ({"devices": (A, "cpu"), "strategy": "ddp"}, "devices", "error"),
    ({"devices": (A, A), "strategy": "ddp"}, "devices", "error"),
    ({"devices": ("GPU-cccc",)}, "devices", "error"),
    ({"strategy": "single", "devices": ("cpu", "cpu")}, "strategy", "error"),
    ({"strategy": "ddp"}, "strategy", "error"),
    ({"strategy": "dp", "devices": ("cpu", "cpu")}, "strategy", "error"),
    ({"strategy": "ddp", "devices": ("cpu",) * 3, "batch_size": 2}, "batch_size", "error"),
    ({"strategy": "pipeline", "devices": ("cpu",) * 64}, "devices", "error"),
    ({"strategy": "pipeline", "devices": ("cpu",) * 2, "batch_size": 32, "microbatches": 5}, "microbatches", "error"),
    (
        {"strategy": "pipeline", "devices": ("cpu",) * 3, "microbatches": 2, "pipeline_schedule": "1f1b"},
        "microbatches",
        "error",
    ),
    (
        {"strategy": "pipeline", "devices": ("cpu",) * 2, "batch_size": 1, "pipeline_schedule": "1f1b"},
        "batch_size",
        "error",
    ),
    ({"precision": "fp16"}, "precision", "error"),
    ({"image_size": 8}, "image_size", "error"),
    ({"pretrained": True}, "pretrained", "error"),
    ({"weights_file": "/nowhere.pt"}, "weights_file", "error"),
    ({"model": "/nowhere.py"}, "model", "error"),
    ({"task": "custom"}, "model", "error"),
    ({"task": "segmentation"}, "model", "error"),
    ({"task": "segmentation", "model": "timm:resnet18"}, "model", "error"),
    ({"task": "segmentation", "model": "unet", "encoder": "resnet81"}, "encoder", "error"),
    ({"model": f"{HERE}/nowhere.py"}, "model", "error"),
    ({"model": f"{HERE}/machines.py"}, "model", "error"),
    ({"model": f"{HERE}/machines.py", "model_file_sha256": "0"}, "model", "error"),
    ({"weights_file": HERE}, "weights_file", "error"),
    ({"resume_from": HERE}, "resume_from", "error"),
    ({"strategy": "atuo"}, "strategy", "error"),
    ({"fold": "6/5"}, "fold", "error"),
    ({"model": "vgg11", "image_size": 64, "dropout": 0.2, "stochastic_depth": 0.0}, "stochastic_depth", "error"),
    ({"model": "resnet18", "image_size": 64, "dropout": 0.0}, "dropout", "error"),
    ({"freeze_epochs": 2}, "freeze_epochs", "warning"),
    ({"nesterov": True, "momentum": 0.0}, "nesterov", "error"),
    ({"nesterov": True, "optimizer": "adamw"}, "nesterov", "warning"),
    ({"optimizer": "lamb", "strategy": "fsdp", "devices": ("cpu", "cpu")}, "optimizer", "error"),
    ({"schedule": "step", "milestones": (0, 3)}, "milestones", "error"),
    ({"milestones": (2, 3)}, "milestones", "warning"),
    ({"schedule": "onecycle", "warmup_epochs": 1.0}, "warmup_epochs", "warning"),
    ({"schedule": "onecycle", "warmup_steps": 9}, "warmup_steps", "warning"),
    ({"warmup_epochs": 5.0}, "warmup_epochs", "warning"),
    ({"task": "point_segmentation", "augmentation": "medium"}, "augmentation", "warning"),
]


@pytest.mark.parametrize(("changes", "field", "severity"), JOBS)
def test_job_problems_name_the_field(good: Job, changes: dict[str, Any], field: str, severity: str) -> None:
    matching = [problem for problem in find_problems(good.with_fields(**changes)) if problem.field == field]
    assert [problem.severity for problem in matching] == [severity]
    assert matching[0].remedy


def test_texts_of_job_problems(good: Job) -> None:
    cases = {
        str(changes).replace("'cpu', " * 30, "…"): find_problems(good.with_fields(**changes)) for changes, _, _ in JOBS
    }
    check_problems(GOLDEN, "job checks", cases, Path(good.data.dataset))


def test_lost_gpu_is_a_problem(good: Job) -> None:
    lost = machine(Gpu(uuid=A, name="one", nvml_index=0, lost=True))
    assert [problem.field for problem in find_problems(good.with_fields(devices=(A,)), lost)] == ["devices"]


def test_lost_gpu_offers_unused_gpu(good: Job) -> None:
    first, lost, free = gpu(0), gpu(1, lost=True), gpu(6)
    others = (gpu(2, processes=held_by("python")), gpu(3, mig_enabled=True), gpu(4, cuda_index=None), gpu(5, lost=True))
    job = good.with_fields(devices=(first.uuid, lost.uuid), strategy="ddp")
    (problem,) = find_problems(job, machine(first, lost, *others, free))
    assert [choice.values for choice in problem.choices] == [{"devices": f"{first.uuid},{free.uuid}"}]
    (problem,) = find_problems(job, machine(first, lost, *others))
    assert problem.choices == ()


def test_unknown_gpu_is_explained_by_nvml(good: Job) -> None:
    without_driver = msgspec.structs.replace(TWO, gpus=(), nvml=Nvml("no_library", "Install a driver."))
    (problem,) = find_problems(good.with_fields(devices=(A,)), without_driver)
    assert problem.remedy == "Install a driver."
    elsewhere = find_problems(good.with_fields(devices=("other:GPU-cccc",)))
    assert "GPU-cccc" not in str(elsewhere), "only this machine's GPUs are known"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes in folders")
def test_model_file_must_be_a_regular_file(good: Job, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net.py")
    (problem,) = find_problems(good.with_fields(model=str(tmp_path / "net.py")))
    assert "not a regular file" in problem.message


def test_unknown_machine_is_not_checked(good: Job) -> None:
    assert find_problems(good.with_fields(devices=("GPU-cccc",)), None) == []


class UnreadDisk(RealDisk):
    def kind(self, path: str) -> None:  # type: ignore[override]
        return None

    def model_file(self, path: str) -> None:  # type: ignore[override]
        return None


def test_files_that_are_not_read_yet_are_not_checked(good: Job) -> None:
    for changes in (
        {"dataset": "/away", "weights_file": "/away/a.pt", "freeze_epochs": 1},
        {"model": "/away/a.py", "model_file_sha256": "0" * 64},
        {"resume_from": "/away/last.pt"},
    ):
        assert problems(good.with_fields(**changes), load_catalogue(), TWO, disk=UnreadDisk()) == [], changes


def test_changed_model_file_needs_new_consent(good: Job, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("one")
    with_file = good.with_fields(model=str(file))
    assert [problem.field for problem in find_problems(with_file)] == ["model"]
    with_hash = with_file.with_fields(model_file_sha256=model_file_sha256(str(file)))
    assert [problem.field for problem in find_problems(with_hash)] == ["model"], "a hash in a job is no consent"
    permitted = with_file.with_fields(model_file_sha256=permit_model_file(file))
    assert find_problems(permitted) == []
    file.write_text("two")
    assert [problem.field for problem in find_problems(permitted)] == ["model"]


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


@pytest.mark.parametrize(
    ("images", "chosen", "warns"),
    [(31, {"batch_size"}, True), (32, {"batch_size"}, False), (0, {"batch_size"}, False), (31, (), False), (31, None, False)],
)  # fmt: skip
def test_chosen_batch_size_larger_than_the_training_split_is_a_warning(
    good: Job, images: int, chosen: Any, warns: bool
) -> None:
    splits = (SplitReport("val", {"a": 1}), SplitReport("train", {"a": images}))
    report = DatasetReport(folder=good.data.dataset, format="imagefolder", splits=splits)
    found = problems(good.with_fields(batch_size=32), load_catalogue(), TWO, report, chosen=chosen)
    warnings = [(each.severity, each.choices[0].values) for each in found if each.field == "batch_size"]
    assert warnings == ([("warning", {"batch_size": images})] if warns else [])


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
            matching = [problem for problem in find_problems(job) if problem.field == "best_by"]
            assert bool(matching) == (known and not right)
            assert all("Did you mean “error”?" in problem.remedy for problem in matching)


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
    for problem in find_problems(job):
        assert problem.field in FIELDS
        assert problem.message.endswith((".", "?"))
        assert problem.remedy


@pytest.mark.parametrize(
    "model", [each for each in load_catalogue().models if each.image_size], ids=lambda model: model.id
)
def test_image_size_that_the_model_rejects_is_a_problem(model: ModelEntry, good: Job) -> None:
    sizes = (model.image_size, model.image_size + model.image_size_step // 2, model.min_image_size - 1)
    jobs = [good.with_fields(task=model.task, model=model.id, image_size=size) for size in sizes]
    is_refused = ["image_size" in [problem.field for problem in errors(find_problems(job))] for job in jobs]
    assert is_refused == [False, model.image_size_step > 1, True]
