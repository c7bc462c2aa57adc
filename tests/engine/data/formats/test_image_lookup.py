"""Search for images by the names that annotation files contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.tree import Tree


def make_lookup(folder: Path, *files: str) -> ImageLookup:
    """Create empty files with these paths in `folder`, and return an image lookup for them."""
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return ImageLookup(Tree(str(folder)))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.jpg", "images/a.jpg"),
        ("images/a.jpg", "images/a.jpg"),
        ("other-v1.0/images/a.jpg", "images/a.jpg"),
        (r"C:\Users\me\images\a.jpg", "images/a.jpg"),
        ("https://host/images/a.jpg?size=1", "images/a.jpg"),
        ("https://host/images/d%20e.jpg", "images/d e.jpg"),
        ("A.JPG", "images/a.jpg"),
        ("c.jpg", "deep/er/c.jpg"),
        ("b.jpg", None),
        ("a.png", None),
    ],
)
def test_lookup_finds_an_image_by_its_path(tmp_path: Path, name: str, found: str | None) -> None:
    images = make_lookup(tmp_path, "images/a.jpg", "images/d e.jpg", "deep/er/c.jpg")
    expected = None if found is None else str(tmp_path / found)
    assert images.find(name) == expected


@pytest.mark.parametrize("train", ["train", "images/train2017", "train_images", "x_training/images"])
def test_lookup_prefers_the_images_of_a_split(tmp_path: Path, train: str) -> None:
    images = make_lookup(
        tmp_path,
        *(
            f"{train}/a.jpg",
            "test/a.jpg",
            "f.jpg",
            "test/f.jpg",
            "test/b.jpg",
            f"{train}/c.jpg",
            f"x/{train}/e.jpg",
            "x/test/e.jpg",
        ),
    )
    assert images.find("a", split="train", has_extension=False) == str(tmp_path / train / "a.jpg")
    for name in ("a.jpg", "f.jpg"):
        assert images.find(name, split="test") == str(tmp_path / "test" / name)
    assert images.find("b.jpg", split="train") is None
    assert images.find("test/c.jpg", train) is None
    assert images.find("e.jpg", split="train") == str(tmp_path / f"x/{train}/e.jpg")
    assert images.ambiguous == []


def test_lookup_prefers_the_exact_name(tmp_path: Path) -> None:
    images = make_lookup(tmp_path, "A.jpg", "a.jpg", "a.png", "x/y/c.jpg")
    assert images.find("a.jpg") == images.find("a", has_extension=False) == str(tmp_path / "a.jpg")
    assert images.find("A.jpg") == str(tmp_path / "A.jpg")
    assert images.find("c", has_extension=False) == str(tmp_path / "x/y/c.jpg")
    assert images.find("a") is images.find("c") is None


@pytest.mark.parametrize("name", ["a.jpg", "c/a.jpg", "/data/a.jpg"])
def test_lookup_does_not_choose_between_images_of_one_name(tmp_path: Path, name: str) -> None:
    images = make_lookup(tmp_path, "x/a.jpg", "y/a.jpg", "y/labels/a.txt")
    assert images.find(name) is None
    assert len(images.ambiguous) == 1
    assert images.find("y/a.jpg") == images.find("a.jpg", "y/labels") == str(tmp_path / "y/a.jpg")
