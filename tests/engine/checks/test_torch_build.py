"""Properties of the installed torch build, read from its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.checks.torch_support import TorchBuild, find_installed_torch
from tests.support.torch_builds import write_torch_build

ROOT = Path(__file__).parents[3]
READ = (
    "import sys; from engine.checks.torch_support import find_installed_torch; print(find_installed_torch()); "
    "assert 'torch' not in sys.modules"
)


def describe_torch_in(first: Path) -> str:
    """Describe the torch build in the folder `first`, read by a process that doesn't import torch."""
    path = os.pathsep.join((str(first), str(ROOT)))
    return subprocess.check_output(
        [sys.executable, "-c", READ], env=os.environ | {"PYTHONPATH": path}, text=True
    ).strip()


def test_installed_torch_equals_imported_torch() -> None:
    import torch

    assert find_installed_torch() == TorchBuild(
        torch.__version__, torch.version.cuda, tuple(torch.cuda.get_arch_list())
    )


@pytest.mark.parametrize(
    "build",
    [
        TorchBuild("2.15.0+cpu"),
        TorchBuild("2.14.0+cu126", "12.6", ("sm_50", "sm_60", "sm_90")),
        TorchBuild("2.15.0+cu130", "13.0", ("sm_75", "sm_90a", "sm_120", "compute_120")),
    ],
)
def test_installed_torch_reads_files_without_import(tmp_path: Path, build: TorchBuild) -> None:
    assert describe_torch_in(write_torch_build(tmp_path, *build)) == str(build)


def test_installed_torch_is_none_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    assert describe_torch_in(tmp_path) == "None"
