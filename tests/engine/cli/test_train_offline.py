"""Training on real folders without a network, with the path as the only argument."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATASETS = ROOT.parent / "shared/datasets"
UNREACHABLE = "http://127.0.0.1:9"
"""Proxy address at the discard port, where nothing listens."""
IMAGES = ("--image-size", "64", "--batch-size", "16")
FOLDERS = {
    "hymenoptera": ("classification", IMAGES),
    "fashion_mnist_small": ("classification", IMAGES),
    "camvid_subset": ("segmentation", IMAGES),
    "massachusetts_roads_tiles": ("road_extraction", IMAGES),
    "bsds500_subset": ("edge_detection", IMAGES),
    "bccd": ("detection", IMAGES),
    "nuclei_subset": ("instance_segmentation", IMAGES),
    "pointcloud_mosd": ("point_segmentation", ()),
}
"""Folders to train on for one epoch, with their tasks and additional flags."""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("folder", FOLDERS)
def test_train_needs_no_network(tmp_path: Path, folder: str) -> None:
    dataset = DATASETS / folder
    if not dataset.is_dir():
        pytest.skip(f"{dataset} is missing")
    task, flags = FOLDERS[folder]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"https_proxy": UNREACHABLE, "http_proxy": UNREACHABLE, "HF_HOME": str(tmp_path / "hub")}
    environment |= {"TORCH_HOME": str(tmp_path / "torch"), "FOOTPLATE_HOME": str(tmp_path / "home")}
    environment |= {"FOOTPLATE_CACHE": str(tmp_path / "cache")}
    command = [
        sys.executable,
        str(ROOT / "footplate.py"),
        "train",
        str(dataset),
        "--task",
        task,
        "--epochs",
        "1",
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.startswith("Model: ") for line in lines].count(True) == 1
    assert "Traceback" not in done.stderr
    # Point clouds have no pretrained weights, and all other tasks use those that come with the installation.
    assert ("included weights" in done.stderr) == (task != "point_segmentation")
    assert "starts from random weights" not in done.stderr.replace("which starts from random weights", "")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_train_of_a_named_model_warns_once_without_a_network(tmp_path: Path) -> None:
    dataset = DATASETS / "hymenoptera"
    if not dataset.is_dir():
        pytest.skip(f"{dataset} is missing")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TORCH_HOME": str(tmp_path / "torch")}
    environment |= {"FOOTPLATE_HOME": str(tmp_path / "home"), "FOOTPLATE_CACHE": str(tmp_path / "cache")}
    arguments = ["train", str(dataset), "--model", "resnet18", "--epochs", "1", *IMAGES]
    done = subprocess.run(
        [sys.executable, str(ROOT / "footplate.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ResNet-18 starts from random weights") == 1
    assert "--model timm:tf_efficientnet_lite0" in done.stderr
