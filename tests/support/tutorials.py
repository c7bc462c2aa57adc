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
    """Unpack the MNIST files in `source` into the layout of torchvision's dataset, and return `folder`."""
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True)
    for packed in source.glob("*.gz"):
        (raw / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return str(folder)


def create_mnist_loader(folder: str, batch: int) -> DataLoader[Any]:
    """Create the data loader of github.com/pytorch/examples (mnist/main.py) for the CPU."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    return DataLoader(datasets.MNIST(folder, transform=transform), batch_size=batch, shuffle=True)


def create_folder_loader(setting: Setting, workers: int) -> DataLoader[Any]:
    """Create the data loader of the tutorial "Transfer Learning for Computer Vision", without its augmentation."""
    transform = transforms.Compose([
        transforms.Resize(setting.size), transforms.CenterCrop(setting.size),
        transforms.ToTensor(), transforms.Normalize(MEAN, STD),
    ])  # fmt: skip
    return DataLoader(
        datasets.ImageFolder(f"{setting.data}/train", transform),
        batch_size=setting.batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=setting.device == "cuda",
    )


def create_sgd(model: nn.Module) -> optim.SGD:
    return optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)


def run_mnist_loop(setting: Setting) -> Rates:
    """Measure the speed of the training loop in PyTorch's MNIST example, which prints the loss of every tenth step."""
    model = create_model(setting)
    optimizer = create_sgd(model)
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
        return time_steps(setting, create_mnist_loader(setting.data, setting.batch), step)


def run_folder_loop(setting: Setting, workers: int) -> Rates:
    """Measure the speed of the training loop in the transfer learning tutorial, which reads the loss at every step."""
    model = create_model(setting).to(setting.device)
    optimizer, criterion = create_sgd(model), nn.CrossEntropyLoss()
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

    return time_steps(setting, create_folder_loader(setting, workers), step)


def run_timm_loop(setting: Setting, workers: int) -> Rates:
    """Measure the speed of timm's dataset, loader and training step, with channels_last on a GPU and without metrics."""
    from timm.data import ImageDataset, create_loader

    device = torch.device(setting.device)
    loader = create_loader(
        ImageDataset(f"{setting.data}/train"), (3, setting.size, setting.size), setting.batch,
        is_training=True, no_aug=True, num_workers=workers, device=device, pin_memory=setting.device == "cuda",
    )  # fmt: skip
    layout = torch.channels_last if setting.device == "cuda" else torch.contiguous_format
    model = create_model(setting).to(device).to(memory_format=layout)
    optimizer, criterion = create_sgd(model), nn.CrossEntropyLoss()

    def step(inputs: Tensor, targets: Tensor) -> None:
        with create_autocast(setting):
            loss = criterion(model(inputs.contiguous(memory_format=layout)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return time_steps(setting, loader, step)


def run_lightning_loop(setting: Setting, workers: int) -> Rates:
    """Measure the speed of Lightning's Trainer with the data loader of `create_folder_loader`.

    The trainer has no logger, progress bar or checkpoints.
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
            return create_sgd(self.model)

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
        trainer.fit(Module(), create_folder_loader(setting, workers))
    assert meter is not None
    return meter.rates()


def run_ddp_loop(setting: Setting, rank: int, world: int, store: str) -> Iterator[int]:
    """Train one rank on the CPU like PyTorch's DDP and classifier tutorials. Yield the number of finished steps.

    `store` is the path of a file through which the ranks connect. If it is "", torchrun's environment variables are
    used instead.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DistributedSampler

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}" if store else "env://", rank=rank, world_size=world)
    dataset = create_folder_loader(setting, 0).dataset
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, setting.batch // world, sampler=sampler, num_workers=1, drop_last=True)
    model = DistributedDataParallel(create_model(setting))
    criterion, optimizer = nn.CrossEntropyLoss(), create_sgd(model)
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


def measure_ddp_rate(setting: Setting, rank: int, store: str, *, world: int, warm: int, steps: int) -> float:
    """Train one rank and measure the images per second of all `world` ranks together.

    The speed is measured over `steps` steps after `warm` warm-up steps. `store` is passed to `run_ddp_loop`.
    """
    torch.set_num_threads(1)
    start = 0.0
    for done in run_ddp_loop(setting, rank, world, store):
        if done == warm:
            start = time.perf_counter()
        if done == warm + steps:
            break
    return steps * setting.batch / (time.perf_counter() - start)
