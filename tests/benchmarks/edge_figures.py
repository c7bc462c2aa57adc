"""Edge detection from scratch: `python tests/benchmarks/edge_figures.py`.

Trains a few epochs on 30 small images of BSDS500 with the recipe *From scratch* on the CPU. Plain torch measures ODS, OIS
and average precision of the fresh and the best weights on the 10 validation images, which choose the best, and on 10
unseen test images. Baselines: Sobel gradient magnitude, gradient of a Gaussian, and chance.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.contract.events import Failed, Validation
from engine.contract.job import Job
from engine.supervisor.environment import usable_cores
from engine.tasks.base import DatasetInfo
from engine.tasks.edges.decoding import OUTSIDE
from engine.tasks.edges.formats import EdgeSplit
from engine.tasks.edges.samples import EdgedImages
from engine.tasks.registry import TASKS
from tests.benchmarks.every_task import ROWS, job_of
from tests.support.worker_group import Forker, WorkerGroup

DATASETS = Path(__file__).resolve().parents[3] / "shared/datasets"
TASK = TASKS["edge_detection"]


def images(folder: Path, split: str, size: int) -> list[tuple[Tensor, Tensor]]:
    """Each image [3, size, size] of 0 to 255 and its targets [2, size, size]."""
    files = [str(path) for path in sorted((folder / "images" / split).glob("*.jpg"))]
    edges = [str(folder / "groundTruth" / split / f"{Path(path).stem}.mat") for path in files]
    opened = EdgedImages(EdgeSplit(files, edges), str(folder))
    loaded = [opened.load(number, size, 3) for number in range(len(opened))]
    return [(each[:3].float(), each[3:].long()) for each in loaded]


def gradient(blur: float | None) -> Callable[[Tensor, Tensor], np.ndarray]:
    """Return a detector by gradient magnitude: Sobel's, or that of a Gaussian with this deviation."""

    def detect(image: Tensor, target: Tensor) -> np.ndarray:
        grey = image.mean(0).numpy()
        inside = target[0].numpy() != OUTSIDE
        rows, columns = inside.any(1), inside.any(0)
        own = grey[rows][:, columns]
        if blur is None:
            size = np.hypot(ndimage.sobel(own, 0), ndimage.sobel(own, 1)) / 1443  # the most it can be for 0 to 255
        else:
            size = ndimage.gaussian_gradient_magnitude(own, blur) / 100
        found = np.zeros(grey.shape)
        found[np.ix_(rows, columns)] = size
        # Stretched so that the weak ones do not all fall below the lowest threshold.
        return np.clip(np.sqrt(found), 0, 1)

    return detect


def chance(image: Tensor, target: Tensor) -> np.ndarray:
    return np.random.default_rng(int(image.sum())).random(image.shape[1:])


def of_model(model: nn.Module, job: Job) -> Callable[[Tensor, Tensor], np.ndarray]:
    mean, std = (torch.tensor(each)[:, None, None] for each in TASK.normalisation(job, 3))
    model.eval()

    @torch.no_grad()
    def detect(image: Tensor, target: Tensor) -> np.ndarray:
        likely: np.ndarray = model(((image / 255 - mean) / std)[None])[0, -1].sigmoid().numpy()
        return likely

    return detect


def told(
    name: str, detect: Callable[[Tensor, Tensor], np.ndarray], splits: dict[str, list[tuple[Tensor, Tensor]]]
) -> None:
    """Print the metrics of a detector with outputs from 0 to 1."""
    found = []
    for split, samples in splits.items():
        measures = TASK.objective(Job.from_fields(task="edge_detection", model="hed"), DatasetInfo(("edge",))).metric()
        for image, target in samples:
            likely = torch.from_numpy(detect(image, target)).double().clamp(1e-6, 1 - 1e-6)
            measures.update(likely.logit().float()[None, None], target[None])
        each = measures.compute()
        found.append(f"{split} ODS {each['ods']:.3f} OIS {each['ois']:.3f} AP {each['ap']:.3f}")
    print(f"{name}: {'; '.join(found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=DATASETS / "bsds500_subset")
    parser.add_argument("--flags", default="", help='more for `footplate train`, e.g. "--epochs 40"')
    chosen = parser.parse_args()
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}", flush=True)
    job = job_of(ROWS["bsds500"], chosen.folder, chosen.flags)
    assert job.data.image_size is not None
    splits = {split: images(chosen.folder, split, job.data.image_size) for split in ("val", "test")}
    told("chance", chance, splits)
    told("Sobel gradient", gradient(None), splits)
    for blur in (1.0, 2.0):
        told(f"Gaussian gradient, {blur:g} px", gradient(blur), splits)
    model = TASK.build_model(job, 1, 3)
    told(f"{job.model.name}, fresh", of_model(model, job), splits)
    forker = Forker()
    try:
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            group = WorkerGroup(forker, job, Path(folder), threads=usable_cores())
            group.finish(3600)
            if group.of(Failed):
                raise SystemExit(group.of(Failed)[0].cause)
            reached = " ".join(f"{validation.measures['ods']:.3f}" for validation in group.of(Validation))
            print(f"ODS by epoch {reached}; {time.monotonic() - start:.0f} s", flush=True)
            model.load_state_dict(torch.load(Path(folder) / "checkpoints/best.pt", weights_only=True))
            told(f"{job.model.name}, best.pt after {job.training.epochs} epochs", of_model(model, job), splits)
    finally:
        forker.close()


if __name__ == "__main__":
    main()
