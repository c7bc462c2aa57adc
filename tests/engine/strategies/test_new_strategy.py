"""Strategies that are added as a new file. The form, the checks and training must support them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MIRRORED = """
import msgspec

from engine.strategies.ddp import DataParallelProcesses


class Mirrored(DataParallelProcesses):
    entry = msgspec.structs.replace(
        DataParallelProcesses.entry, id="mirrored", title="Mirrored", is_recommended=False, fields=("bucket_mib",)
    )
"""
WRITE_ENTRIES = """
import msgspec
from engine.catalogue import CATALOGUE_FILE, encode
from engine.contract.catalogue import load_builtin_catalogue
from engine.strategies import STRATEGIES

entries = tuple(strategy.entry for strategy in STRATEGIES.built_in.values())
CATALOGUE_FILE.write_bytes(encode(msgspec.structs.replace(load_builtin_catalogue(), strategies=entries)))
"""


@pytest.mark.long
def test_strategy_file_is_offered_checked_and_trained_with(images: Path, tmp_path: Path) -> None:
    for folder in ("engine", "resources"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "footplate.py", tmp_path)
    (tmp_path / "engine/strategies/mirrored.py").write_text(MIRRORED)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    def train(*arguments: str) -> subprocess.CompletedProcess[str]:
        job = ("--model", "mnist_cnn", "--image-size", "16", "--epochs", "1", "--start", "at_once")
        return run("footplate.py", "train", str(images), "--strategy", "mirrored", *job, *arguments)

    assert run("-c", WRITE_ENTRIES).returncode == 0
    assert "mirrored" in run("footplate.py", "catalogue").stdout
    refused = train("--devices", "cpu")
    assert refused.returncode == 2
    assert "Mirrored needs at least 2 devices" in refused.stderr
    trained = train("--devices", "cpu,cpu")
    assert trained.returncode == 0, trained.stderr
    assert "epoch 1: top1" in trained.stdout
