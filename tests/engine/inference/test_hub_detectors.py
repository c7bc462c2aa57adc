"""Uses of a trained detector of transformers: evaluation, review, predictions, tiles, heat maps, ONNX."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.contract.inference.conversion import ConvertOrder, read_converted
from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.review import ReviewOrder, decode_review
from engine.inference import Run
from engine.inference.conversion.convert import convert
from engine.inference.evaluation import bootstrap
from engine.inference.evaluation.evaluate import evaluate
from engine.inference.review.review import review
from engine.runs.evaluations import read_evaluation
from engine.tasks.predictions import Objects
from tests.engine.inference.explanation.test_explain import explained, first_image
from tests.support.trained_runs import Trained, train
from tests.support.worker_group import Forker

pytest.importorskip("transformers", reason="needs footplate[transformers]")

SIDE = 64


@pytest.fixture(scope="module")
def run(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("hub")
    return train(forker, folder, "detection", model="dfine_n", image_size=SIDE, learning_rate=1e-3, encoder="")


def test_evaluation_repeats_the_validation_and_is_reviewed(
    run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 60)
    folder = Path(shutil.copytree(run.run.path, tmp_path / "run"))
    saved = evaluate(EvaluateOrder(run=str(folder), checkpoint="last"), lambda _: None).parent
    measured = read_evaluation(saved).evaluation.measures
    assert measured["map"].value == pytest.approx(run.measures["map"], abs=1e-6)
    worst = decode_review(review(ReviewOrder(run=str(folder)), lambda _: None).read_bytes()).worst
    assert worst
    assert all(Path(sample.file).is_file() for sample in worst)


def test_large_image_is_predicted_in_tiles(run: Trained) -> None:
    model = Run(run.run.path).load("last", "cpu")
    image = np.random.default_rng(0).integers(0, 256, (100, 150, 3), dtype=np.uint8)
    (found,) = model.predict([image], tile=SIDE, overlap=0.2)
    assert isinstance(found, Objects)
    assert found.boxes.shape[1] == 4
    assert found.boxes.max(initial=0) <= 150


def test_heat_maps_explain_detections(run: Trained, tmp_path: Path) -> None:
    image = first_image(Path(run.job.data.dataset))
    made = explained(run, tmp_path / "out", image)
    assert made.images[0].maps


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["dfine_n", "rtdetrv2_r18"])
def test_onnx_gives_the_same_detections(name: str, run: Trained, forker: Forker, tmp_path: Path) -> None:
    of = run
    if name != run.job.model.name:
        of = train(forker, tmp_path, "detection", model=name, image_size=SIDE, learning_rate=1e-3, encoder="")
    order = ConvertOrder(run=str(of.run.path), checkpoint="last", to=("onnx",), out=str(tmp_path / "out"))
    (compared,) = read_converted(convert(order, lambda _: None)).compared
    assert max(each.difference / max(1.0, each.largest_output) for each in compared.differences) <= 1e-3
    for metric, value in compared.torch_measures.items():
        assert compared.measures[metric] == pytest.approx(value, abs=1e-3, rel=1e-3)
