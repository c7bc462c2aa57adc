"""Exif orientations of the images of a dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.decoding.orientation import read_rotations, turn_upright_like_image


def write_image(path: Path, orientation: int) -> str:
    """Write an image of 9 x 6 pixels with an Exif orientation, and return its path."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (9, 6)).save(path, exif=exif)
    return str(path)


def test_read_rotations_reads_all_if_a_sampled_image_is_turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.decoding.orientation.SAMPLED", 2)
    files = [
        write_image(tmp_path / name, value) for name, value in (("a.jpg", 1), ("b.png", 8), ("c.jpg", 1), ("d.jpg", 3))
    ]
    found = read_rotations([*files, str(tmp_path / "gone.jpg")])  # the first and the fourth are sampled
    assert [*found.items()] == [(1, (8, 9, 6)), (3, (3, 6, 9))]
    assert [each.raw for each in found.values()] == [(6, 9), (6, 9)]
    assert read_rotations([*files[:3], files[0]]) == {}


def test_turn_upright_like_image_turns_planes_of_the_stored_size(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.jpg", 6)
    planes = np.arange(54).reshape(6, 9)
    assert turn_upright_like_image(planes, path, (9, 6)).tolist() == np.rot90(planes, -1).tolist()
    for other in (planes.reshape(9, 6), planes[:4, :3], planes[:, :6]):
        assert turn_upright_like_image(other, path, (9, 6)) is other
    assert turn_upright_like_image(planes, write_image(tmp_path / "b.jpg", 3), (6, 9)) is planes
