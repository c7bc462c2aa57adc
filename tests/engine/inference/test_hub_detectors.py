"""Trained transformers detectors and segmenters in evaluation, review, prediction, tiling, heat maps and ONNX."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from tqdm import tqdm

from engine.contract.inference.conversion import OnnxOptions
from engine.contract.inference.evaluation import EvaluateRequest
from engine.contract.inference.prediction import PREDICTED, PredictRequest
from engine.contract.inference.review import ReviewRequest, decode_review
from engine.inference import Run
from engine.inference.conversion.exportable import BATCH, Exportable
from engine.inference.conversion.onnx_file import write_onnx
from engine.inference.evaluation import bootstrap
from engine.inference.evaluation.evaluate import evaluate
from engine.inference.prediction.predict import predict
from engine.inference.review.review import review
from engine.inference.video import VideoWriter
from engine.models import registry
from engine.models.base import Model
from engine.runs.evaluations import read_evaluation
from engine.system.plugins import Registry
from engine.tasks.predictions import Mask, Objects
from tests.engine.inference.explanation.test_explain import explain_paths, first_image
from tests.support.cases import mark_long_cases
from tests.support.hub_models import ALL, CONFIGS, INSTALL, NEEDS_TRANSFORMERS, TINY, make_tiny_model
from tests.support.trained_runs import TrainedRun, train_small_model
from tests.support.worker_group import Forker

pytestmark = NEEDS_TRANSFORMERS

SIDE = 64


MEASURES = {"detection": "map", "instance_segmentation": "mask_map", "segmentation": "miou"}
RUNS = {
    "tiny_dfine": {"image_size": SIDE},
    "tiny_rfdetr_masks": {"image_size": 2 * SIDE},
    "tiny_mask2former": {"image_size": SIDE, "precision": "bf16", "ema_decay": 0.9},
    "tiny_eomt_pixels": {"image_size": SIDE},
}
"""Fields of the job for each model."""


@pytest.fixture(scope="module", autouse=True)
def registered(forker: Forker) -> Iterator[None]:
    """Register the tiny models in this process and in the workers that it starts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forker, "prepare", INSTALL)
        known = Registry("footplate.models", registry.MODELS.built_in | TINY, lambda _, loaded: cast(Model, loaded))
        patched.setattr(registry, "MODELS", known)
        yield


@pytest.fixture(scope="module", params=mark_long_cases(list(RUNS), ["tiny_dfine", "tiny_mask2former"]))
def run(request: pytest.FixtureRequest, forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    folder, name = tmp_path_factory.mktemp("hub"), request.param
    fields = {"model": name, "learning_rate": 1e-3, "encoder": ""} | RUNS[name]
    return train_small_model(forker, folder, TINY[name].task, prepare=INSTALL, **fields)


def test_evaluation_repeats_the_validation_and_is_reviewed(
    run: TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 60)
    folder = Path(shutil.copytree(run.run.path, tmp_path / "run"))
    saved = evaluate(EvaluateRequest(run=str(folder), checkpoint="last"), lambda _: None).parent
    name = MEASURES[run.job.task]
    measured = read_evaluation(saved).evaluation.measures
    assert measured[name].value == pytest.approx(run.measures[name], abs=1e-6)
    worst = decode_review(review(ReviewRequest(run=str(folder)), lambda _: None).read_bytes()).worst
    assert worst
    assert all(Path(sample.file).is_file() for sample in worst)


def test_large_image_is_predicted_in_tiles(run: TrainedRun) -> None:
    model = Run(run.run.path).load("last", "cpu")
    image = np.random.default_rng(0).integers(0, 256, (200, 250, 3), dtype=np.uint8)
    (found,) = model.predict([image], tile=run.job.data.image_size, overlap=0.2)
    if run.job.task == "segmentation":
        assert isinstance(found, Mask)
        assert found.plane.shape == (200, 250)
        return
    assert isinstance(found, Objects)
    assert found.boxes.shape[1] == 4
    assert found.boxes.max(initial=0) <= 250
    assert (found.windows is None) == (run.job.task == "detection")


def test_video_frames_are_predicted(run: TrainedRun, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    film = tmp_path / "film.mp4"
    with VideoWriter(film, 10.0) as video:
        for number in range(2):
            video.add(np.full((48, 64, 3), 90 * number, np.uint8))
    request = PredictRequest(run=str(run.run.path), checkpoint="last", paths=(str(film),), out=str(tmp_path / "out"))
    found = PREDICTED.decode(predict(request, print).read_bytes())
    assert [row.path for row in found.rows] == [f"{film}#0", f"{film}#1"]


def test_heat_maps_explain_predictions(run: TrainedRun, tmp_path: Path) -> None:
    image = first_image(Path(run.job.data.dataset))
    result = explain_paths(run, tmp_path / "out", image)
    assert result.images[0].maps


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ALL)
def test_exported_file_gives_the_same_results_for_any_batch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # the progress bars of the exporter would leave a thread running
    torch.manual_seed(0)
    model: Any = make_tiny_model(name).build(4, 3)
    model.adapt_to_size(name, 2 * SIDE)
    if name in CONFIGS:
        _learn_statistics(model)
    model.eval()
    images = torch.rand(4, 3, 2 * SIDE, 2 * SIDE)
    export = Exportable(model, "inputs", "outputs", {0: BATCH}, torch.Tensor.contiguous)
    write_onnx(tmp_path / "model.onnx", export, images, {}, OnnxOptions())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for count in (1, 2, 4):
        (found,) = session.run(None, {session.get_inputs()[0].name: images[:count].numpy()})
        with torch.no_grad():
            expected = model(images[:count])
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-3)


@torch.no_grad()
def _learn_statistics(model: torch.nn.Module) -> None:
    """Set the BatchNorm statistics of a model to those of noise.

    Otherwise, deep features grow until rounding errors determine the order of scores.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = None
    targets = torch.tensor([[[10.0, 10, 60, 60, 0, 0]]]).repeat(4, 1, 1)
    for _ in range(3):
        model.train()(torch.rand(4, 3, 2 * SIDE, 2 * SIDE), targets)
