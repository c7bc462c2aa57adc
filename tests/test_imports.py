"""Imports that modules may have, checked in new interpreters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    return set(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split())


@pytest.mark.parametrize(
    "statement",
    [
        "import engine.checks.job_checks, engine.runs.folder, engine.runs.connection, engine.runs.launch",
        "import engine.checks.gpu_checks",
        "import engine.gpus.__main__",
        "import engine.supervisor.__main__",
        "import engine.data.__main__",
        "import engine.cli",
    ],
)
def test_light_processes_import_no_torch_or_qt(statement: str) -> None:
    heavy = {"torch", "torchvision", "PySide6", "pyqtgraph"} & modules_after(statement)
    assert heavy == set()


def test_inspector_imports_rare_dependencies_lazily() -> None:
    loaded = modules_after("import engine.data.__main__")
    assert {"scipy.ndimage", "scipy.io", "scipy.sparse"} & loaded == set()


def test_worker_imports_rare_dependencies_lazily() -> None:
    loaded = modules_after("import engine.training.worker")
    few = {"plyfile", "safetensors", "scipy", "segmentation_models_pytorch", "tifffile", "timm", "yaml"}
    assert few & loaded == set()


def test_window_imports_no_torch() -> None:
    loaded = modules_after("import gui.app, gui.main_window")
    assert "PySide6.QtWidgets" in loaded
    assert {"torch", "torchvision"} & loaded == set()


def test_sources_import_no_widgets() -> None:
    files = sorted((ROOT / "gui" / "sources").rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    assert len(names) > 20
    assert "PySide6.QtWidgets" not in modules_after(f"import {', '.join(names)}")
