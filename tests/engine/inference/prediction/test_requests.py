"""Problems with prediction requests, and predictions for frames of a video."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.events import Planned
from engine.contract.images import Framing, Preprocessing
from engine.contract.inference.prediction import PredictRequest
from engine.contract.job import Job
from engine.contract.protocol import ENCODE
from engine.inference import Run
from engine.inference.prediction.predict import MIN_TILE, predict
from engine.inference.prediction.sources import list_sources
from engine.inference.trained_model import CannotLoad
from engine.runs.folder import create_run
from engine.tasks.predictions import Labels
from tests.engine.cli.terminal import footplate
from tests.support.trained_runs import TrainedRun

Make = Callable[[str], TrainedRun]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for number, name in enumerate(("a.png", "a.bmp", "A.jpg")):
        Image.fromarray(np.full((30, 20, 3), 80 * number, np.uint8)).save(folder / name)
    return folder


def test_result_files_have_unique_names(images: Path) -> None:
    (images / "out/masks").mkdir(parents=True)
    for _ in range(2):
        sources = list_sources((str(images), str(images / "a.png")), "images", str(images / "out"))
        assert [Path(file).name for file in sources.files] == ["A.jpg", "a.bmp", "a.png", "a.png"]
        assert list(sources.names) == ["A", "a-bmp", "a-png", "a-png-2"]
        (images / "out/masks/a.png").touch()
    assert list(list_sources((str(images / "a.bmp"), str(images / "A.jpg")), "images", "out").names) == ["a", "A-jpg"]
    (images / "deep").mkdir()
    (images / "a.png").rename(images / "deep/A.MP4")
    (images / "out2").mkdir()
    (images / "out2/b.png").touch()
    found = list_sources((str(images), "camera:1"), "images", str(images / "out"))
    assert list(found.files) == [
        *(str(images / name) for name in ("A.jpg", "a.bmp", "deep/A.MP4", "out2/b.png")),
        "camera:1",
    ]
    assert list(found.names) == ["A", "a-bmp", "deep/A", "out2/b", "camera-1"]
    identities = {
        each.identity for each in (found, found._replace(files=found.names), found._replace(names=found.files))
    }
    assert len(identities) == 3
    for paths in ((str(images), str(images)), (str(images / "a.bmp"),)):
        with pytest.raises(CannotLoad):
            list_sources(paths, "folder", "out")
    with pytest.raises(CannotLoad, match="No files are chosen"):
        list_sources((), "images", "out")


def list_refusals(trained: TrainedRun, out: Path, *paths: str, **fields: Any) -> list[tuple[str, str]]:
    """Return the problems with an invalid prediction request as pairs (field, message).

    The request is for `paths`, with `fields` in place of the defaults. Checks that each problem has a remedy.
    """
    values = {"run": str(trained.run.path), "checkpoint": "last"} | fields
    with pytest.raises(CannotLoad) as found:
        predict(PredictRequest(paths=paths, out=str(out), **values), print)
    assert all(problem.remedy for problem in found.value.problems)
    return [(problem.field, problem.message) for problem in found.value.problems]


def test_request_reports_all_problems(
    trained: Make, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, out = trained("classification"), tmp_path / "out"
    (tmp_path / "empty").mkdir()
    values = {"formats": ("coco",), "tile": 4, "overlap": 1.0, "threshold": 2.0}
    paths = (str(images), str(tmp_path / "none"), str(tmp_path / "empty"), "camera:0")
    problems = list_refusals(of, out, *paths, **values)
    fields = ["formats", "tile", "tile", "overlap", "threshold", "max_frames", "paths", "paths"]
    assert [field for field, _ in problems] == fields
    assert problems[0][1] == "Results of this task can't be written as coco."
    assert problems[-2][1] == f"There is no file or folder {tmp_path / 'none'}."
    assert problems[-1][1] == f"The folder {tmp_path / 'empty'} holds no image."
    for values in ({"overlap": 0.9, "threshold": 1.0, "max_frames": 0}, {"overlap": 0.0, "threshold": 0.0}):
        assert [field for field, _ in list_refusals(of, out, str(images), "camera:0", **values)] == ["max_frames"]
    (images / "film.mp4").touch()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cv2", None)
        assert list_refusals(of, out, str(images)) == [("paths", "Videos and cameras need OpenCV.")]
    none = str(tmp_path / "none")  # whose problem ends each request
    for values, expected in (
        ({"tile": MIN_TILE, "max_frames": 1}, ["tile", "paths"]),
        ({"overlap": -0.1, "threshold": -0.1}, ["overlap", "threshold", "paths"]),
    ):
        assert [field for field, _ in list_refusals(of, out, none, **values)] == expected
    assert not out.exists()


@pytest.mark.parametrize(
    ("task", "framing", "message"),
    [
        ("point_segmentation", "", "holds no point cloud"),
        ("custom", "", "The run's own task takes a folder."),
        ("custom", "crop", "There is no file or folder"),
        ("custom", None, "There is no file or folder"),
    ],
)
def test_sources_suit_the_model(task: str, framing: Framing | None, message: str, images: Path, tmp_path: Path) -> None:
    run = create_run(Job.from_fields(task=task))
    planned = Planned(
        epochs=1,
        steps_per_epoch=1,
        train_images=1,
        val_images=1,
        classes=("a",),
        image_size=8,
        parameters=1,
        trainable_parameters=1,
        preprocessing=Preprocessing(framing=framing, mean=(), std=()) if framing is not None else None,
    )
    run.events_file.write_bytes(ENCODE.encode(planned) + b"\n")
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "last.pt").touch()
    path = images if task == "point_segmentation" else images / "none"
    request = PredictRequest(run=str(run.path), checkpoint="last", paths=(str(path),), out=str(tmp_path / "out"))
    with pytest.raises(CannotLoad, match=message):
        predict(request, print)


def test_existing_files_are_not_overwritten(trained: Make, images: Path, tmp_path: Path) -> None:
    of = trained("classification")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    assert list_refusals(of, tmp_path / "mine", str(images)) == [
        ("out", f"The folder {tmp_path / 'mine'} is not empty.")
    ]
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]
    file = tmp_path / "mine" / "thesis.txt"
    assert list_refusals(of, file, str(images)) == [("out", f"{file} is a file.")]
    assert list_refusals(of, file / "out", str(images)) == [
        ("out", f"The results can't be written into {file / 'out'}: Not a directory.")
    ]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write to")
def test_unwritable_folder_is_reported(trained: Make, images: Path) -> None:
    ((field, message),) = list_refusals(trained("classification"), Path("/proc/self/out"), str(images))
    assert field == "out"
    assert message.startswith("The results can't be written into /proc/self/out: ")


def test_unreadable_files_are_reported(trained: Make, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("broken.png", "other.png")]
    paths[0].touch()
    paths[1].write_bytes(b"no image")
    ((field, message),) = list_refusals(trained("classification"), tmp_path / "out", *map(str, paths))
    assert (field, message) == (
        "paths",
        f"None of the files can be read. The first, {tmp_path / 'broken.png'}: it is empty.",
    )


@pytest.mark.long
def test_command_matches_the_python_api(trained: Make, images: Path, tmp_path: Path) -> None:
    of, out = trained("classification"), tmp_path / "out"
    answer = footplate(
        "predict",
        str(of.run.path),
        str(images),
        "--checkpoint",
        "last",
        "--devices",
        "cpu",
        "--out",
        str(out),
        "--json",
    )
    assert answer.code == 0, answer.err
    content = json.loads(answer.out)
    assert content["predicted"] == 3
    assert content["files"] == [{"path": "predictions.csv", "format": "csv", "count": 1}]
    with open(out / "predictions.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    results = Run(of.run.path).load("last", "cpu").predict([row["path"] for row in rows])
    for row, one in zip(rows, results, strict=True):
        assert isinstance(one, Labels)
        assert row["predicted"] == one.classes[one.ranked_classes[0][0]]
        assert float(row["probability"]) == pytest.approx(one.ranked_classes[1][0], abs=2e-6)
    answer = footplate("predict", str(of.run.path), str(images), "--format", "xml", "--devices", "cpu")
    assert answer.code == 2
    assert "There is no format “xml”." in answer.err
