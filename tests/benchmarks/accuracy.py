"""Accuracy of the strategies on real images: `python tests/benchmarks/accuracy.py`.

Trains resnet18 on hymenoptera at 64 px from scratch for three epochs with single, DDP on two CPU workers and a pipeline of
two stages, and mnist_cnn on MNIST for five epochs with single. Plain torch then loads each best.pt and measures it on
the validation images.
"""

from __future__ import annotations

import argparse
import gzip
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import resnet18

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.contract.events import Failed, Validation
from engine.contract.job import Job
from engine.models.mnist_cnn import MnistCnn
from tests.support.worker_group import Forker, WorkerGroup

DATASETS = Path(__file__).resolve().parents[3] / "shared/datasets"


def hymenoptera(folder: Path, size: int) -> tuple[Tensor, Tensor]:
    """Return the validation images as resnet18's inputs, read by PIL and numpy only."""
    inputs, targets = [], []
    for label, place in enumerate(sorted(path for path in (folder / "val").iterdir() if path.is_dir())):
        for path in sorted(place.iterdir()):
            pixels = np.asarray(Image.open(path).convert("RGB"))
            image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
            height, width = image.shape[-2:]
            scale = size / min(height, width)
            target = (max(size, round(height * scale)), max(size, round(width * scale)))
            image = nn.functional.interpolate(image, target, mode="bilinear", antialias=True)
            top, left = (target[0] - size) // 2, (target[1] - size) // 2
            inputs.append(image[..., top : top + size, left : left + size])
            targets.append(label)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (torch.cat(inputs) / 255 - mean[:, None, None]) / std[:, None, None], torch.tensor(targets)


def mnist(folder: Path) -> tuple[Tensor, Tensor]:
    """Return the test images as mnist_cnn's inputs, read by gzip and torch only."""

    def read(stem: str, header: int) -> Tensor:
        path = next(path for path in sorted(folder.rglob(stem + "*")) if path.is_file())
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)

    images = read("t10k-images", 16).reshape(-1, 1, 28, 28)
    return (images / 255 - 0.1307) / 0.3081, read("t10k-labels", 8).long()


@torch.no_grad()
def accuracy(model: nn.Module, checkpoint: Path, inputs: Tensor, targets: Tensor) -> float:
    """Return the accuracy of the plain model with the weights of `checkpoint`."""
    model.load_state_dict(torch.load(checkpoint, weights_only=True))
    model.eval()
    outputs = torch.cat([model(part) for part in inputs.split(256)])
    return float((outputs.argmax(1) == targets).double().mean())


def train(forker: Forker, name: str, job: Job, *, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        group = WorkerGroup(forker, job, Path(folder))
        group.finish(3600)
        if group.of(Failed):
            raise SystemExit(f"{name}: {group.of(Failed)[0].cause}")
        reached = " ".join(f"{validation.measures['top1']:.4f}" for validation in group.of(Validation))
        loaded = accuracy(model, Path(folder) / "checkpoints/best.pt", inputs, targets)
        best = group.done.best["top1"]
        print(
            f"{name}: top-1 by epoch {reached}; best {best:.4f}, best.pt in plain torch {loaded:.4f}; "
            f"{time.monotonic() - start:.1f} s",
            flush=True,
        )


def hymenoptera_runs(forker: Forker, folder: Path) -> None:
    inputs, targets = hymenoptera(folder, 64)
    for strategy, devices in (("single", 1), ("ddp", 2), ("pipeline", 2)):
        cpus = ("cpu",) * devices
        job = Job.from_fields(
            dataset=str(folder), model="resnet18", strategy=strategy, devices=cpus, epochs=3, image_size=64
        )
        train(
            forker,
            f"hymenoptera, resnet18, {strategy}",
            job,
            model=resnet18(num_classes=2),
            inputs=inputs,
            targets=targets,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, default=DATASETS)
    parser.add_argument("--only", choices=("hymenoptera", "mnist"))
    chosen = parser.parse_args()
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")
    forker = Forker()
    try:
        if chosen.only != "mnist":
            hymenoptera_runs(forker, chosen.datasets / "hymenoptera")
        if chosen.only != "hymenoptera":
            folder = chosen.datasets / "mnist"
            job = Job.from_fields(dataset=str(folder), model="mnist_cnn", epochs=5, batch_size=64)
            inputs, targets = mnist(folder)
            train(forker, "mnist, mnist_cnn, single", job, model=MnistCnn(), inputs=inputs, targets=targets)
    finally:
        forker.close()


if __name__ == "__main__":
    main()
