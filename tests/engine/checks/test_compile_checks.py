"""What cannot be had of how a model computes: told at the field, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.problems import Problem

GPUS = ("GPU-a", "GPU-b")
CPUS = ("cpu", "cpu")


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The C++ compiler of the machine, as far as a look at the PATH tells."""
    program = tmp_path / "programs" / "g++"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("CXX", "g++")
    return program


def found(tmp_path: Path, **fields: Any) -> list[Problem]:
    return problems(Job.from_fields(**({"dataset": str(tmp_path), "model": "resnet18"} | fields)), load_catalogue())


@pytest.mark.parametrize(
    "fields",
    [
        {"compile": "on", "memory_format": "channels_last", "cpu_threads": 4},
        {"compile": "on", "strategy": "ddp", "devices": GPUS},
        {"compile": "on", "strategy": "ddp", "devices": CPUS, "cpu_threads": 1, "memory_format": "contiguous"},
        {"strategy": "pipeline", "devices": CPUS, "cpu_threads": 2, "memory_format": "contiguous", "compile": "off"},
        {"activation_checkpointing": True, "compile": "auto"},
    ],
)
def test_that_what_can_be_had_is_let_pass(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert found(tmp_path, **fields) == []


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (
            {"compile": "on", "strategy": "pipeline", "devices": CPUS, "pipeline_schedule": "zb1p", "microbatches": 4},
            "compile",
            "no effect under Pipeline. Set it to auto, or choose Single device or DistributedDataParallel",
        ),
        ({"memory_format": "channels_last", "strategy": "fsdp", "devices": CPUS}, "memory_format", "no effect under"),
        ({"compile": "on", "strategy": "dp", "devices": GPUS}, "compile", "no effect under DataParallel"),
        ({"cpu_threads": 2, "devices": GPUS[:1]}, "cpu_threads", "no effect on GPUs. Leave it empty"),
    ],
)
def test_that_what_has_no_effect_is_a_warning(tmp_path: Path, fields: dict[str, Any], field: str, words: str) -> None:
    (problem,) = found(tmp_path, **fields)
    assert (problem.field, problem.severity) == (field, "warning")
    assert words in str(problem)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"activation_checkpointing": True}, "turn off activation checkpointing"),
        ({"strategy": "ddp", "devices": CPUS, "static_graph": True}, "turn off Static graph"),
    ],
)
def test_that_what_does_not_go_with_compiling_is_told(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    told = [problem for problem in found(tmp_path, compile="on", **fields) if problem.field == "compile"]
    assert [problem.severity for problem in told] == ["error"]
    assert words in str(told[0])


def test_that_compiling_for_the_cpu_needs_a_compiler(tmp_path: Path, compiler: Path) -> None:
    compiler.unlink()
    (problem,) = found(tmp_path, compile="on")
    assert (problem.field, problem.severity) == ("compile", "error")
    assert "no g++ on the PATH" in str(problem)
    assert found(tmp_path, compile="on", devices=GPUS[:1]) == []
    assert found(tmp_path, compile="auto") == []
