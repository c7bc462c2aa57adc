"""Inspector process: results, problems, speed and memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from PIL import Image

from engine.contract.dataset import INSPECTION, DatasetReport, ImageSizes, InspectionProgress
from engine.contract.messages import Done
from engine.contract.problems import errors
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.reading import count_folder_channels
from engine.data.inspection import imagefolder
from engine.data.inspection.inspector import inspect, measure_image_sizes
from engine.system.paths import sample_dataset
from tests.engine.supervisor.supervised import wait_until_exited
from tests.support.images import write_idx, write_image, write_noise
from tests.support.masks import make_masked
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[4]
COMMAND = (sys.executable, "-m", "engine.data")
Tree = Callable[..., Path]


def inspect_folder(folder: Path) -> DatasetReport:
    return inspect(str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None)


def texts(report: DatasetReport, severity: str) -> str:
    return " ".join(str(problem) for problem in report.problems if problem.severity == severity)


def run_inspector(folder: Path | str, *options: str) -> tuple[list[InspectionProgress], DatasetReport, str]:
    """Run the inspector in a child process. Return its progress messages, its report and its standard error."""
    outcome = subprocess.run([*COMMAND, str(folder), *options], cwd=ROOT, capture_output=True, check=True, timeout=120)
    *progress, last = [INSPECTION.decode(line) for line in outcome.stdout.splitlines()]
    assert isinstance(last, Done)
    found = [message for message in progress if isinstance(message, InspectionProgress)]
    assert len(found) == len(progress)
    return found, last.answer, outcome.stderr.decode()


def test_included_sample_is_complete() -> None:
    report = inspect_folder(sample_dataset())
    assert report.problems == ()
    assert report.unreadable_count == 0
    assert (report.format, report.channels, len(report.classes)) == ("imagefolder", 1, 10)
    assert report.sizes is not None
    assert report.sizes.smallest == report.sizes.largest == (28, 28)
    assert [(split.name, split.images, split.is_drawn) for split in report.splits] == [
        ("train", 350, False),
        ("val", 100, False),
    ]
    files = [path for path in sample_dataset().rglob("*") if path.is_file()]
    assert {"LICENSE.txt", "SOURCE.md"} <= {path.name for path in files}
    on_disk = sum(-(-path.stat().st_size // 4096) * 4096 for path in files)
    assert on_disk <= 2_000_000


def test_report_has_counts_classes_and_examples(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree("cat", "dog", "emu", count=8)
    monkeypatch.setenv("HOME", str(folder.parent))
    report = inspect_folder(Path("~", folder.name))
    assert report.folder == str(folder)
    assert report.classes == ("cat", "dog", "emu")
    assert [split.counts for split in report.splits] == [
        dict.fromkeys(report.classes, 6),
        dict.fromkeys(report.classes, 2),
    ]
    assert [split.is_drawn for split in report.splits] == [False, True]
    assert [example.class_name for example in report.examples] == ["cat"] * 4 + ["dog"] * 4 + ["emu"] * 4


def test_examples_are_small_pngs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for place in range(3):
            write_noise(tmp_path / "set" / name / f"{place}.jpg", place, size=(800, 300))
    for example in inspect_folder(tmp_path / "set").examples:
        with Image.open(BytesIO(example.png)) as image:
            assert (image.format, image.size) == ("PNG", (384, 144))


@pytest.fixture
def mixed(tree: Tree) -> Path:
    """Create a folder of valid images and many kinds of bad files."""
    root = tree("train/a", "train/b", "val/a", "val/b", count=3)
    (root / "train/a/empty.png").write_bytes(b"")
    (root / "train/a/notes.txt").write_text("no image")
    (root / "train/a/text.jpg").write_text("no image")
    (root / "train/a/huge.pgm").write_bytes(b"P5 20000 20000 255\n")
    for place, ending in enumerate(("jpg", "png", "webp", "bmp", "tif", "gif")):
        path = write_noise(root / f"train/b/cut.{ending}", place)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (root / "val/b/gone.png").symlink_to(root / "nowhere.png")
    return root


def test_unreadable_files_are_counted_and_named(mixed: Path) -> None:
    report = inspect_folder(mixed)
    reasons = {item.path: item.reason for item in report.unreadable}
    assert report.unreadable_count == len(reasons) == 11
    assert reasons["train/a/empty.png"] == "it is empty"
    assert "too large" in reasons["train/a/huge.pgm"]
    assert "(.txt)" in reasons["train/a/notes.txt"]
    assert "not a readable image" in reasons["train/a/text.jpg"]
    assert "does not exist" in reasons["val/b/gone.png"]
    assert [split.counts for split in report.splits] == [{"a": 3, "b": 3}] * 2
    assert not errors(report.problems)
    assert "11 files are left out (train/a/" in texts(report, "warning")


def test_training_and_inspection_read_same_files(mixed: Path) -> None:
    from engine.data.datasets.images import UnreadableImage

    reported = {item.path for item in inspect_folder(mixed).unreadable} - {"train/a/notes.txt"}
    splits = open_splits(str(mixed), val_fraction=0.25, seed=0)
    found = set()
    for split in (splits.train, splits.val):
        for index in range(len(split)):
            try:
                split.load(index, 16, 3)
            except UnreadableImage as problem:
                found.add(problem.path)
    assert found == reported


def test_truncated_large_photo_is_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for place in range(3):
            write_image(tmp_path / "set" / name / f"{place}.jpg")
    path = write_noise(tmp_path / "set/a/photo.jpg", size=(1200, 900))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.97)])
    assert [item.path for item in inspect_folder(tmp_path / "set").unreadable] == ["a/photo.jpg"]


def damage_within(path: Path) -> None:
    """Damage the pixels of a PNG, but not the start and the end of the file."""
    content = path.read_bytes()
    path.write_bytes(content[:60] + bytes(len(content) - 80) + content[-20:])


def test_small_folder_is_decoded_completely(tmp_path: Path) -> None:
    for place in range(40):
        write_noise(tmp_path / "set" / "ab"[place % 2] / f"{place}.png", place)
    damage_within(tmp_path / "set/b/1.png")
    write_image(tmp_path / "set/a/odd.bmp")
    report = inspect_folder(tmp_path / "set")
    assert [item.path for item in report.unreadable] == ["b/1.png"]
    assert [example.class_name for example in report.examples] == ["a"] * 6 + ["b"] * 6
    assert "sample" not in texts(report, "warning")


def test_number_of_decoded_odd_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagefolder, "MAX_INCOMPLETE_DECODED", 4)
    for place in range(10):
        path = write_noise(tmp_path / "set" / "ab"[place % 2] / f"{place}.bmp", place)
        path.write_bytes(path.read_bytes()[:2000])
    for name in "ab":
        (tmp_path / "set" / name / "text.bmp").write_text("no image")
    report = inspect_folder(tmp_path / "set")
    reasons = [item.reason for item in report.unreadable]
    assert reasons.count("it is truncated or damaged") == 4
    assert reasons.count("it is not a readable image") == 2


def test_split_without_readable_image_is_an_error(tree: Tree) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b")
    for path in root.glob("*/*/*.png"):
        path.write_bytes(b"no")
    report = inspect_folder(root)
    assert "No training image can be read (4 images)" in texts(report, "error")
    assert "No validation image can be read (4 images)" in texts(report, "error")
    assert report.unreadable_count == 8


def test_class_without_readable_image_is_named(tree: Tree) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b")
    for path in [*root.glob("train/a/*"), *root.glob("val/b/*")]:
        path.write_bytes(b"no")
    report = inspect_folder(root)
    assert "training image of class a" in texts(report, "error")
    assert "validation image of class b" in texts(report, "warning")


def test_channels_match_training(tree: Tree) -> None:
    root = tree("a", "b")
    for path in root.glob("*/*.png"):
        write_image(path, 80, mode="L")
    assert inspect_folder(root).channels == open_splits(str(root), val_fraction=0.25, seed=0).channels == 1
    path = write_noise(root / "a/color.png")
    path.write_bytes(path.read_bytes()[:500])  # the header of the truncated file still has the color
    assert inspect_folder(root).channels == open_splits(str(root), val_fraction=0.25, seed=0).channels == 3


class CountingList(list[str]):
    """List that counts accesses to its elements in `access_count`."""

    access_count = 0

    def __getitem__(self, place: Any) -> Any:
        self.access_count += 1
        return super().__getitem__(place)


def test_channels_are_read_from_few_images(tmp_path: Path) -> None:
    gray = str(write_image(tmp_path / "gray.png", 80, mode="L"))
    color = str(write_image(tmp_path / "color.png"))
    many = CountingList([gray] * 100_000)
    assert count_folder_channels(many) == 1
    assert 100 < many.access_count <= 512
    assert count_folder_channels(many, [color]) == 3
    assert count_folder_channels(CountingList([gray] * 50_000 + [color] * 50_000)) == 3


def test_report_has_names_that_are_not_utf8(tree: Tree) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b")
    for split in ("train", "val"):
        os.rename(os.fsencode(root / split / "b"), os.fsencode(root / split) + b"/b\xe9")
    shutil.copyfile(root / "train/a/0.png", os.fsencode(root / "train/a") + b"/ca\xff.png")
    Path(os.fsdecode(os.fsencode(root / "train/a") + b"/bad\xff.png")).write_bytes(b"")
    report = inspect_folder(root)
    assert report.classes == ("a", "b\\xe9")
    assert report.splits[0].counts == {"a": 3, "b\\xe9": 2}
    assert [item.path for item in report.unreadable] == ["train/a/bad\\xff.png"]
    assert msgspec.json.decode(msgspec.json.encode(report), type=DatasetReport) == report


def test_idx_is_inspected(digits: Path) -> None:
    report = inspect_folder(digits)
    assert (report.format, report.channels, report.classes) == ("idx", 1, tuple("0123456789"))
    assert [(split.name, split.counts["7"]) for split in report.splits] == [("train", 4), ("val", 2)]
    assert {each.split for each in report.examples} == {"train"}
    assert len(report.examples) == 12
    assert report.problems == ()


def test_idx_examples_show_their_classes(tmp_path: Path) -> None:
    labels = np.arange(40) % 4
    write_idx(tmp_path / "train-labels-idx1-ubyte", labels)
    write_idx(tmp_path / "train-images-idx3-ubyte", np.tile(20 * labels[:, None, None], (8, 8)))
    progress: list[tuple[int, int]] = []
    report = inspect(str(tmp_path), val_fraction=0.25, seed=0, progress=lambda *numbers: progress.append(numbers))
    assert progress[-2:] == [(32, 40), (40, 40)]
    assert [split.is_drawn for split in report.splits] == [False, True]
    for each in report.examples:
        with Image.open(BytesIO(each.png)) as image:
            assert image.getpixel((0, 0)) == 20 * int(each.class_name)


@pytest.mark.parametrize("split", ["train", "t10k"])
def test_idx_count_mismatch_is_named(digits: Path, split: str) -> None:
    write_idx(digits / f"{split}-images-idx3-ubyte", np.zeros((7, 28, 28)))
    assert f"{split}-images-idx3-ubyte holds 7 images" in texts(inspect_folder(digits), "error")


def test_real_datasets_are_inspected(real_dataset: Path) -> None:
    _, report, complaints = run_inspector(real_dataset)
    assert report.problems == ()
    assert complaints == ""
    assert [split.images for split in report.splits] in ([244, 153], [60_000, 10_000])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["images", "digits"])
def test_inspection_is_fast(tmp_path: Path, kind: str) -> None:
    """Inspect as many images as the dataset hymenoptera has, or a tenth as many digits as MNIST has, within 3 s."""
    random = np.random.default_rng(0)
    for split, count, digits in (("train", 244, 6_000), ("val", 153, 1_000)):
        if kind == "digits":
            name = "t10k" if split == "val" else "train"
            write_idx(tmp_path / f"{name}-images-idx3-ubyte", random.integers(0, 256, (digits, 28, 28), np.uint8))
            write_idx(tmp_path / f"{name}-labels-idx1-ubyte", np.arange(digits) % 10)
            continue
        for number in range(count):
            write_noise(
                tmp_path / split / ("ants", "bees")[number % 2] / f"{number}.jpg", 2 * number + digits, size=(160, 120)
            )
    _, report, complaints = run_inspector(tmp_path)
    assert report.problems == ()
    assert complaints == ""
    assert [split.images for split in report.splits] == ([244, 153] if kind == "images" else [6_000, 1_000])
    assert report.seconds < 3


def test_process_prints_progress_then_report(tmp_path: Path) -> None:
    folder = make_masked(tmp_path, {"train": 9})
    options = (
        "--val-fraction",
        "0.3",
        "--seed",
        "4",
        "--samples",
        "2",
        "--kinds",
        "masks,boxes",
        "--ignore-value",
        "1",
    )
    progress, report, complaints = run_inspector(folder, *options)
    assert progress[0] == InspectionProgress(0, 0)
    expected = inspect(
        str(folder), val_fraction=0.3, seed=4, samples=2, kinds=("masks", "boxes"), ignored=1, progress=lambda *_: None
    )
    assert expected.classes == ("class 0", "class 2")
    assert report == msgspec.structs.replace(expected, seconds=report.seconds)
    assert complaints == ""


def test_progress_is_rate_limited(tmp_path: Path) -> None:
    for place in range(300):
        write_noise(tmp_path / "set" / "ab"[place % 2] / f"{place}.bmp", place, size=(8, 8))
    progress, report, _ = run_inspector(tmp_path / "set")
    assert len(progress) <= report.seconds * 10 + 2


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Create a dataset of 2,000 large images, whose inspection takes very long, and return its folder."""
    first = write_noise(tmp_path / "set/a/0.png", size=(1500, 1500))
    (tmp_path / "set/b").mkdir()
    for place in range(1, 2000):
        os.link(first, tmp_path / "set" / "ab"[place % 2] / f"{place}.png")
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param(
            lambda process: process.send_signal(signal.SIGINT),
            130,
            id="interrupted",
            marks=pytest.mark.skipif(os.name == "nt", reason="signals differ there"),
        ),
        pytest.param(lambda process: process.stdout.close(), 0, id="closed pipe"),
    ],
)
def test_inspector_ends_quietly(endless: Path, end: Callable[[Any], None], code: int) -> None:
    with subprocess.Popen(
        [*COMMAND, str(endless)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        end(process)
        assert process.wait(timeout=120) == code
        assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the closed pipe ends it")
def test_inspector_dies_with_its_parent(endless: Path, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; p = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], 'wb'));"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    output = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(output), *COMMAND, str(endless)], cwd=ROOT, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: output.stat().st_size, "the inspector's output")
        assert child.is_running()
        parent.kill()
        wait_until_exited([child])


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs another user to run as")
def test_forbidden_folder_is_reported(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        root = shutil.copytree(tree("train/a", "train/b", "val/a", "val/b"), Path(open_to_all) / "set")
        inspect_folder(root)  # load Pillow's plugins now, because another user may be unable to
        os.chmod(root / "val/a/1.png", 0)
        os.seteuid(65534)
        try:
            single = inspect_folder(root)
            os.seteuid(0)
            os.chmod(root / "train/b", 0)
            os.seteuid(65534)
            folder = inspect_folder(root)
        finally:
            os.seteuid(0)
    assert [(item.path, item.reason) for item in single.unreadable] == [
        ("val/a/1.png", "it can't be read (permission denied)")
    ]
    assert not errors(single.problems)
    assert "train/b. Give yourself permission to read it" in texts(folder, "error")
    assert "permission" in texts(folder, "error")


def test_image_sizes_are_smallest_median_and_largest(tmp_path: Path) -> None:
    files = []
    for number, (width, height) in enumerate(((40, 30), (10, 12), (80, 20), (5, 100), (200, 100))):
        files.append(str(tmp_path / f"{number}.png"))
        Image.new("L", (width, height)).save(files[-1])
    (tmp_path / "broken.png").write_bytes(b"no image")
    assert measure_image_sizes([*files, str(tmp_path / "broken.png")]) == ImageSizes((10, 12), (40, 30), (200, 100), 5)
    assert measure_image_sizes([str(tmp_path / "broken.png")]) is None
    assert measure_image_sizes([]) is None
