"""Check in new interpreters that modules don't import large libraries that they don't need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    return set(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split())


def test_light_processes_import_no_torch_or_qt() -> None:
    loaded = modules_after(
        "import engine.checks.gpu_checks, engine.checks.job_checks, engine.cli, engine.data.__main__, "
        "engine.data.cache.cached_images, engine.gpus.__main__, engine.runs.connection, engine.runs.folder, "
        "engine.runs.launch, engine.supervisor.__main__"
    )
    assert {"torch", "torchvision", "PySide6", "pyqtgraph"} & loaded == set()


def test_inspector_imports_rare_dependencies_lazily() -> None:
    loaded = modules_after("import engine.data.__main__")
    assert {"scipy.ndimage", "scipy.io", "scipy.sparse"} & loaded == set()


def test_worker_imports_rare_dependencies_lazily() -> None:
    loaded = modules_after("import engine.training.worker")
    few = {"plyfile", "safetensors", "scipy", "segmentation_models_pytorch", "tifffile", "timm", "yaml"}
    assert few & loaded == set()


def test_sources_import_no_widgets() -> None:
    files = sorted((ROOT / "gui" / "sources").rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    assert len(names) > 20
    assert "PySide6.QtWidgets" not in modules_after(f"import {', '.join(names)}")
