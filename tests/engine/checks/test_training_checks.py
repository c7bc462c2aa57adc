"""Problems with torch.compile, memory format and threads."""

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
    """Create a fake C++ compiler, make its folder the only one on the PATH, and return the compiler's path."""
    program = tmp_path / "programs" / "g++"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("CXX", "g++")
    return program


def find_problems(tmp_path: Path, **fields: Any) -> list[Problem]:
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
def test_speed_problems_accepts_supported_settings(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert find_problems(tmp_path, **fields) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (
            {"compile": "on", "strategy": "pipeline", "devices": CPUS, "pipeline_schedule": "zb1p", "microbatches": 4},
            "compile",
        ),
        ({"memory_format": "channels_last", "strategy": "fsdp", "devices": CPUS}, "memory_format"),
        ({"compile": "on", "strategy": "dp", "devices": GPUS}, "compile"),
        ({"cpu_threads": 2, "devices": GPUS[:1]}, "cpu_threads"),
    ],
)
def test_job_checks_warn_of_compile_without_effect(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    (problem,) = find_problems(tmp_path, **fields)
    assert (problem.field, problem.severity) == (field, "warning")


@pytest.mark.parametrize(
    ("fields", "severities"),
    [
        ({"activation_checkpointing": True}, ["error"]),
        ({"strategy": "ddp", "devices": CPUS, "static_graph": True}, ["error"]),
        ({"strategy": "single", "static_graph": True}, []),  # has no effect
    ],
)
def test_speed_problems_of_settings_that_cannot_compile(
    tmp_path: Path, fields: dict[str, Any], severities: list[str]
) -> None:
    wrong = [problem for problem in find_problems(tmp_path, compile="on", **fields) if problem.field == "compile"]
    assert [problem.severity for problem in wrong] == severities


def test_speed_problems_without_a_cpp_compiler(tmp_path: Path, compiler: Path) -> None:
    compiler.unlink()
    (problem,) = find_problems(tmp_path, compile="on")
    assert (problem.field, problem.severity) == ("compile", "error")
    assert find_problems(tmp_path, compile="on", devices=GPUS[:1]) == []
    assert find_problems(tmp_path, compile="auto") == []
