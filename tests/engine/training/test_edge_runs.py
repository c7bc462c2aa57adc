"""Edge detection under all strategies, from the folder to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine.contract.events import Planned, Predicted, StepMetrics, Validation
from engine.models.encoders import IMAGENET
from engine.tasks.edges.metrics import compute_scores, count_matches, select_best_counts, suppress_non_maxima
from engine.tasks.edges.networks import Hed
from tests.engine.training.task_jobs import task_job
from tests.support.edges import make_edged
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
SIDE = 32
ON_ENCODER: dict[str, Any] = {"model": "hed_encoder", "encoder": "resnet18"}

job = partial(
    task_job,
    task="edge_detection",
    model="hed_bn",
    image_size=SIDE,
    learning_rate=0.001,
    keep_checkpoints=0,
    predictions=2,
)


@pytest.fixture(scope="module")
def rims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_edged(tmp_path_factory.mktemp("rims"), {"train": 24, "val": 6}, SIDE)


def measure_ods(folder: Path, state: dict[str, torch.Tensor]) -> float:
    """Return the ODS (boundary metric) of a plain HED network with these weights on the validation images."""
    model = Hed(batch_norm=True)
    model.load_state_dict(state)
    model.eval()
    mean, std = (torch.tensor(each)[:, None, None] for each in IMAGENET)
    counts = []
    for path in sorted((folder / "images/val").iterdir()):
        image = torch.from_numpy(np.asarray(Image.open(path)).copy()).permute(2, 0, 1) / 255
        drawn = np.asarray(Image.open(folder / "edges/val" / path.name)) > 0
        with torch.no_grad():
            likely = model(((image - mean) / std)[None])[0, -1].sigmoid().numpy()
        counts.append(count_matches(suppress_non_maxima(likely), [drawn]))
    return compute_scores(sum(counts), sum(map(select_best_counts, counts))).ods


@pytest.mark.long
def test_edge_checkpoint_of_two_ranks_loads_plainly(start: Start, rims: Path) -> None:
    group = start(job(rims, 2, strategy="ddp"), every_step=True).completed(150)
    (validation,) = group.of(Validation)
    assert set(validation.measures) == {"ods", "ois", "ap", "loss"}
    assert validation.images == 6
    assert group.of(StepMetrics)[0].accuracy is None
    state = group.checkpoint("best.pt")
    assert measure_ods(rims, state) == pytest.approx(validation.measures["ods"], abs=1e-3)
    (plan,) = group.of(Planned)
    assert (plan.classes, plan.train_images, plan.val_images) == (("edge",), 24, 6)
    samples = group.of(Predicted)[-1].samples
    assert len(samples) == 2
    assert all((group.folder / path).is_file() for each in samples for path in (each.truth_png, each.prediction_png))


@pytest.mark.long
@pytest.mark.parametrize("fields", [{"model": "hed_bn"}, {"model": "bdcn_bn"}, ON_ENCODER])
def test_edges_are_learned(start: Start, rims: Path, fields: dict[str, Any]) -> None:
    group = start(job(rims, **fields, epochs=15, augmentation="light")).completed(400)
    measures = [event.measures for event in group.of(Validation)]
    assert measures[-1]["loss"] < 0.7 * measures[0]["loss"]
    # The tolerance of so small an image is under a pixel. That all pixels are edges is right in their share.
    share = np.mean([np.asarray(Image.open(path)) > 0 for path in (rims / "edges/val").iterdir()])
    assert max(each["ods"] for each in measures) > 2 * (2 * share / (1 + share))
