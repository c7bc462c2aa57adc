"""FIFOs, devices and sockets in the place of files: told as what they are, and nowhere waited for.

Whoever opens a FIFO that nobody writes to waits for ever, so that a test that hangs here has found one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.contract.catalogue import load_catalogue
from engine.contract.checks import problems
from engine.contract.disk import RealDisk
from engine.contract.job import Job
from engine.contract.regular_files import UnusableFile, open_regular, read_regular
from engine.data.opening import open_splits
from engine.data.pictures import DatasetError, PictureSet, UnreadablePicture
from engine.data.samples import SampleSet
from engine.tasks import user_file, weights
from engine.tasks.base import TaskError
from tests.attacks import hostile_folders as honest

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(60)]


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL = {"a FIFO": os.mkfifo, "a device": _device, "a socket": honest.make_socket}
KINDS = pytest.mark.parametrize("kind", SPECIAL)


@KINDS
def test_that_it_is_named_as_what_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.png"
    SPECIAL[kind](path)

    for read in (open_regular, lambda path: read_regular(path, 100)):
        with pytest.raises(UnusableFile) as told:
            read(path)
        assert told.value.words == f"is {kind}, not a regular file"


def test_that_a_file_is_read_as_far_as_it_says_that_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"12345")

    assert read_regular(path, 5) == b"12345"
    with pytest.raises(UnusableFile, match="has 5 bytes, and may have 4 at most"):
        read_regular(path, 4)
    # It says that it is empty, and goes on for half a terabyte.
    assert read_regular("/proc/self/pagemap", 1 << 20) == b""
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def _unreadable(set_: PictureSet | SampleSet, name: str) -> str:
    """Why the image of that name cannot be loaded, or the sample."""
    for index in range(len(set_)):
        if Path(set_.path(index)).name == name:
            with pytest.raises(UnreadablePicture) as told:
                _ = set_.load(index, 16, 3) if isinstance(set_, PictureSet) else set_.load(index, 0)
            return told.value.reason
    return ""


@pytest.mark.parametrize(
    ("task", "make", "special", "name"),
    [
        ("imagefolder", honest.by_class, "cats/0.png", "0.png"),
        ("imagefolder", honest.with_bands, "a/2.tif", "2.tif"),
        ("masks", honest.with_masks, "masks/1.png", "1.png"),
        ("masks", honest.with_masks, "images/1.png", "1.png"),
        ("edges", honest.with_edges, "edges/1.png", "1.png"),
        ("edges", honest.with_mats, "groundTruth/1.mat", "1.png"),
        ("instances", honest.with_masks, "masks/1.png", "1.png"),
        ("boxes", honest.with_coco, "images/1.png", "1.png"),
        ("labels", honest.with_table, "1.png", "1.png"),
        ("points", honest.with_clouds, "1.ply", "1.ply"),
        ("points", honest.with_las, "1.las", "1.las"),
    ],
)
def test_that_a_training_passes_over_a_fifo_and_names_it(
    tmp_path: Path, task: str, make: Callable[[Path], None], special: str, name: str
) -> None:
    make(tmp_path)
    (tmp_path / special).unlink()
    os.mkfifo(tmp_path / special)

    splits = open_splits(str(tmp_path), val_fraction=0.25, seed=0, formats=(task,))

    reasons = [_unreadable(half, name) for half in (splits.train, splits.val)]
    assert "it is a FIFO, not a regular file" in reasons


@pytest.mark.parametrize(
    ("task", "make", "special"),
    [
        ("idx", honest.with_idx, "train-images-idx3-ubyte"),
        ("idx", honest.with_idx, "train-labels-idx1-ubyte"),
        ("labels", honest.with_table, "labels.csv"),
        ("boxes", honest.with_coco, "annotations.json"),
        ("imagefolder", honest.with_bands, "esri_model_definition.emd"),
    ],
)
def test_that_a_training_that_needs_it_is_refused_with_its_name(
    tmp_path: Path, task: str, make: Callable[[Path], None], special: str
) -> None:
    make(tmp_path)
    (tmp_path / special).unlink(missing_ok=True)
    os.mkfifo(tmp_path / special)

    with pytest.raises(DatasetError) as refused:
        open_splits(str(tmp_path), val_fraction=0.25, seed=0, formats=(task,))

    (problem,) = refused.value.problems
    assert problem.message == f"{special} is a FIFO, not a regular file."
    assert problem.remedy == "Replace it by a regular file, or remove it."


@KINDS
def test_that_a_model_file_and_a_weights_file_are_refused(tmp_path: Path, kind: str) -> None:
    model, state = tmp_path / "model.py", tmp_path / "weights.pt"
    SPECIAL[kind](model)
    SPECIAL[kind](state)

    assert RealDisk().model_file(str(model)).sha256 is None
    with pytest.raises(TaskError, match=f"model.py is {kind}, not a regular file"):
        user_file.opened(str(model), "0" * 64)
    with pytest.raises(TaskError, match=f"weights.pt is {kind}, not a regular file"):
        weights.from_file(str(state))
    told = problems(
        Job(dataset=str(tmp_path), model=str(model), weights_file=str(state)), load_catalogue(), disk=RealDisk()
    )
    said = {problem.field: problem.message for problem in told}
    assert said["model"] == f"The model file {model} is not a regular file."
    assert said["weights_file"] == f"{state} is not a regular file."


def test_that_edges_of_matlabs_are_read_as_they_were(tmp_path: Path) -> None:
    honest.with_mats(tmp_path)
    splits = open_splits(str(tmp_path), val_fraction=0.25, seed=0, formats=("edges",))
    assert isinstance(splits.train, PictureSet)
    assert np.count_nonzero(splits.train.load(0, 20, 3)[-1]) == 20
