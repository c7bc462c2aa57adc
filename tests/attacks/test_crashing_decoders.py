"""Files that crash the process that decodes them. Reports must name the file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.attacks import hostile_folders as honest
from tests.attacks.bounds import inspect_folder
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import ROOT
from tests.support.images import write_image

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody watches over the inspector"),
]


def test_cloud_that_crashes_decoder_is_named(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
    honest.write_laz_of_huge_chunk(tmp_path / "train")
    honest.write_las_clouds(tmp_path / "val", ".laz")

    inspection = inspect_folder(tmp_path, "points")

    assert inspection.texts == "train/1.laz crashes the program that reads it (SIGABRT). Rewrite it, or remove it."


def test_training_with_crashing_cloud_is_refused(tmp_path: Path) -> None:
    honest.write_laz_of_huge_chunk(tmp_path / "clouds")
    done = footplate(
        "train", str(tmp_path / "clouds"), "--task", "point_segmentation", "--model", "pointcnn", "--devices", "cpu"
    )
    assert done.code == 2
    assert "1.laz crashes the program that reads it (SIGABRT)" in done.err


def test_image_that_crashes_decoder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the decoder crash on images of a certain width, because no image is known that crashes it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'engine.data' in getattr(sys, 'orig_argv', []):\n"
        "    from PIL import ImageFile\n"
        "    load = ImageFile.ImageFile.load\n"
        "    ImageFile.ImageFile.load = lambda image: os.abort() if image.width == 13 else load(image)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    folder = tmp_path / "set"
    honest.write_class_folders(folder)
    write_image(folder / "dogs" / "torn.png", size=(13, 13))

    inspection = inspect_folder(folder, "classes")

    assert inspection.texts == "dogs/torn.png crashes the program that reads it (SIGABRT). Rewrite it, or remove it."
