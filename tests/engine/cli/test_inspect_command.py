"""``footplate inspect``: its JSON output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cli.terminal import run_in_this_process
from tests.support.clouds import make_clouds
from tests.support.dataset_formats import coco
from tests.support.dataset_formats.truth import TRUTH
from tests.support.images import write_noise
from tests.support.mask_folders import make_folder, make_striped_mask


def run_inspect(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run `footplate inspect --json` on a folder. Return its exit code and its JSON object."""
    answer = run_in_this_process("inspect", str(folder), "--json", *options)
    return answer.code, json.loads(answer.out)


def class_folders(folder: Path, *names: str) -> Path:
    for seed, name in enumerate(names):
        for number in range(3 + seed):
            write_noise(folder / name / f"{name}{number}.png", seed=10 * seed + number)
    return folder


def test_inspect_prints_classes_splits_and_samples_as_json(tmp_path: Path) -> None:
    for split in ("train", "val"):
        class_folders(tmp_path / split, "cat", "dog")
    code, found = run_inspect(tmp_path, "--samples", "100")
    assert code == 0
    assert (found["task"], found["format"], found["classes"]) == ("classification", "imagefolder", ["cat", "dog"])
    assert found["splits"]["train"] == {"images": 7, "counts": {"cat": 3, "dog": 4}, "held_out": False}
    assert set(found["splits"]) == {"train", "val"}
    assert found["certain"]
    labels = {sample["file"]: sample["label"] for sample in found["samples"]}
    assert len(labels) == 14
    assert labels["val/dog/dog3.png"] == "dog"


def test_inspect_prints_boxes_in_pixels(tmp_path: Path) -> None:
    coco.write(TRUTH, tmp_path, "splits")
    code, found = run_inspect(tmp_path, "--task", "detection", "--samples", "6")
    assert code == 0
    assert found["format"] == "coco"
    boxes = {Path(sample["file"]).stem: sample["boxes"] for sample in found["samples"]}
    assert boxes["img_1"] == [{"label": "apple", "x1": 8.0, "y1": 8.0, "x2": 40.0, "y2": 32.0}]
    assert boxes["img_4"] == []


def test_inspect_lists_the_values_of_masks(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, [make_striped_mask(0, 1, 2, 255)] * 4)
    (folder / "classes.txt").write_text("sky\nroad\ntree\n")
    _, found = run_inspect(folder, "--task", "segmentation")
    assert [(each["value"], each["masks"], each["class_name"]) for each in found["mask_values"]] == [
        ("0", 4, "sky"), ("1", 4, "road"), ("2", 4, "tree"), ("255", 4, None),
    ]  # fmt: skip


def test_inspect_names_the_samples(tmp_path: Path) -> None:
    make_clouds(tmp_path, {"train": 2, "val": 1})
    assert "train: 2 clouds" in run_in_this_process("inspect", str(tmp_path)).out


def test_inspect_ends_with_2_and_readings_if_evidence_conflicts(tmp_path: Path) -> None:
    class_folders(tmp_path, "images", "depth")
    code, found = run_inspect(tmp_path)
    assert code == 2
    assert (found["task"], found["format"], found["samples"]) == (None, None, [])
    reading = next(each for each in found["readings"] if each["format"] == "imagefolder")
    assert reading["task"] == "classification"
    assert "named by their role (depth, images)" in reading["against"][0]
    assert found["problems"][0]["severity"] == "error"
    code, found = run_inspect(tmp_path, "--format", "imagefolder")
    assert (code, found["classes"]) == (0, ["depth", "images"])


@pytest.mark.parametrize(
    ("options", "text"),
    [(("--task", "sorting"), "no task “sorting”"), (("--format", "gopher"), "no format “gopher”")],
)
def test_inspect_names_unknown_tasks_and_formats(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    class_folders(tmp_path, "cat", "dog")
    answer = run_in_this_process("inspect", str(tmp_path), *options)
    assert answer.code == 2
    assert text in answer.out + answer.err


@pytest.mark.parametrize("folder", ["pets", "./pets", "~/pets"])
def test_inspect_takes_folders_relative_to_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    class_folders(tmp_path / "pets", "cat", "dog")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = run_in_this_process("inspect", folder, "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["folder"] == str(tmp_path / "pets")
