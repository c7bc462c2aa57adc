"""Mask values in the output of ``footplate inspect``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.engine.cli.terminal import footplate
from tests.support.mask_folders import make_folder, striped


def test_inspect_lists_the_values_of_masks(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [striped(0, 1, 2, 255)] * 4)
    (folder / "classes.txt").write_text("sky\nroad\ntree\n")
    answer = footplate("inspect", str(folder), "--task", "segmentation")
    assert "0 (sky, 25.0%), 1 (road, 25.0%), 2 (tree, 25.0%), 255 (no class, 25.0%)" in answer.out
    [line] = footplate("inspect", str(folder), "--task", "segmentation", "--json").out.splitlines()
    values = json.loads(line)["mask_values"]
    assert [(each["value"], each["masks"], each["class_name"]) for each in values] == [
        ("0", 4, "sky"), ("1", 4, "road"), ("2", 4, "tree"), ("255", 4, None),
    ]  # fmt: skip
