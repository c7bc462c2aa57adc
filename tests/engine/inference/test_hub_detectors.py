"""Trained transformers detectors: evaluation, review, predictions, tiles, heat maps, ONNX."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tqdm import tqdm

from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.review import ReviewOrder, decode_review
from engine.inference import Run
from engine.inference.conversion.static_detectors import TRANSLATIONS
from engine.inference.evaluation import bootstrap
from engine.inference.evaluation.evaluate import evaluate
from engine.inference.review.review import review
from engine.runs.evaluations import read_evaluation
from engine.tasks.predictions import Objects
from tests.engine.inference.explanation.test_explain import explained, first_image
from tests.support.trained_runs import Trained, train
from tests.support.worker_group import Forker

pytest.importorskip("transformers", reason="needs footplate[transformers]")

from tests.support.hub_models import tiny

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
@pytest.mark.parametrize("name", ["tiny_dfine", "tiny_rtdetrv2", "tiny_rfdetr"])
def test_exported_file_gives_the_same_detections_for_any_batch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # the exporter's bars would leave a thread behind
    torch.manual_seed(0)
    model: Any = tiny(name).build(4, 3)
    model.fit_size(name, 2 * SIDE)
    _learn_statistics(model)
    images = torch.rand(4, 3, 2 * SIDE, 2 * SIDE)
    torch.onnx.export(
        model,
        (images[:2],),
        tmp_path / "model.onnx",
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        custom_translation_table=TRANSLATIONS,
    )
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for count in (1, 2, 4):
        (found,) = session.run(None, {session.get_inputs()[0].name: images[:count].numpy()})
        with torch.no_grad():
            expected = model(images[:count])
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-3)


@torch.no_grad()
def _learn_statistics(model: torch.nn.Module) -> None:
    """Give BatchNorm the statistics of noise.

    Otherwise, deep features grow until rounding errors determine the order of scores.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = None
    targets = torch.tensor([[[10.0, 10, 60, 60, 0, 0]]]).repeat(4, 1, 1)
    for _ in range(3):
        model.train()(torch.rand(4, 3, 2 * SIDE, 2 * SIDE), targets)
    model.eval()
