"""Recognition of dataset folders in every layout, and problems with them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.problems import errors
from engine.data.formats import imagefolder, registry
from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.registry import KINDS, recognize
from engine.data.splits import FileSplit, IdxSplit, RecognizedDataset, draw_validation, printable
from engine.system.plugins import Registry
from engine.system.regular_files import UnusableFile
from tests.engine.conftest import make_images
from tests.support.clouds import make_clouds
from tests.support.edges import make_edged
from tests.support.images import write_idx, write_image
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.trained_runs import make_labeled

Tree = Callable[..., Path]


def recognize_folder(folder: Path | str, seed: int = 0) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=seed)


def files(split: object) -> list[str]:
    assert isinstance(split, FileSplit)
    return list(split.files)


def join_errors(found: RecognizedDataset) -> str:
    """Return the messages of all errors as one text."""
    return " ".join(map(str, errors(found.problems)))


@pytest.mark.parametrize("train", ["train", "training", "trainset", "Train", "TRAINING"])
@pytest.mark.parametrize("val", ["val", "valid", "validation", "valset", "validset", "Valid"])
def test_split_names_are_recognized(tree: Tree, train: str, val: str) -> None:
    found = recognize_folder(tree(f"{train}/cat", f"{train}/dog", f"{val}/cat", f"{val}/dog"))
    assert found.problems == ()
    assert found.classes == ("cat", "dog")
    assert len(files(found.train)) == len(files(found.val)) == 4
    assert all(f"/{val}/" in path for path in files(found.val))


def test_class_folders_are_divided_by_class(tree: Tree) -> None:
    root = tree("cat", "dog", count=8)
    found = recognize_folder(root)
    assert found.classes == ("cat", "dog")
    assert isinstance(found.val, FileSplit)
    assert np.bincount(found.val.labels).tolist() == [2, 2]
    assert not set(files(found.train)) & set(files(found.val))
    assert files(recognize_folder(root).val) == files(found.val)
    assert files(recognize_folder(root, seed=1).val) != files(found.val)


def test_files_next_to_splits_are_ignored(tree: Tree) -> None:
    root = tree("train/cat", "train/dog", "val/cat", "val/dog")
    (root / "LICENSE.txt").write_text("free")
    (root / "SOURCE.md").write_text("here")
    (root / ".git").mkdir()
    (root / "train/.cache").mkdir()
    (root / "__MACOSX").mkdir()
    assert recognize_folder(root).problems == ()


def test_hidden_files_are_ignored_and_others_are_strays(tree: Tree) -> None:
    root = tree("train/cat", "train/dog", "val/cat", "val/dog")
    for name in ("Thumbs.db", ".DS_Store", "._0.png", "desktop.ini"):
        (root / "train/cat" / name).write_text("x")
    (root / "train/cat/notes.txt").write_text("x")
    found = recognize_folder(root)
    assert isinstance(found.train, FileSplit)
    assert len(found.train.files) == 4
    assert [Path(path).name for path in found.train.strays] == ["notes.txt"]


def test_classes_are_ordered_as_in_torchvision(tree: Tree) -> None:
    from torchvision.datasets import ImageFolder

    root = tree("b", "B", "a", "10", "9", "Z")
    assert list(recognize_folder(root).classes) == ImageFolder(str(root)).classes


def test_files_match_torchvision(tree: Tree) -> None:
    from torchvision.datasets import ImageFolder

    root = tree("train/cat", "train/cat/deeper", "train/dog", "val/cat", "val/dog")
    found = recognize_folder(root)
    assert isinstance(found.train, FileSplit)
    theirs = ImageFolder(str(root / "train")).samples
    assert list(zip(found.train.files, found.train.labels.tolist(), strict=True)) == theirs


def test_names_that_are_not_utf8_are_supported(tree: Tree) -> None:
    root = tree("train/cat", "train/dog", "val/cat", "val/dog")
    odd = os.fsencode(root / "train/cat") + b"/caf\xe9 \xc3\xa9.png"
    shutil.copyfile(os.fsencode(root / "train/cat/0.png"), odd)
    found = recognize_folder(root)
    assert any(os.fsencode(path) == odd for path in files(found.train))
    assert printable(os.fsdecode(odd)).endswith("caf\\xe9 é.png")


def test_links_are_followed_without_cycles(tree: Tree) -> None:
    root = tree("elsewhere/cat", "train/dog", "val/cat", "val/dog")
    (root / "train/cat").symlink_to(root / "elsewhere/cat")
    (root / "train/dog/round").symlink_to(root / "train/dog")
    (root / "train/dog/gone.png").symlink_to(root / "nowhere.png")
    found = recognize_folder(root)
    names = [str(Path(path).relative_to(root)) for path in files(found.train)]
    assert names == ["train/cat/0.png", "train/cat/1.png", "train/dog/0.png", "train/dog/1.png", "train/dog/gone.png"]
    (root / "val").rename(root / "Val")
    for folder in ("Val", "elsewhere"):
        (root / folder / "loop").symlink_to(root / folder / "loop")
    unused, loop = recognize_folder(root).problems
    assert ("elsewhere" in unused.message, loop.message.startswith("Val/loop is a link")) == (True, True)
    (root / "turn").symlink_to(root / "turn")
    (root / "missing").symlink_to(root / "nowhere")
    assert recognize_folder(root).problems[-1].message.startswith("turn, Val/loop are links")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_pipe_named_like_image_is_not_opened(tree: Tree) -> None:
    root = tree("cat", "dog")
    os.mkfifo(root / "cat/pipe.png")
    assert any(
        path.endswith("pipe.png") for path in files(recognize_folder(root).train) + files(recognize_folder(root).val)
    )


def test_file_instead_of_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "is a file, not a folder" in join_errors(recognize_folder(tmp_path / "file"))


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ("", "There is no folder"),
        ("set/.hidden", "is empty"),
        ("set/a.png set/b.md set/c.md set/notes set/x.bin", "has 2 .md files, a.png, 1 other file and no folders"),
        ("set/cat/list.txt set/dog/list.txt", "does not hold images by class; it has 2 folders"),
        ("set/train/cat/1.png set/val/cat/1.png", "only one class (cat)"),
        ("set/train/cat/1.png", "only one class"),
        ("set/train/train/1.png set/val/val/1.png", "named like splits, without folders of classes in them"),
        ("set/train/cat/1.png set/train/dog/1.png set/val/cat/1.png", "Class dog has no images for validation"),
        (
            "set/train/cat/1.png set/train/dog/1.png set/val/cat/1.png set/val/bird/1.png",
            "Class bird is in the validation split, but has no training images",
        ),
    ],
)
def test_recognize_reports_unusable_folders(tmp_path: Path, files: str, text: str) -> None:
    for name in files.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (write_image if name.endswith(".png") else Path.touch)(tmp_path / name)
    found = recognize_folder(tmp_path / "set")
    assert text in " ".join(map(str, found.problems))
    assert bool(errors(found.problems)) == ("for validation" not in text)


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("labels.json", "\n ", "it is empty"),
        ("labels.json", '{"images": [{"id"', "it ends in the middle"),
        ("labels.json", "{'images': []}", "line 1 is not valid JSON"),
        ("labels.json", "[1, 2]", "it has neither an object nor a list of objects"),
        ("labels.json", '"images"', "it has neither an object nor a list of objects"),
        ("labels.json", '{"images": 3, "annotations": []}', "images is missing or of another type"),
        ("labels.csv", "", "it is empty"),
        ("labels.tsv", "name\tclass\n", "it has no rows"),
        ("labels.jsonl", "{", "it has no rows"),
        ("data.yaml", "train: images\nnames: [a, b\n", "line 3 is not valid YAML"),
        ("data.yaml", "- 1\n", "it has no keys with values"),
        ("data.yml", " ", "it is empty"),
        ("labels/a.xml", "<annotation><object>", "it is not valid XML"),
    ],
)
def test_damaged_annotation_file_is_named(tmp_path: Path, name: str, text: str, cause: str) -> None:
    write_image(tmp_path / "set/a.png")
    (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "set" / name).write_text(text)
    (tmp_path / "set/a.yaml").write_text("license: free\n")  # a file without damage
    found = join_errors(recognize_folder(tmp_path / "set"))
    assert (f"{name} can't be read: {cause}" in found, "Export the damaged file again" in found) == (True, True)
    (tmp_path / "set/a.png").rename(tmp_path / "a.png")
    write_image(tmp_path / "set/images/b.png")  # then there is evidence against folders of classes
    assert f"{name} can't be read: {cause}" in join_errors(recognize_folder(tmp_path / "set"))


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("style", ["{0}-images-idx3-ubyte", "{0}-images.idx3-ubyte", "{0}-images-idx3-ubyte".upper()])
@pytest.mark.parametrize("place", ["", "raw", "MNIST/raw"])
def test_idx_names_are_recognized(tmp_path: Path, zipped: str, style: str, place: str) -> None:
    for name, count in (("train", 20), ("t10k", 10)):
        images = style.format(name)
        labels = (
            images.replace("images", "labels").replace("IMAGES", "LABELS").replace("dx3", "dx1").replace("DX3", "DX1")
        )
        write_idx(tmp_path / "set" / place / (images + zipped), np.zeros((count, 5, 4)))
        write_idx(tmp_path / "set" / place / (labels + zipped), np.arange(count) % 2)
    found = recognize_folder(tmp_path / "set")
    assert (found.format, found.classes, found.problems) == ("idx", ("0", "1"), ())
    assert isinstance(found.train, IdxSplit)
    assert isinstance(found.val, IdxSplit)
    assert (len(found.train.labels), len(found.val.labels)) == (20, 10)


@settings(max_examples=50)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**31 - 1),
)
def test_drawn_validation_follows_hash_of_seed_and_name(labels: list[int], fraction: float, seed: int) -> None:
    keys = [b"class/%d.png" % place for place in range(len(labels))]
    salt = seed.to_bytes(8, "little", signed=True)
    expected = set()
    for label in set(labels):
        places = [place for place, formats in enumerate(labels) if formats == label]
        places.sort(key=lambda place: hashlib.blake2b(keys[place], digest_size=8, salt=salt).digest())
        expected.update(places[: min(max(round(len(places) * fraction), 1), len(places) - 1)])
    assert set(np.flatnonzero(draw_validation(keys, np.array(labels), fraction, seed))) == expected


MAKERS: dict[str, Callable[[Path, dict[str, int]], Path]] = {
    "edges": make_edged,
    "masks": make_masked,
    "boxes": make_outlined,
    "instances": make_outlined,
    "points": lambda folder, counts: make_clouds(folder, counts, 30),
    "labels": make_labeled,
    "classes": make_images,
}


def list_samples(split: object) -> list[object]:
    return list(split.rows) if isinstance(split, IdxSplit) and split.rows is not None else list(split.files)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "files"])
def test_seed_decides_validation_in_every_format(tmp_path: Path, kind: str) -> None:
    """Check all kinds except "files", which custom tasks read themselves."""
    folder = MAKERS[kind](tmp_path / "data", {"train": 30})
    found = [recognize(str(folder), val_fraction=0.3, seed=seed, kinds=(kind,)) for seed in (1, 1, 2)]
    assert [each.kind for each in found] == [kind] * 3
    same, again, other = (list_samples(each.val) for each in found)
    assert same
    assert same == again
    assert same != other


def register_formats(monkeypatch: pytest.MonkeyPatch, **detections: Sequence[Detection]) -> None:
    """Replace all formats by fakes that read class folders.

    `detections` maps the id of each fake format to the detections that it reports for every folder.
    """

    def create(name: str, found: Sequence[Detection]) -> Format:
        return replace(imagefolder.FORMAT, id=name, title=name.title(), detect=lambda tree: found)

    formats = {name: create(name, each) for name, each in detections.items()}
    monkeypatch.setattr(registry, "FORMATS", Registry("footplate.formats", formats, registry._make_plugin_format))


LIKELY = Detection(("classes",), Confidence.LIKELY, ("a",))
CERTAIN, WEAK = (replace(LIKELY, confidence=each) for each in (Confidence.CERTAIN, Confidence.WEAK))
DOUBTED = replace(WEAK, against=("odd names",))
OBVIOUS = replace(LIKELY, obvious=True)
V, W = (replace(CERTAIN, variant=name) for name in "vw")
BOXES, FILES = (replace(CERTAIN, kinds=(kind,)) for kind in ("boxes", "files"))
UNREAD = replace(CERTAIN, kinds=())
AS_CLASSES = {"task": "classification"}


@pytest.mark.parametrize(
    ("detections", "requested", "expected"),
    [
        ({"one": [LIKELY]}, ("classes", ""), ("one One uncertain", [])),
        ({"one": [OBVIOUS]}, ("classes", ""), ("one One certain", [])),
        ({"one": [WEAK]}, ("classes", "one"), ("one One certain", [])),
        ({"one": [V]}, ("classes", ""), ("one:v One (v) certain", [])),
        ({"one": [WEAK], "two": [CERTAIN]}, ("classes", ""), ("two Two certain", [])),
        ({"one": [DOUBTED], "two": [WEAK]}, ("classes", ""), ("two Two uncertain", [{"format": "one"}])),
        ({"one": [WEAK], "two": [DOUBTED]}, ("classes", ""), ("one One uncertain", [{"format": "two"}])),
        ({"one": [DOUBTED]}, ("classes", ""), ("", [{"format": "one"}])),
        ({"one": [DOUBTED], "two": [DOUBTED]}, ("classes", ""), ("", [{"format": "one"}, {"format": "two"}])),
        ({"one": [replace(DOUBTED, variant="v")]}, ("classes", "one"), ("one:v One (v) certain", [])),
        ({"one": [DOUBTED], "two": [DOUBTED]}, ("classes", "two"), ("two Two certain", [])),
        ({"one": [V, W]}, ("classes", ""), ("", [{"format": "one:v"}, {"format": "one:w"}])),
        ({"one": [V, W]}, ("classes", "one"), ("", [{"format": "one:v"}, {"format": "one:w"}])),
        ({"one": [V, W]}, ("classes", "one:w"), ("one:w One (w) certain", [])),
        ({"one": [CERTAIN], "two": [CERTAIN]}, ("classes", ""), ("one One certain", [{"format": "two"}])),
        ({"one": [OBVIOUS], "two": [OBVIOUS]}, ("classes", ""), ("", [{"format": "one"}, {"format": "two"}])),
        ({"one": [CERTAIN], "two": [FILES]}, ("classes files", ""), ("one One certain", [])),
        ({"one": [replace(CERTAIN, kinds=("boxes", "classes"))]}, ("classes boxes", ""), ("one One certain", [])),
        ({"one": [LIKELY], "two": [replace(BOXES, against=("b",))]}, ("classes", ""), ("one One uncertain", [])),
        ({"one": [LIKELY], "two": [BOXES]}, ("classes", ""), ("", [{"format": "two", "task": "detection"}, {"format": "one"}])),
        ({"one": [V], "two": [DOUBTED]}, ("boxes", ""), ("", [{"format": "one:v"} | AS_CLASSES, {"format": "two"} | AS_CLASSES])),
        ({"one": [FILES]}, ("classes", ""), ("", [])),
        ({"one": [UNREAD]}, ("classes", ""), ("", [])),
        ({"one": [UNREAD], "two": [BOXES]}, ("classes", ""), ("", [])),
        ({"one": [replace(UNREAD, confidence=Confidence.LIKELY)], "two": [BOXES]}, ("classes", ""), ("", [{"format": "two", "task": "detection"}])),
        ({"one": [DOUBTED]}, ("points", ""), ("", [{"format": "one"} | AS_CLASSES])),
        ({"one": [LIKELY], "two": []}, ("boxes", "two"), ("", [{"format": "one"} | AS_CLASSES])),
    ],
)  # fmt: skip
def test_recognize_weighs_the_evidence(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, detections: Any, requested: tuple[str, str], expected: tuple[str, Any]
) -> None:
    (kinds, format), (result, choices) = requested, expected
    register_formats(monkeypatch, **detections)
    found = recognize(
        str(tree("cat", "dog", count=4)), val_fraction=0.25, seed=0, kinds=tuple(kinds.split()), format=format
    )
    certainty = "certain" if found.certain else "uncertain"
    assert (f"{found.format} {found.title} {certainty}" if found.format else "") == result
    assert [choice.values for problem in found.problems for choice in problem.choices] == choices
    assert (len(found.problems), len(errors(found.problems))) == (bool(choices or not result), not result)


@pytest.mark.parametrize(
    ("kinds", "format", "expected"),
    [
        (["labels", "masks"], "", "masks"),
        (["labels", "masks"], "f0", "labels"),
        (["instances masks"], "", "instances"),
        (["sounds", "labels"], "", "labels"),
        (["labels", "masks?"], "", "labels"),  # less certain
        (["masks?"], "", "masks"),
        (["masks??"], "", None),
        (["masks??"], "f0", "masks"),
        ([""], "", None),
    ],
)
def test_detect_kind_prefers_the_first_known_kind(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, kinds: list[str], format: str, expected: str | None
) -> None:
    detections = {
        f"f{number}": [replace((CERTAIN, LIKELY, WEAK)[each.count("?")], kinds=tuple(each.rstrip("?").split()))]
        for number, each in enumerate(kinds)
    }
    register_formats(monkeypatch, **detections)
    assert registry.detect_kind(str(tree("cat")), format) == expected
    assert registry.detect_kind(str(tree("cat") / "gone"), format) is None


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (UnusableFile("/set/x/a.json", "is odd", "Remove it."), "x/a.json"),
        (PermissionError(13, "", "/set/x"), "/set/x"),
        (PermissionError(13, ""), "/set"),
        (OSError(5, "EIO", "/set/x"), "EIO"),
        (MemoryError(), "memory"),
    ],
)
def test_failures_name_the_file_or_cause(error: OSError | UnusableFile | MemoryError, name: str) -> None:
    assert name in registry.explain_failure(error, "/set").message.rstrip(".").split()


def test_recognize_explains_questions_and_missing_formats(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree("cat", "dog")
    for against, verb in (("a list", "is a list"), ("the list", "is the list"), ("lists", "are lists")):
        register_formats(monkeypatch, one=[replace(DOUBTED, against=(against,), remedy="Drop it.")])
        (problem,) = recognize_folder(folder).problems
        assert (f"there {verb}" in problem.message, problem.remedy) == (True, "Drop it.")
    register_formats(monkeypatch, one=[replace(OBVIOUS, evidence=(text,)) for text in "ab"], two=[])
    (problem,) = recognize_folder(folder).problems
    assert (problem.message.count("One"), len(problem.choices)) == (1, 1)
    for format, phrase in (("two:x", "is not recognized as Two"), ("three", "There is no format “three”")):
        (problem,) = recognize(str(folder), val_fraction=0.25, seed=0, format=format).problems
        assert phrase in problem.message


def test_recognize_gives_a_remedy_for_kinds_without_a_task(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree("cat", "dog")
    for kind in ("sounds", "videos", "files of another program"):
        register_formats(monkeypatch, one=[Detection((kind,), Confidence.LIKELY)])
        found = recognize_folder(folder)
        (problem,) = found.problems
        assert found.other == kind
        assert kind in problem.message
        assert problem.remedy == KINDS["classes"].layout
