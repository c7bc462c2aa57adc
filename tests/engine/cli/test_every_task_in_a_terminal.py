"""A run of every task: evaluated, explained, reviewed, converted and used for predictions in the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.inference.explanation import EXPLANATION_FILE
from engine.contract.inference.prediction import PREDICTED, PREDICTIONS_FILE
from engine.runs.evaluations import read_evaluations
from tests.engine.cli.terminal import footplate
from tests.support.consent import permit_model_file
from tests.support.trained_runs import COUNTING, DATASETS, train_small_model
from tests.support.worker_group import Forker

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ANNOTATIONS = {"masks", "edges", "labels", "SegmentationClass"}
"""Names of folders whose images are annotations."""


def source_of(dataset: Path, task: str) -> Path:
    """Return an input for `footplate predict`: an image, a point cloud, or the dataset of a custom task."""
    if task == "custom":
        return dataset
    files = (file for file in sorted(dataset.rglob("*")) if file.suffix in (".png", ".jpg", ".ply"))
    return next(file for file in files if not ANNOTATIONS & set(file.parts))


@pytest.mark.parametrize("task", list(DATASETS))
def test_commands_serve_every_task(task: str, forker: Forker, tmp_path: Path) -> None:
    permit_model_file(COUNTING)
    trained = train_small_model(forker, tmp_path, task)
    run, source = str(trained.run.path), source_of(Path(trained.job.data.dataset), task)
    last = ("--checkpoint", "last")

    answer = footplate("evaluate", run, *last)
    assert answer.code == 0, answer.err
    (saved,) = read_evaluations(trained.run.path)
    measured = {name: interval.value for name, interval in saved.evaluation.measures.items()}
    assert {name: measured[name] for name in trained.measures} == pytest.approx(trained.measures, abs=1e-5)

    answer = footplate("predict", run, str(source), *last, "--out", str(tmp_path / "predicted"))
    assert answer.code == 0, answer.err
    predicted = PREDICTED.decode((tmp_path / "predicted" / PREDICTIONS_FILE).read_bytes())
    assert predicted.predicted == predicted.samples > 0

    image = next(source.rglob("*.png")) if source.is_dir() else source
    answer = footplate("explain", run, str(image), *last, "--out", str(tmp_path / "explained"))
    if task == "point_segmentation":
        assert answer.code == 2
        assert "point cloud" in answer.err.lower()
    else:
        assert answer.code == 0, answer.err
        assert (tmp_path / "explained" / EXPLANATION_FILE).exists()

    answer = footplate("review", run)
    assert answer.code == 0, answer.err

    answer = footplate("convert", run, "--to", "safetensors", *last, "--out", str(tmp_path / "converted"))
    assert answer.code == 0, answer.err
    assert (tmp_path / "converted" / "model.safetensors").exists()
