"""Training loops from PyTorch's tutorials and other tools, to compare their speed with Footplate's.

`tests.support.sides` describes their arguments. Like Footplate by default, they use SGD without augmentation, with the
same learning rate, momentum and weight decay.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from tests.support.sides import Meter, Rates, Setting, create_autocast, create_model, time_steps

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def unpack_mnist(source: Path, folder: Path) -> str:
    """Unpack the MNIST files in `source` for torchvision and return the folder for `mnist_loader`."""
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True)
    for packed in source.glob("*.gz"):
        (raw / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return str(folder)


def mnist_loader(folder: str, batch: int, *, train: bool = True) -> DataLoader[Any]:
    """Return the data loader of github.com/pytorch/examples (mnist/main.py) for the CPU."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    return DataLoader(datasets.MNIST(folder, train=train, transform=transform), batch_size=batch, shuffle=train)


def folder_loader(setting: Setting, workers: int, *, split: str = "train") -> DataLoader[Any]:
    """Return the loader of the tutorial "Transfer Learning for Computer Vision", without its augmentation."""
    transform = transforms.Compose([
        transforms.Resize(setting.size), transforms.CenterCrop(setting.size),
        transforms.ToTensor(), transforms.Normalize(MEAN, STD),
    ])  # fmt: skip
    return DataLoader(
        datasets.ImageFolder(f"{setting.data}/{split}", transform),
        batch_size=setting.batch,
        shuffle=split == "train",
        num_workers=workers,
        pin_memory=setting.device == "cuda",
    )


def sgd(model: nn.Module) -> optim.SGD:
    return optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)


def mnist_loop(setting: Setting) -> Rates:
    """Run the training loop of PyTorch's MNIST example. It prints the loss of every tenth step."""
    model = create_model(setting)
    optimizer = sgd(model)
    done = 0

    def step(inputs: Tensor, targets: Tensor) -> None:
        nonlocal done
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if done % 10 == 0:
            print(f"Loss: {loss.item():.6f}")
        done += 1

    with contextlib.redirect_stdout(io.StringIO()):
        return time_steps(setting, mnist_loader(setting.data, setting.batch), step)


def folder_loop(setting: Setting, workers: int) -> Rates:
    """Run the training loop of the transfer learning tutorial. It reads the loss at every step.

    PIL decodes the images.
    """
    model = create_model(setting).to(setting.device)
    optimizer, criterion = sgd(model), nn.CrossEntropyLoss()
    running_loss = 0.0

    def step(inputs: Tensor, targets: Tensor) -> None:
        nonlocal running_loss
        inputs, targets = inputs.to(setting.device), targets.to(setting.device)
        optimizer.zero_grad()
        with create_autocast(setting):
            loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * inputs.size(0)

    return time_steps(setting, folder_loader(setting, workers), step)


def timm_loop(setting: Setting, workers: int) -> Rates:
    """Run a loop with timm's dataset, loader and training step: channels_last, autocast, no metrics."""
    from timm.data import ImageDataset, create_loader

    device = torch.device(setting.device)
    loader = create_loader(
        ImageDataset(f"{setting.data}/train"), (3, setting.size, setting.size), setting.batch,
        is_training=True, no_aug=True, num_workers=workers, device=device, pin_memory=setting.device == "cuda",
    )  # fmt: skip
    layout = torch.channels_last if setting.device == "cuda" else torch.contiguous_format
    model = create_model(setting).to(device).to(memory_format=layout)
    optimizer, criterion = sgd(model), nn.CrossEntropyLoss()

    def step(inputs: Tensor, targets: Tensor) -> None:
        with create_autocast(setting):
            loss = criterion(model(inputs.contiguous(memory_format=layout)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return time_steps(setting, loader, step)


def lightning_loop(setting: Setting, workers: int) -> Rates:
    """Train with Lightning's Trainer on the same ImageFolder and DataLoader.

    It runs without logger, progress bar and checkpoints.
    """
    import lightning

    meter: Meter | None = None

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = create_model(setting)

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            inputs, targets = batch
            return nn.functional.cross_entropy(self.model(inputs), targets)

        def configure_optimizers(self) -> optim.Optimizer:
            return sgd(self.model)

    class Metered(lightning.Callback):
        def on_train_epoch_start(self, *_: Any) -> None:
            nonlocal meter
            meter = meter or Meter(setting)

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
            assert meter is not None
            meter.tick(len(batch[1]))
            trainer.should_stop = meter.enough

        def on_train_epoch_end(self, *_: Any) -> None:
            assert meter is not None
            meter.epoch_ended()

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice on the number of workers
        trainer = lightning.Trainer(
            accelerator="gpu" if setting.device == "cuda" else "cpu", devices=1, max_epochs=-1, callbacks=[Metered()],
            precision="bf16-mixed" if setting.precision == "bf16" else "32-true",
            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Module(), folder_loader(setting, workers))
    assert meter is not None
    return meter.rates()


def ddp_loop(setting: Setting, rank: int, world: int, store: str) -> Iterator[int]:
    """Train one rank on the CPU like PyTorch's DDP and classifier tutorials. Yield the number of finished steps.

    If `store` is empty, the ranks connect through torchrun's environment variables. Otherwise it is the path of a file
    through which they connect.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DistributedSampler

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}" if store else "env://", rank=rank, world_size=world)
    dataset = folder_loader(setting, 0).dataset
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, setting.batch // world, sampler=sampler, num_workers=1, drop_last=True)
    model = DistributedDataParallel(create_model(setting))
    criterion, optimizer = nn.CrossEntropyLoss(), sgd(model)
    done, running_loss = 0, 0.0
    try:
        for epoch in range(1 << 30):
            sampler.set_epoch(epoch)
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss = criterion(model(inputs), labels)
                loss.backward()
                optimizer.step()
                running_loss += loss.item()
                done += 1
                yield done
    finally:
        dist.destroy_process_group()


def ddp_rate(setting: Setting, rank: int, store: str, *, world: int, warm: int, steps: int) -> float:
    """Run one rank and return the images per second of all `world` ranks together.

    They are measured over `steps` steps after `warm` warm-up steps. `ddp_loop` describes `rank` and `store`.
    """
    torch.set_num_threads(1)
    start = 0.0
    for done in ddp_loop(setting, rank, world, store):
        if done == warm:
            start = time.perf_counter()
        if done == warm + steps:
            break
    return steps * setting.batch / (time.perf_counter() - start)
