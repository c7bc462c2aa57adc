"""Checks of a conversion before it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.checks import conversion_checks
from engine.checks.conversion_checks import conversion_problems, may_accept_any_size, out_problems
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.conversion import OnnxOptions
from engine.contract.job import Job

CATALOGUE = load_catalogue()


def fields(job: Job, **options: object) -> list[str]:
    found = conversion_problems(job, "onnx", OnnxOptions(**options), CATALOGUE)  # type: ignore[arg-type]
    return [problem.field for problem in found if problem.severity == "error"]


def test_conversion_problems_accepts_every_listed_model() -> None:
    for model in CATALOGUE.models:
        job = Job.from_fields(task=model.task, model=model.id)
        assert not conversion_problems(job, "onnx", OnnxOptions(), CATALOGUE)
        assert not conversion_problems(job, "safetensors", OnnxOptions(), CATALOGUE)


def test_conversion_problems_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_checks, "PACKAGES", ("onnx", "no_such_package"))
    job = Job.from_fields(task="detection", model="fasterrcnn")
    assert fields(job, dynamic_size=True, int8=True, opset=12) == ["to", "opset", "dynamic_size", "int8"]
    problem = conversion_problems(job, "onnx", OnnxOptions(), CATALOGUE)[0]
    assert problem.message.endswith("no_such_package.")
    assert problem.remedy == f'Run: {sys.executable} -m pip install "footplate[convert]"'


@pytest.mark.parametrize(("opset", "is_valid"), [(17, False), (18, True), (23, True), (24, False)])
def test_conversion_problems_limit_the_opset(opset: int, is_valid: bool) -> None:
    found = fields(Job.from_fields(model="resnet18"), opset=opset)
    assert ("opset" not in found) is is_valid


def test_takes_any_size_of_dense_convolutional_models() -> None:
    assert may_accept_any_size(Job.from_fields(task="segmentation", model="unet"), CATALOGUE)
    assert may_accept_any_size(Job.from_fields(task="segmentation", model="own.py"), CATALOGUE)
    assert not may_accept_any_size(Job.from_fields(task="road_extraction", model="hourglass_mtl"), CATALOGUE)
    assert not may_accept_any_size(Job.from_fields(task="classification", model="vit_b_16"), CATALOGUE)


def test_conversion_of_a_model_file_is_a_warning() -> None:
    for target in ("safetensors", "onnx"):
        *_, problem = conversion_problems(Job.from_fields(model="own.py"), target, OnnxOptions(), CATALOGUE)
        assert (problem.field, problem.severity) == ("model", "warning")


def test_out_problems_requires_a_new_or_empty_target(tmp_path: Path) -> None:
    assert not out_problems(str(tmp_path / "new" / "folder"), packed=False)
    assert not out_problems(str(tmp_path), packed=False)
    (tmp_path / "other.txt").write_text("of somebody")
    (problem,) = out_problems(str(tmp_path), packed=False)
    assert problem.field == "out"
    assert "files" in problem.message
    (problem,) = out_problems(str(tmp_path / "other.txt"), packed=False)
    assert problem.field == "out"
    assert "exists" in problem.message
    (problem,) = out_problems(str(tmp_path / "model"), packed=True)
    assert ".zip" in problem.remedy
    (tmp_path / "a.zip").mkdir()
    (problem,) = out_problems(str(tmp_path / "a.zip"), packed=True)
    assert "exists" in problem.message
    (problem,) = out_problems(str(tmp_path / "other.txt" / "folder"), packed=False)
    assert problem.field == "out"


def test_out_problems_of_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _folder, mode: not mode & os.W_OK)  # root may write anywhere
    (problem,) = out_problems(str(tmp_path / "new"), packed=False)
    assert (problem.field, str(tmp_path) in problem.message) == ("out", True)
