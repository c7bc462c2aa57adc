"""Time to reach a validation accuracy on synthetic images of 32 px, compared with a tuned training loop.

The images show one of ten patterns at random positions, contrasts and colors, with noise. The reference loop keeps all
images on the device, and follows Keller Jordan's airbench (arXiv 2404.00498): one-cycle SGD with Nesterov momentum,
label smoothing, random flips and translations, channels last and bf16. Footplate and the reference train torchvision's
ResNet-18 with the same batch size and number of epochs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import Tensor
from torch.nn import functional

from engine.contract.events import EpochStarted, Failed, Validation
from engine.contract.job import Job
from tests.gpu.checks import CheckContext, run_checks

CLASSES, SIDE = 10, 32
TRAIN, VAL = 20_000, 2_000
GOAL = 0.95
EPOCHS, BATCH, RATE = 8, 500, 0.4
SHIFT = 4
"""Maximum translation of an image in pixels."""
NOISE = 40.0
"""Standard deviation of the noise. Pixels range from 0 to 255."""
AIM = 1.3
"""Maximum training time, as a multiple of the reference loop's."""


def make_synthetic_images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make synthetic images, uint8 [count, 32, 32, 3], and their classes, int64 [count]."""
    patterns = np.random.default_rng(0).normal(size=(CLASSES, SIDE, SIDE))
    spectrum = np.fft.fft2(patterns)
    frequencies = np.hypot(*np.meshgrid(np.fft.fftfreq(SIDE), np.fft.fftfreq(SIDE)))
    smooth = np.fft.ifft2(spectrum * np.exp(-((frequencies * 8) ** 2))).real
    smooth /= smooth.std((1, 2), keepdims=True)
    random = np.random.default_rng(seed)
    classes = random.integers(0, CLASSES, count)
    rows, columns = random.integers(0, SIDE, (2, count, 1, 1))
    grid = np.arange(SIDE)
    moved = smooth[classes[:, None, None], (grid[None, :, None] + rows) % SIDE, (grid[None, None, :] + columns) % SIDE]
    colors = random.uniform(15, 45, (count, 1, 1, 3))
    images = 128 + moved[..., None] * colors + random.normal(0, NOISE, (count, SIDE, SIDE, 3))
    return images.clip(0, 255).astype(np.uint8), classes


def write_images(folder: Path, images: np.ndarray, classes: np.ndarray) -> None:
    for number in range(CLASSES):
        (folder / str(number)).mkdir(parents=True)
    for index, (image, number) in enumerate(zip(images, classes, strict=True)):
        Image.fromarray(image).save(folder / str(number) / f"{index}.png", compress_level=0)


def train_plainly(device: torch.device, train: Any, val: Any, epochs: int, batch: int) -> tuple[float, float]:
    """Train with the reference loop until the accuracy `GOAL` is reached, but at most for `epochs` epochs.

    `train` and `val` are pairs (images, classes). Returns the training time in seconds and the last accuracy.
    """
    torch.manual_seed(0)
    mean, std = (torch.tensor(values, device=device)[:, None, None] * 255 for values in ((0.5,) * 3, (0.25,) * 3))
    images, classes = (torch.from_numpy(each).to(device) for each in train)
    val_images, val_classes = (torch.from_numpy(each).to(device) for each in val)
    images, val_images = (each.permute(0, 3, 1, 2).contiguous() for each in (images, val_images))
    model: Any = torchvision.models.resnet18(num_classes=CLASSES).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.3)
    start = time.monotonic()
    accuracy = 0.0
    for _ in range(epochs):
        model.train()
        for chosen in torch.randperm(len(images), device=device).split(batch)[: len(images) // batch]:
            inputs = _augment(images[chosen]).float().sub(mean).div(std).to(memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                outputs = model(inputs)
            functional.cross_entropy(outputs.float(), classes[chosen], label_smoothing=0.1).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(part.float().sub(mean).div(std)).argmax(1) for part in val_images.split(1000)])
        accuracy = float((found == val_classes).double().mean())
        if accuracy >= GOAL:
            break
    return time.monotonic() - start, accuracy


def _augment(images: Tensor) -> Tensor:
    """Translate all images, [n, c, h, w], by the same random offset, with reflected borders."""
    padded = functional.pad(images.float(), (SHIFT,) * 4, mode="reflect")
    top, left = torch.randint(0, 2 * SHIFT + 1, (2,)).tolist()
    return padded[:, :, top : top + SIDE, left : left + SIDE]


def reach_accuracy(context: CheckContext) -> None:
    """Compare the times in which Footplate and the reference loop reach the accuracy `GOAL`.

    Imports and the start of the workers are not included.
    """
    train_count, val_count, epochs, batch = (TRAIN, VAL, EPOCHS, BATCH) if not context.rehearsing else (400, 100, 1, 50)
    train, val = make_synthetic_images(train_count, 1), make_synthetic_images(val_count, 2)
    for name, (images, classes) in (("train", train), ("val", val)):
        write_images(context.folder / "data" / name, images, classes)
    plain_s, plain_accuracy = train_plainly(context.device, train, val, epochs, batch)
    context.measure("plain loop: accuracy", 100 * plain_accuracy, "%", at_least=100 * GOAL)
    context.measure("plain loop: time to the target accuracy", plain_s, "s")
    job = Job.from_fields(
        dataset=str(context.folder / "data"), model="resnet18", image_size=SIDE, epochs=epochs, batch_size=batch,
        learning_rate=RATE, schedule="onecycle", label_smoothing=0.1, augmentation="light", mirror="off",
        weight_decay=5e-4, predictions=0, compile="off", devices=(context.gpu,),
    )  # fmt: skip
    group = context.start(job)
    start = 0.0

    def has_reached(_rank: int, message: Any) -> bool:
        nonlocal start
        if isinstance(message, EpochStarted):
            start = start or time.monotonic()
        return isinstance(message, Validation) and message.measures["top1"] >= GOAL

    if group.read(has_reached, 100) is None and group.of(Failed):
        raise RuntimeError(group.of(Failed)[0].cause)
    seconds = time.monotonic() - start
    accuracy = max(validation.measures["top1"] for validation in group.of(Validation))
    context.measure("Footplate: accuracy", 100 * accuracy, "%", at_least=100 * GOAL)
    context.measure("Footplate: time to the target accuracy", seconds, "s")
    context.measure("Footplate's time relative to the plain loop", seconds / plain_s, "", at_most=AIM)


def main() -> None:
    run_checks({"time to accuracy": (reach_accuracy, 120)})


if __name__ == "__main__":
    main()
