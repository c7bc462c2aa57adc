"""How near DDP comes to the hardware's limit, and to the tutorial's script: `python tests/benchmarks/ddp_speed.py`.

resnet18 at 128 px on made JPEGs, two CPU workers of one thread each. Three sides take turns, each within its second
epoch: Footplate's DDP; "side by side", two independent single-device runs of half the batch at the same time; and the
same training written directly in torch as in its DDP tutorial (ImageFolder, DataLoader with DistributedSampler).
Prints pictures per second and the ratios of medians. Aims: 0.95 of side by side, 1.0 of the script.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.contract.job import Job
from tests.support.timed_runs import TimedRun, make_pictures, side_by_side, where
from tests.support.worker_group import Forker

SIZE, WORKERS = 128, 2
SIDES = ("Footplate's DDP", "side by side", "the tutorial's script")


def tutorial(data: Path, batch: int, warm: int, steps: int) -> float:
    """The rate of rank 0 of the script, times the number of ranks."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--rank"]
        rest = [str(data), str(batch), str(warm), str(steps), f"{folder}/store"]
        ranks = [
            subprocess.Popen([*command, str(rank), *rest], env=environment, stdout=subprocess.PIPE, text=True)
            for rank in range(WORKERS)
        ]
        outputs = [rank.communicate(timeout=900)[0] for rank in ranks]
    return float(outputs[0])


def tutorial_rank(rank: int, data: str, batch: int, warm: int, steps: int, store: str) -> None:  # noqa: PLR0917
    """What torch's tutorials write: docs.pytorch.org, "Getting Started with DDP" and "Training a Classifier"."""
    import torch.distributed as dist
    from torch import nn, optim
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler
    from torchvision import datasets, models, transforms

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    transform = transforms.Compose([
        transforms.Resize(SIZE), transforms.CenterCrop(SIZE), transforms.ToTensor(), normalize,
    ])  # fmt: skip
    dataset = datasets.ImageFolder(f"{data}/train", transform)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=batch // WORKERS, sampler=sampler, num_workers=1, drop_last=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(models.resnet18(num_classes=2))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    done, begun, running_loss = 0, 0.0, 0.0
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            done += 1
            if done == warm:
                begun = time.perf_counter()
            if done == warm + steps:
                print(steps * batch / (time.perf_counter() - begun), flush=True)
                dist.destroy_process_group()
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=128, help="of both workers together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="measured per round")
    chosen = parser.parse_args()
    batch, steps = chosen.batch_size, chosen.steps
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    forkers = Forker(), Forker()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            epoch = steps + 2
            warm = epoch + 1
            data = make_pictures(folder / "data", epoch * batch + 8, 160)
            fields: dict[str, Any] = {
                "dataset": str(data), "model": "resnet18", "image_size": SIZE, "epochs": 1000, "loader_workers": 1,
            }  # fmt: skip
            ddp = Job(**fields, batch_size=batch, strategy="ddp", devices=("cpu",) * WORKERS)
            alone = Job(**fields, batch_size=batch // WORKERS)
            for number in range(chosen.rounds):
                place = folder / str(number)
                rates[SIDES[0]].append(TimedRun(forkers[0], ddp, place / "ddp", warm=warm, steps=steps).rate)
                # Half the batch, so twice as many steps to an epoch.
                beside = side_by_side(forkers, alone, place / "side", warm=warm * WORKERS, steps=steps * WORKERS)
                rates[SIDES[1]].append(beside)
                rates[SIDES[2]].append(tutorial(data, batch, warm, steps))
    finally:
        for forker in forkers:
            forker.close()
    print(where())
    print(
        f"resnet18, {SIZE} px, batch {batch}, {WORKERS} workers of one thread, {chosen.rounds} rounds of {steps} steps"
    )
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        told = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name}: {medians[name]:.1f} pictures/s ({told})")
    beside, script = medians[SIDES[0]] / medians[SIDES[1]], medians[SIDES[0]] / medians[SIDES[2]]
    print(f"DDP of side by side: {beside:.3f} (aim 0.95); of the tutorial's script: {script:.3f} (aim 1.0)")
    return 0 if beside >= 0.95 and script >= 1.0 else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank, data, batch, warm, steps, store = sys.argv[2:]
        tutorial_rank(int(rank), data, int(batch), int(warm), int(steps), store)
        sys.exit(0)
    sys.exit(main())
