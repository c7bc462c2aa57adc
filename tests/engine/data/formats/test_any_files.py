"""Folders that only a custom task can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.problems import errors
from engine.data.formats.format import Confidence
from engine.data.formats.registry import FORMATS, detect_kind, recognize
from engine.data.formats.tree import Tree
from engine.data.splits import AnySplit
from tests.support.clouds import make_clouds
from tests.support.images import write_noise


def test_files_are_detected_weakly_and_never_chosen_alone(tmp_path: Path) -> None:
    make_clouds(tmp_path / "clouds", {"train": 2, "val": 1}, 40)
    write_noise(tmp_path / "images/cat/a.png", seed=0)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.dat").write_text("x")
    for name in ("clouds", "images", "notes"):
        (detection,) = FORMATS["files"].detect(Tree(str(tmp_path / name)))
        assert detection.confidence is Confidence.WEAK
        assert detect_kind(str(tmp_path / name)) != "files"
    assert FORMATS["files"].detect(Tree(str(tmp_path / "notes"))) != []
    (tmp_path / "empty").mkdir()
    assert FORMATS["files"].detect(Tree(str(tmp_path / "empty"))) == []


@pytest.mark.parametrize("val_fraction", [0.0, 0.25])
def test_files_stay_together_for_the_users_program(tmp_path: Path, val_fraction: float) -> None:
    for name in ("b/2.dat", "a/1.dat", "a/.hidden", "top.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = recognize(str(tmp_path), val_fraction=val_fraction, seed=0, kinds=("files",))
    assert not errors(found.problems)
    assert isinstance(found.train, AnySplit)
    assert [Path(path).name for path in found.train.files] == ["top.json", "1.dat", "2.dat"]
    assert (found.kind, found.val) == ("files", None)
