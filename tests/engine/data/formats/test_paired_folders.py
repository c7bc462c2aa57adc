"""Pairs of images and annotation files: by the names of their folders, and by the names of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.maskfolder import ROLES
from engine.data.formats.shared.name_pairs import Pairs, match_names, pair_folders, pair_in_one_folder
from engine.data.formats.shared.paired_folders import find_candidates
from engine.data.formats.tree import Tree

ENDINGS = (".png", ".bmp")


def make_tree(folder: Path, files: str) -> Tree:
    """Create empty files in `folder` and list them.

    `files` are their paths, separated by spaces. A path without an extension gets ".png".
    """
    for name in files.split():
        path = folder / (name if "." in name else f"{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Tree(str(folder))


def list_names(pairs: Pairs) -> dict[str, str]:
    """Return the file stems in each list of `pairs` that is not empty, separated by spaces.

    The keys are "matched" (entries are "IMAGE:FILE"), "images" and "files" without a partner, "several" and "same".
    """
    found = {
        "matched": [f"{Path(image).stem}:{Path(file).stem}" for image, file in pairs.matched],
        "images": [Path(path).stem for path in pairs.unmatched_images],
        "files": [Path(path).stem for path in pairs.unmatched_files],
        "several": [Path(path).stem for path in pairs.several],
        "same": [Path(path).stem for path in pairs.same_name],
    }
    return {name: " ".join(names) for name, names in found.items() if names}


@pytest.mark.parametrize(
    ("files", "candidates"),
    [
        ("train/images/a train/masks/a val/images/b val/masks/b", ["masks: train a, val b"]),
        (
            "train_images/a train_masks/a val_images/b val_masks/b test_images/c",
            ["masks: train a, val b, without test_images"],
        ),
        ("ISIC2018_Task1-2_Training_Input/a ISIC2018_Task1_Training_GroundTruth/a", ["groundtruth: train a"]),
        ("Sat-Images_png/a Sat-Masks_png/a", ["masks:  a"]),
        ("images/train/a PedMasks/train2017/a", ["PedMasks: train a"]),
        ("train_images/a val_images/b PedMasks/train_masks/a PedMasks/val_masks/b", ["PedMasks/masks: train a, val b"]),
        ("toy_train/a masks/toy_train/a", ["masks:  a"]),
        ("left/a masks_train/a", ["masks: train a"]),
        ("images/a train/a", []),
        ("images/a images/b PedMasks/a CarMasks/b CarMasks/z", ["CarMasks:  b (z)", "PedMasks:  a"]),
        ("images/a PedImages/a PedMasks/a", ["masks:  a, without images"]),
        ("Ped/images/x/a PedMasks/a", ["masks:  a"]),
        ("images/train/a train/a masks/train/a", ["masks: train a"]),
        ("train/a train_masks/a val/b", ["masks: train a"]),
        ("train/cats/a masks/train/a", []),
        ("left/a right/a masks/a", ["masks of left:  a", "masks of right:  a"]),
        ("images/a images/a_MASK train/b train/b_mask", ["_mask:  a, train b"]),
        ("images/train/a images/val/b masks/a masks/b masks/c", ["masks: train a (c), val b"]),
        ("data/a data_train/b masks_train/b", ["masks: train b"]),
        ("train_data/a gt/train/a extra_data/b gt/extra/b", ["gt: train a"]),
        ("images/a images/b roads/a roads/b gt/a", ["gt:  a", "roads?  a b"]),
        (
            "images/a train/images/b train/roads/b images/train/c test/roads/b",
            ["roads? train b, without images images/train"],
        ),
        ("mask_train/a image_train/a", ["mask: train a"]),
        ("images/a images/b gt/a gt/b masks/a", ["gt:  a b", "masks:  a"]),
        ("images/a images/b gt/a masks/a masks/b", ["masks:  a b", "gt:  a"]),
        ("images/x/a masks/b images/b", ["masks:  b, without images/x"]),
        ("images/z images/train/a masks/a", ["masks: train a, without images"]),
    ],
)
def test_find_candidates_joins_folders_of_one_key(tmp_path: Path, files: str, candidates: list[str]) -> None:
    found = []
    for each in find_candidates(make_tree(tmp_path, files), ROLES):
        splits = []
        for split, pairs in each.splits.items():
            unmatched = "".join(f" ({Path(path).stem})" for path in pairs.unmatched_files)
            splits.append(f"{split} {' '.join(Path(path).stem for path in pairs.images)}{unmatched}")
        without = [f"without {' '.join(each.folders_without_pairs)}"] if each.folders_without_pairs else []
        found.append(f"{each.variant}{':' if each.is_named else '?'} {', '.join([*splits, *without])}")
    assert found == candidates


@pytest.mark.parametrize(
    ("files", "images", "expected"),
    [
        ("y/a x/b masks/a masks/b", ["y", "x"], {"matched": "b:b a:a"}),
        ("x/a y/a masks/a", ["x", "y"], {"same": "a a"}),
        ("x/a x/b masks/a_mask masks/a_mask_1 masks/b_mask masks/c", ["x"],
         {"matched": "b:b_mask", "several": "a", "files": "c"}),
        ("x/a x/a_1 masks/a masks/a_1", ["x"], {"matched": "a:a a_1:a_1"}),
        ("x/A x/a x/B masks/A masks/a masks/b", ["x"], {"matched": "A:A a:a", "images": "B", "files": "b"}),
        ("x/A x/B masks/a masks/b", ["x"], {"matched": "A:a B:b"}),
    ],
)  # fmt: skip
def test_pair_folders_matches_names(tmp_path: Path, files: str, images: list[str], expected: dict[str, str]) -> None:
    assert list_names(pair_folders(make_tree(tmp_path, files), images, "masks", ENDINGS, ("", "_mask"))) == expected


def test_pair_folders_prefers_the_first_extension(tmp_path: Path) -> None:
    pairs = pair_folders(make_tree(tmp_path, "x/a masks/a.bmp masks/a.png"), ["x"], "masks", ENDINGS, ("",))
    assert [Path(path).name for path in pairs.files] == ["a.png"]
    assert pairs.file_count == 1


def test_pair_in_one_folder_separates_images_from_annotations(tmp_path: Path) -> None:
    files = make_tree(tmp_path, "a a_mask a_mask_1 b b_MASK c d_gt")
    pairs = pair_in_one_folder(files, "", ENDINGS, "_mask", ("_mask", "_gt"))
    assert list_names(pairs) == {"matched": "b:b_MASK", "images": "c", "several": "a"}


def test_pairs_of_folders_leave_out_the_others() -> None:
    pairs = Pairs(
        [("x/a", "m"), ("y/b", "n")],
        unmatched_images=["x/c", "y/d"],
        several=["y/e", "x/f"],
        same_name=["x/g", "y/h"],
        missing=["gone", "lost"],
    )
    assert list_names(pairs.select_folders({"x"})) == {"matched": "a:m", "images": "c", "several": "f", "same": "g"}
    named = [each.message.rpartition(": ")[2].rstrip(".") for each in pairs.describe_unpaired("a mask", "masks")]
    assert named == ["gone, lost", "c, d", "e, f", "g, h"]


@pytest.mark.parametrize(
    ("images", "files", "matches"),
    [
        ("1 2 x_1", "x_1 x_2 x_x_1", "x_1 x_2 x_x_1"),
        ("train_1 train_2", "mask_1 mask_2", "mask_1 mask_2"),
        ("train_1 train_2", "val_1 val_2", ""),
        ("cat1 catb", "m_1 m_b", ""),
        ("cat1 cat2", "m_1 m_2", "m_1 m_2"),
        ("a10 a11", "m_10 m_11 m_20", "m_10 m_11"),
        ("1_rgb 2_rgb", "1_lbl 2_lbl", "1_lbl 2_lbl"),
        ("a b c d", "a y", "a"),
        ("a1 a2 a3 a4", "m_1 m_7 m_8 m_9", ""),
    ],
)
def test_match_names_removes_common_words(images: str, files: str, matches: str) -> None:
    found = match_names(images.split(), files.split(), ("",))
    assert " ".join(found.values()) == matches
    assert list(found) == images.split()[: len(found)]
