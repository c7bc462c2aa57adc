"""MNIST's idx files."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.contract.problems import Problem, errors
from engine.data.decoding.idx import IdxError, find_idx, read_idx
from engine.data.formats.format import Confidence
from engine.data.formats.idx import FORMAT, open_idx_images
from engine.data.formats.tree import Tree
from engine.data.splits import IdxSplit
from tests.support.images import encode_idx, write_idx


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Create a folder of idx files: 20 training and 10 validation images with the labels 3, 5, 7 and 9."""
    for name, count in (("train", 20), ("t10k", 10)):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte", np.zeros((count, 5, 4)))
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte", 3 + 2 * (np.arange(count) % 4))
    return tmp_path


def test_idx_read_numbers_labels_of_both_splits(digits: Path) -> None:
    write_idx(digits / "t10k-labels-idx1-ubyte", np.array([3, 5, 8, 9, 3, 5, 7, 9, 3, 5]))
    tree = Tree(str(digits))
    (detection,) = FORMAT.detect(tree)
    assert (detection.kinds, detection.confidence) == (("classes",), Confidence.CERTAIN)
    content = FORMAT.read(tree, detection, "classes")
    assert (content.classes, content.problems, list(content.splits)) == (
        ("3", "5", "7", "8", "9"),
        [],
        ["train", "val"],
    )
    labels = [split.labels[:4].tolist() for split in content.splits.values() if isinstance(split, IdxSplit)]
    assert labels == [[0, 1, 2, 4], [0, 1, 3, 4]]


def test_idx_read_leaves_single_split_to_be_divided(digits: Path) -> None:
    for path in digits.glob("t10k*"):
        path.unlink()
    for path in digits.glob("train*"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    tree = Tree(str(digits))
    (detection,) = FORMAT.detect(tree)
    assert detection.confidence is Confidence.CERTAIN
    content = FORMAT.read(tree, detection, "classes")
    assert {name: len(split.labels) for name, split in content.splits.items()} == {"": 20}


@pytest.mark.parametrize("pattern", ["train-images*", "train-labels*", "train*", "t10k-labels*", "t10k-images*"])
def test_idx_names_missing_files(digits: Path, pattern: str) -> None:
    names = sorted(path.name for path in digits.glob(pattern))
    for name in names:
        (digits / name).unlink()
    tree = Tree(str(digits))
    (detection,) = FORMAT.detect(tree)
    assert detection.confidence is Confidence.LIKELY
    remedies = [problem.remedy for problem in errors(FORMAT.read(tree, detection, "classes").problems)]
    optional = ", or remove its other half" if pattern.startswith("t10k") else ""
    assert remedies == [f"Add {name} (or its .gz){optional}." for name in names]


@pytest.mark.parametrize(
    ("shape", "rows", "is_usable"),
    [
        ((20, 5, 4), None, True),
        ((19, 5, 4), None, False),
        ((21, 5, 4), None, False),
        ((21, 5, 4), range(20), True),
        ((20, 0, 4), None, False),
        ((20, 5), None, False),
    ],
)
def test_open_idx_images_checks_the_shape(
    tmp_path: Path, shape: tuple[int, ...], rows: range | None, is_usable: bool
) -> None:
    path = write_idx(tmp_path / "images", np.zeros(shape))
    problems: list[Problem] = []
    split = IdxSplit(str(path), np.zeros(20, np.int64), None if rows is None else np.array(rows))
    assert (open_idx_images(split, problems) is not None, problems == []) == (is_usable, is_usable)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "can't be used: "),
        (b"no idx file", "can't be used: "),
        (b"\0\0\x08\x01\0\0\0\x09ab", "can't be used: "),
        (encode_idx(np.zeros(0)), "holds no labels."),
    ],
)
def test_idx_names_damaged_labels(digits: Path, content: bytes, reason: str) -> None:
    (digits / "train-labels-idx1-ubyte").write_bytes(content)
    tree = Tree(str(digits))
    (detection,) = FORMAT.detect(tree)
    assert (detection.confidence is Confidence.CERTAIN) == content.startswith(b"\0")
    (problem,) = errors(FORMAT.read(tree, detection, "classes").problems)
    assert problem.message.startswith(f"train-labels-idx1-ubyte {reason}")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: write_idx(path, np.zeros((20, 5))), "can't be used: its array is 20 x 5, not images x rows x columns."),
        (lambda path: None, "can't be read: No such file or directory."),
        (os.mkfifo, "is a FIFO"),
    ],
)  # fmt: skip
def test_idx_explains_unusable_images(tmp_path: Path, prepare: Callable[[Path], object], message: str) -> None:
    prepare(tmp_path / "images")
    problems: list[Problem] = []
    assert open_idx_images(IdxSplit(str(tmp_path / "images"), np.zeros(20, np.int64)), problems) is None
    assert problems[0].message.startswith(f"images {message}")
    assert problems[0].remedy


def test_idx_is_not_detected_in_other_folders(tmp_path: Path) -> None:
    (tmp_path / "images-idx3-ubyte").write_bytes(b"")
    (tmp_path / "train-images.png").write_bytes(b"")
    assert FORMAT.detect(Tree(str(tmp_path))) == []


def test_idx_read_names_classes_from_a_file(digits: Path) -> None:
    (digits / "labels.txt").write_text("3: d\n5: f\n7: h\n9: j\n")
    tree = Tree(str(digits))
    assert FORMAT.read(tree, FORMAT.detect(tree)[0], "classes").classes == ("d", "f", "h", "j")


def test_idx_read_keeps_numbers_that_a_file_does_not_name(digits: Path) -> None:
    (digits / "labels.txt").write_text("a\nb\n")
    tree = Tree(str(digits))
    assert FORMAT.read(tree, FORMAT.detect(tree)[0], "classes").classes == ("3", "5", "7", "9")


@pytest.mark.parametrize("name", ["t10k", "test", "val", "valid", "validation"])
def test_idx_read_finds_the_other_split_by_name(digits: Path, name: str) -> None:
    for what in ("images-idx3", "labels-idx1"):
        (digits / f"t10k-{what}-ubyte").rename(digits / f"{name}-{what}-ubyte")
        (digits / f"train-{what}-ubyte").rename(digits / f"TRAIN-{what}-ubyte")
    tree = Tree(str(digits))
    content = FORMAT.read(tree, FORMAT.detect(tree)[0], "classes")
    assert {split: len(each.labels) for split, each in content.splits.items()} == {"train": 20, "val": 10}


def test_idx_ignores_what_follows_the_gzip_stream(digits: Path) -> None:
    """Append data to the stream. Python's gzip module would read all of it, even a sparse region of any size."""
    plain = digits / "train-labels-idx1-ubyte"
    zipped = digits / f"{plain.name}.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    expected = read_idx(str(plain)).tolist()
    os.truncate(zipped, 1 << 32)
    before = time.process_time()
    assert read_idx(str(zipped)).tolist() == expected
    assert time.process_time() - before < 1


@pytest.mark.parametrize("keep", [-9, -1, 12, 30])
def test_idx_names_truncated_gzip_stream(digits: Path, keep: int) -> None:
    plain = digits / "train-images-idx3-ubyte"
    zipped = digits / f"{plain.name}.gz"
    damaged = bytearray(gzip.compress(plain.read_bytes()))
    damaged[-8] ^= 1  # in the checksum
    zipped.write_bytes(damaged)
    with pytest.raises(IdxError, match="gzip stream is broken"):
        read_idx(str(zipped))
    zipped.write_bytes(gzip.compress(plain.read_bytes())[:keep])
    with pytest.raises(IdxError, match="gzip stream is broken"):
        read_idx(str(zipped))
    plain.unlink()
    assert FORMAT.detect(Tree(str(digits)))[0].confidence is not Confidence.CERTAIN or keep != 12


@pytest.mark.parametrize(("max_labels", "failures"), [(20, 0), (19, 1)])
def test_idx_limits_the_number_of_labels(
    digits: Path, monkeypatch: pytest.MonkeyPatch, max_labels: int, failures: int
) -> None:
    monkeypatch.setattr("engine.data.formats.idx.MAX_LABELS", max_labels)
    tree = Tree(str(digits))
    assert len(FORMAT.read(tree, FORMAT.detect(tree)[0], "classes").problems) == failures


def test_idx_prefers_plain_files_with_fitting_dimensions(digits: Path) -> None:
    plain = digits / "train-images-idx3-ubyte"
    (digits / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (digits / "train-labels-idx3-ubyte").write_bytes(b"")
    found = find_idx(str(digits))
    assert found is not None
    assert (found.train_images, found.train_labels) == (str(plain), str(digits / "train-labels-idx1-ubyte"))
    folder = digits / "MNIST/raw"
    folder.mkdir(parents=True)
    plain.rename(folder / plain.name)
    for path in digits.glob("t*"):
        path.unlink()
    found = find_idx(str(digits))
    assert found is not None
    assert found.train_images == str(folder / plain.name)


def test_idx_checks_the_length_of_unpacked_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.arange(3 << 20) % 251
    content = encode_idx(expected)
    packed = tmp_path / "a.GZ"
    packed.write_bytes(gzip.compress(content, 1))
    np.testing.assert_array_equal(read_idx(str(packed)), expected)
    assert read_idx(str(write_idx(tmp_path / "empty", np.zeros((0, 9, 9, 3))))).shape == (0, 9, 9, 3)
    for other, message in ((content[:-1], "3,145,728 bytes announced, 3,145,727 found"), (content + b"x", "longer")):
        packed.write_bytes(gzip.compress(other, 1))
        with pytest.raises(IdxError, match=message):
            read_idx(str(packed))
    monkeypatch.setattr("engine.data.decoding.idx.MAX_UNZIPPED_BYTES", len(expected) - 1)
    with pytest.raises(IdxError, match="unpacks to 3,145,728 bytes; unpack it with gunzip"):
        read_idx(str(packed))


@pytest.mark.parametrize("header", [b"\0\0\x08\0", b"\0\0\x08\5" + bytes(20), b"\0\0\x0d\1\0\0\0\0", b"\0\0\x08\1\0"])
def test_idx_refuses_invalid_headers(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a").write_bytes(header)
    with pytest.raises(IdxError, match=r"not an idx file of unsigned bytes|ends within its header"):
        read_idx(str(tmp_path / "a"))
