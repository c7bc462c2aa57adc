"""FIFOs, devices and sockets in place of regular files. Reports must name them, and nothing may wait for them.

Opening a FIFO without a writer blocks forever, so a test that hangs has found a defect.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.checks.disk import RealDisk
from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.data.datasets.images import DatasetError, ImageSet, UnreadableImage
from engine.data.datasets.open_splits import open_splits
from engine.data.datasets.samples import SampleSet
from engine.data.inspection.inspector import inspect
from engine.models import user_file, weights
from engine.models.base import TaskError
from engine.system.regular_files import LastOpened, UnusableFile, open_descriptor, open_regular, read_regular
from tests.attacks import hostile_folders as honest

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL = {"a FIFO": os.mkfifo, "a device": _device, "a socket": honest.make_socket}
KINDS = pytest.mark.parametrize("kind", SPECIAL)


def inspect_folder(folder: Path, kind: str) -> str:
    """Inspect a folder for annotations of `kind`, and return the texts of all problems."""
    report = inspect(
        str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None, kinds=(kind,), threads=1
    )
    return "\n".join(f"{each.message} {each.remedy}" for each in report.problems)


@KINDS
def test_open_regular_names_kind_of_special_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.png"
    SPECIAL[kind](path)

    for read in (open_regular, lambda path: read_regular(path, 100)):
        with pytest.raises(UnusableFile) as error:
            read(path)
        assert error.value.reason == f"is {kind}, not a regular file"


def test_last_opened_replaces_longer_paths() -> None:
    last = LastOpened()
    last.record("/ignored")
    assert last.path() == ""
    last.share()
    for path in ("/a/long/path", "/short"):
        last.record(path)
        assert last.path() == path


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("may_grow", [False, True])
def test_file_of_size_zero_is_read_only_if_it_may_grow(may_grow: bool) -> None:
    with os.fdopen(open_descriptor("/proc/self/status", may_grow=may_grow), "rb") as stream:
        assert bool(stream.read(1)) == may_grow


def test_read_regular_stops_at_reported_size(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"12345")

    assert read_regular(path, 5) == b"12345"
    with pytest.raises(UnusableFile, match="has 5 bytes; the maximum is 4"):
        read_regular(path, 4)
    # Its size is 0, but reading it yields half a terabyte.
    assert read_regular("/proc/self/pagemap", 1 << 20) == b""
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def _get_unreadable_reason(set_: ImageSet | SampleSet, name: str) -> str:
    """Load the image or sample `name`, which must fail, and return the reason. Return "" if there is no such name."""
    for index in range(len(set_)):
        if Path(set_.path(index)).name == name:
            with pytest.raises(UnreadableImage) as error:
                _ = set_.load(index, 16, 3) if isinstance(set_, ImageSet) else set_.load(index, 0)
            return error.value.reason
    return ""


@pytest.mark.parametrize(
    ("task", "make", "special", "name"),
    [
        ("classes", honest.write_class_folders, "cats/0.png", "0.png"),
        ("classes", honest.write_bands, "a/2.tif", "2.tif"),
        ("masks", honest.write_masks, "masks/1.png", "1.png"),
        ("masks", honest.write_masks, "images/1.png", "1.png"),
        ("edges", honest.write_edges, "edges/1.png", "1.png"),
        ("edges", honest.write_mats, "groundTruth/1.mat", "1.png"),
        ("instances", honest.write_masks, "masks/1.png", "1.png"),
        ("boxes", honest.write_coco, "images/1.png", "1.png"),
        ("labels", honest.write_table, "1.png", "1.png"),
        ("points", honest.write_clouds, "1.ply", "1.ply"),
        ("points", honest.write_las_clouds, "1.las", "1.las"),
    ],
)
def test_training_skips_and_names_fifo(
    tmp_path: Path, task: str, make: Callable[[Path], None], special: str, name: str
) -> None:
    make(tmp_path)
    (tmp_path / special).unlink()
    os.mkfifo(tmp_path / special)

    splits = open_splits(str(tmp_path), val_fraction=0.25, seed=0, kinds=(task,))

    reasons = [_get_unreadable_reason(half, name) for half in (splits.train, splits.val)]
    assert "it is a FIFO, not a regular file" in reasons


@pytest.mark.parametrize(
    ("task", "make", "special"),
    [
        ("classes", honest.write_idx_files, "train-images-idx3-ubyte"),
        ("classes", honest.write_idx_files, "train-labels-idx1-ubyte"),
        ("labels", honest.write_table, "labels.csv"),
        ("boxes", honest.write_coco, "annotations.json"),
        ("classes", honest.write_bands, "esri_model_definition.emd"),
    ],
)
def test_training_that_needs_special_file_is_refused(
    tmp_path: Path, task: str, make: Callable[[Path], None], special: str
) -> None:
    make(tmp_path)
    (tmp_path / special).unlink(missing_ok=True)
    os.mkfifo(tmp_path / special)

    with pytest.raises(DatasetError) as refused:
        open_splits(str(tmp_path), val_fraction=0.25, seed=0, kinds=(task,))

    (problem,) = refused.value.problems
    assert problem.message == f"{special} is a FIFO, not a regular file."
    assert problem.remedy == "Replace it with a regular file, or remove it."


def write_yolo_with_lists(folder: Path) -> None:
    """Write a YOLO dataset whose data.yaml refers to text files with lists of images."""
    honest.write_yolo(folder)
    (folder / "data.yaml").write_text("train: list.txt\nval: list.txt\nnames: [a, b]\n")
    (folder / "list.txt").write_text("".join(f"images/{number}.png\n" for number in range(4)))


def write_voc_with_lists(folder: Path) -> None:
    honest.write_voc(folder)
    (folder / "images").rename(folder / "JPEGImages")
    (folder / "annotations").rename(folder / "Annotations")
    (folder / "ImageSets" / "Main").mkdir(parents=True)


def by_darknets_lists(folder: Path) -> None:
    honest.write_yolo(folder)
    (folder / "images").rename(folder / "obj_train_data")
    for path in sorted((folder / "labels").iterdir()):
        path.rename(folder / "obj_train_data" / path.name)
    (folder / "labels").rmdir()


@pytest.mark.parametrize(
    ("task", "make", "special"),
    [
        ("boxes", write_yolo_with_lists, "list.txt"),
        ("boxes", write_yolo_with_lists, "images/1.png"),
        ("boxes", write_voc_with_lists, "ImageSets/Main/train.txt"),
        ("boxes", by_darknets_lists, "train.txt"),
        ("boxes", by_darknets_lists, "obj.names"),
        ("boxes", honest.write_coco, "images/1.png"),
        ("instances", honest.write_coco, "images/1.png"),
        ("boxes", honest.write_voc, "annotations/0.xml"),
        ("boxes", honest.write_kitti, "labels/0.txt"),
        ("labels", honest.write_table, "1.png"),
        ("labels", honest.write_json_table, "1.png"),
    ],
)
def test_special_file_in_list_is_named(tmp_path: Path, task: str, make: Callable[[Path], None], special: str) -> None:
    make(tmp_path)
    (tmp_path / special).unlink(missing_ok=True)
    os.mkfifo(tmp_path / special)

    report = inspect_folder(tmp_path, task)

    assert Path(special).name in report
    assert "is a FIFO, not a regular file" in report


@pytest.mark.parametrize(
    ("make", "ending"), [(honest.write_voc, "xml"), (honest.write_yolo, "txt"), (honest.write_kitti, "txt")]
)
def test_special_annotation_file_is_named(tmp_path: Path, make: Callable[[Path], None], ending: str) -> None:
    make(tmp_path)
    for path in sorted(tmp_path.rglob(f"*.{ending}")):
        path.unlink()
        os.mkfifo(path)

    assert f"0.{ending} is a FIFO, not a regular file. Replace it with a regular file" in inspect_folder(
        tmp_path, "boxes"
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("pipe.png", "pipe.png: it is a FIFO, not a regular file"),
        ("/dev/zero", "named in list.txt but not in the folder: zero."),
        ("../../../../../../../../../../dev/zero", "named in list.txt but not in the folder: zero."),
    ],
)
def test_entries_of_a_list_that_lead_elsewhere_are_named(tmp_path: Path, entry: str, message: str) -> None:
    write_yolo_with_lists(tmp_path)
    os.mkfifo(tmp_path / "pipe.png")
    with open(tmp_path / "list.txt", "a") as stream:
        stream.write(entry)

    assert message in inspect_folder(tmp_path, "boxes")


@pytest.mark.parametrize(
    ("entry", "phrase"),
    [
        ("pipe.png", "pipe.png: it is a FIFO, not a regular file"),
        ("../../../../../../../../../../dev/zero", "not in the folder: zero"),
    ],
)
@pytest.mark.parametrize("task", ["boxes", "instances"])
def test_json_names_of_special_files_are_reported(tmp_path: Path, entry: str, phrase: str, task: str) -> None:
    honest.write_coco(tmp_path)
    os.mkfifo(tmp_path / "images" / "pipe.png")
    content = honest.coco_content()
    content["images"][0]["file_name"] = entry
    (tmp_path / "annotations.json").write_text(json.dumps(content))

    assert phrase in inspect_folder(tmp_path, task)


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux' own")
@pytest.mark.parametrize(
    ("task", "make", "name"),
    [
        ("classes", honest.write_class_folders, "cats/0.png"),
        ("labels", honest.write_table, "labels.csv"),
        ("boxes", honest.write_yolo, "labels/0.txt"),
        ("points", honest.write_las_clouds, "1.las"),
    ],
)
def test_leased_file_is_not_waited_for(tmp_path: Path, task: str, make: Callable[[Path], None], name: str) -> None:
    import fcntl

    make(tmp_path)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it to ask the holder for the lease
    try:
        with open(tmp_path / name, "r+b") as held:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            report = inspect_folder(tmp_path, task)
    finally:
        signal.signal(signal.SIGIO, before)

    assert re.search(rf"{Path(name).name}:? (it )?is in use by another program", report)


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that has such files")
@pytest.mark.parametrize("leads_to", ["/proc/kmsg", "/proc/self/pagemap"])
@pytest.mark.parametrize(
    ("task", "make", "name"),
    [
        ("classes", honest.write_class_folders, "cats/0.png"),
        ("classes", honest.write_bands, "a/0.tif"),
        ("points", honest.write_clouds, "1.ply"),
        ("points", honest.write_las_clouds, "1.las"),
        ("classes", honest.write_idx_files, "train-images-idx3-ubyte"),
    ],
)
def test_endless_file_of_size_zero_reads_as_empty(
    tmp_path: Path, leads_to: str, task: str, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(leads_to)

    report = inspect_folder(tmp_path, task)

    assert re.search(rf"{Path(name).name}.*: it (is empty|is not an idx file|may not be read)", report)


@KINDS
def test_special_model_or_weights_file_is_refused(tmp_path: Path, kind: str) -> None:
    model, state = tmp_path / "model.py", tmp_path / "weights.pt"
    SPECIAL[kind](model)
    SPECIAL[kind](state)

    assert RealDisk().model_file(str(model)).sha256 is None
    with pytest.raises(TaskError, match=f"model.py is {kind}, not a regular file"):
        user_file.load_module(str(model), "0" * 64)
    with pytest.raises(TaskError, match=f"weights.pt is {kind}, not a regular file"):
        weights.read_file(str(state))
    found = problems(
        Job.from_fields(dataset=str(tmp_path), model=str(model), weights_file=str(state)),
        load_catalogue(),
        disk=RealDisk(),
    )
    messages = {problem.field: problem.message for problem in found}
    assert messages["model"] == f"The model file {model} is not a regular file."
    assert messages["weights_file"] == f"{state} is not a regular file."


def test_matlab_edges_are_read(tmp_path: Path) -> None:
    honest.write_mats(tmp_path)
    splits = open_splits(str(tmp_path), val_fraction=0.25, seed=0, kinds=("edges",))
    assert isinstance(splits.train, ImageSet)
    assert np.count_nonzero(splits.train.load(0, 20, 3)[-1]) == 20
