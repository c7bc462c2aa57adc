"""Training speed compared with bare steps and with the training loops of other tools.

    python tests/benchmarks/training_speed.py [--only PART ...] [--quick] [--pure] [--rounds N] [--seconds S]

The output is the table of speeds. The exit code is 1 if an aim is missed. In every round all sides take turns (in
reversed order in every other round), each in a new process that is forked from one that has imported torch. A ratio is
the median of the rounds' ratios. Speeds are images per second in the first epoch and after it, measured for `--seconds`
each.

- Footplate: Workers of a run with the job's default settings, and an empty image cache.
- pure: Steps on one batch that is on the device, with the same model, optimizer and automatic choices (`sides.pure`).
- others: The loops in `tutorials`, with PyTorch's default threads. Missing packages are skipped, and `--pure` skips all.

A run writes its first checkpoint at the start of the second epoch, and spends a hundredth of its time on later ones. If
`--seconds` is small, the first checkpoint takes a larger fraction of the time than in a real training.

The part "gpu" is skipped without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.contract.devices import is_gpu
from engine.contract.events import Chosen
from engine.contract.job import Job
from engine.data.datasets.open_splits import open_splits
from engine.supervisor.environment import usable_cores
from engine.tasks.registry import TASKS
from tests.benchmarks.frame import DATASETS, describe_environment, make_parser, use_empty_home
from tests.support import sides, tutorials
from tests.support.gpu_watch import GpuWatch, Usage, describe_gpu
from tests.support.sides import Rates, Setting, run_in_process
from tests.support.timed_runs import WatchedRun, make_images
from tests.support.worker_group import Forker

TASK_JOBS = {
    "camvid_subset": Job.from_fields(
        task="segmentation", model="unet", encoder="resnet18", image_size=128, batch_size=8
    ),
    "bccd": Job.from_fields(task="detection", model="ssdlite320_mobilenet_v3_large", image_size=256, batch_size=8),
}
"""Jobs for tasks other than classification, by the folder of their dataset."""
PARTS = ("mnist", "hymenoptera", "made", *TASK_JOBS, "gpu")
AIM, TASK_AIM, GPU_AIM, TUTORIAL_AIM = 0.97, 0.95, 0.98, 2.5
FOOTPLATE, PURE, TUTORIAL = "Footplate", "pure", "tutorial"
CORES = usable_cores()

Side = Callable[[Setting], Rates]


@dataclass
class Comparison:
    """Results of a comparison: speed and GPU usage in each round, by program."""

    title: str
    rates: dict[str, list[Rates]]
    gpu: dict[str, list[Usage]]

    def compute_ratio(self, one: str, others: list[str], of: Callable[[Rates], float]) -> float:
        """Return the median over all rounds of a ratio: the speed of `one`, divided by the highest speed of `others`.

        `of` returns the speed to compare: that of the first epoch or that of later epochs.
        """
        rounds = zip(self.rates[one], *(self.rates[other] for other in others), strict=True)
        return statistics.median(of(mine) / max(map(of, theirs)) for mine, *theirs in rounds)

    def print(self) -> None:
        print(f"\n{self.title}\n  {'':22}{'first epoch':>12}{'after it':>12}  images/s, medians (least to most)")
        for name, rates in self.rates.items():
            first, later = [each.first for each in rates], [each.later for each in rates]
            spread = f"  ({min(later):,.1f} to {max(later):,.1f})"
            usage = "".join(f"; {usage}" for usage in self.gpu[name][-1:])
            print(f"  {name:22}{statistics.median(first):12,.1f}{statistics.median(later):12,.1f}{spread}{usage}")


class Verdicts:
    """Printer and collector of results and their aims.

    `results` holds tuples (title, value, aim). `met` is True if all values reach their aims.
    """

    def __init__(self) -> None:
        self.results: list[tuple[str, float, float]] = []

    @property
    def met(self) -> bool:
        return all(value >= aim for _, value, aim in self.results)

    def add(self, what: str, value: float, aim: float, why: str = "") -> None:
        met = value >= aim
        self.results.append((what, value, aim))
        print(f"  {what}: {value:.3f} (aim {aim:.3g}{why}: {'met' if met else 'MISSED'})", flush=True)


def convert_choices(choices: dict[str, Chosen]) -> dict[str, Any]:
    """Convert the automatic choices of a run to fields of a `Setting`."""
    results = {field: choice.choice for field, choice in choices.items()}
    compiled = ""
    if results.get("compile") == "on":
        compiled = "reduce-overhead" if "CUDA graphs" in choices["compile"].why else "default"
    return {
        "precision": results.get("precision", "fp32"),
        "memory_format": results.get("memory_format", "contiguous"),
        "threads": CORES,
        "compiled": compiled,
    }


def find_folder_sides(device: str) -> dict[str, Side]:
    """Find the training loops of other tools that train from an ImageFolder and are installed. Return them by name."""
    workers = (0, 1, 2) if device == "cpu" else (CORES,)
    found: dict[str, Side] = {
        f"ImageFolder, {count} workers": partial(_side, tutorials.run_folder_loop, workers=count) for count in workers
    }
    for package, loop in (("timm", tutorials.run_timm_loop), ("lightning", tutorials.run_lightning_loop)):
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed and is left out: pip install {package}")
        else:
            found[package] = partial(_side, loop, workers=workers[-1])
    return found


def _side(loop: Callable[[Setting, int], Rates], setting: Setting, *, workers: int) -> Rates:
    torch.set_num_threads(CORES)
    return loop(setting, workers)


def _first(rates: Rates) -> float:
    return rates.first


def _later(rates: Rates) -> float:
    return rates.later


class Bench:
    """Benchmark that is configured by the options of the command line."""

    def __init__(
        self,
        chosen: argparse.Namespace,
        forker: Forker,
        folder: Path,
        on_result: Callable[[str, Rates], object] = lambda name, rates: None,
    ) -> None:
        self.chosen = chosen
        self._on_result = on_result
        self.verdicts = Verdicts()
        self.bottleneck = ""
        """Message about the bottleneck from the most recent run of Footplate."""
        self._forker = forker
        self._folder = folder
        self._runs = 0

    def compare_mnist(self) -> None:
        source = self.chosen.datasets / "mnist"
        setting = Setting(
            data=tutorials.unpack_mnist(source, self._folder), model="mnist_cnn", size=28, batch=64, classes=10, channels=1, images=60_000,
            seconds=self.chosen.seconds,
        )  # fmt: skip
        job = Job.from_fields(dataset=str(source), model="mnist_cnn", batch_size=64)
        found = self._compare("MNIST, mnist_cnn, batch 64, CPU", job, setting, {TUTORIAL: tutorials.run_mnist_loop})
        self.verdicts.add("of pure, after the first epoch", found.compute_ratio(FOOTPLATE, [PURE], _later), AIM)
        limit = found.compute_ratio(PURE, [TUTORIAL], _later)
        aim, why = TUTORIAL_AIM, ""
        if AIM * limit < TUTORIAL_AIM:
            aim, why = AIM * limit, f", {AIM} of pure's {limit:.2f}"
        self.verdicts.add("of the tutorial's loop", found.compute_ratio(FOOTPLATE, [TUTORIAL], _later), aim, why)

    def compare_images(
        self,
        name: str,
        data: Path,
        size: int,
        device: str = "cpu",
        *,
        model: str = "resnet18",
        batch: int = 32,
        **fields: Any,
    ) -> Comparison:
        """Compare Footplate's speed on the ImageFolder `data` with training steps alone and with other tools.

        The comparison is printed under the title `name`, and its ratios are added to the verdicts. On a GPU, all of
        them train in bf16. `fields` override fields of Footplate's job.
        """
        files = [path for path in (data / "train").rglob("*") if path.is_file()]
        for path in files:
            path.read_bytes()  # no side should be the first to read the files from disk
        on_gpu = device == "cuda"
        aim = GPU_AIM if on_gpu else AIM
        setting = Setting(
            data=str(data), model=model, size=size, batch=batch, images=len(files), seconds=self.chosen.seconds,
            classes=sum(path.is_dir() for path in (data / "train").iterdir()),
            device=device, precision="bf16" if on_gpu else "fp32",
        )  # fmt: skip
        # With many epochs, few images suffice for the requested seconds.
        job = Job.from_fields(
            dataset=str(data), model=model, image_size=size, batch_size=batch, epochs=200,
            devices=(self.chosen.gpu if on_gpu else "cpu",), **fields,
        )  # fmt: skip
        title = f"{name}, {len(files):,} images, {model} at {size} px, batch {batch}, {device}"
        others = {} if self.chosen.pure else find_folder_sides(device)
        found = self._compare(title, job, setting, others)
        self.verdicts.add("of pure, after the first epoch", found.compute_ratio(FOOTPLATE, [PURE], _later), aim)
        ran = [name for name in others if name in found.rates]
        if not ran:
            return found
        self.verdicts.add("of the best other, first epoch", found.compute_ratio(FOOTPLATE, ran, _first), 1.0)
        limit = found.compute_ratio(PURE, ran, _later)
        why = f", {aim} of pure's {limit:.2f}"
        self.verdicts.add("of the best other, after it", found.compute_ratio(FOOTPLATE, ran, _later), aim * limit, why)
        return found

    def compare_task(self, name: str, job: Job) -> Comparison:
        """Compare the speed of a job for a task other than classification with training steps alone."""
        on_gpu = is_gpu(job.parallel.devices[0])
        formats = TASKS[job.task].entry.annotations
        splits = open_splits(
            job.data.dataset, val_fraction=job.data.val_fraction, seed=job.training.seed, kinds=formats
        )
        setting = Setting(
            data=job.data.dataset, model=job.model.name, size=TASKS[job.task].get_image_size(job), batch=job.training.batch_size,
            classes=len(splits.classes), images=len(splits.train), seconds=self.chosen.seconds, job=job,
            device="cuda" if on_gpu else "cpu",
        )  # fmt: skip
        title = f"{name}, {job.task}, {len(splits.train)} images, {job.model.name} at {setting.size} px, batch {setting.batch}, {setting.device}"
        found = self._compare(title, job, setting, {})
        self.verdicts.add("of pure, after the first epoch", found.compute_ratio(FOOTPLATE, [PURE], _later), TASK_AIM)
        return found

    def _compare(self, title: str, job: Job, setting: Setting, others: dict[str, Side]) -> Comparison:
        print(f"\n{title}", flush=True)
        names = [FOOTPLATE, PURE, *others]
        found = Comparison(title, {name: [] for name in names}, {name: [] for name in names})
        for number in range(self.chosen.rounds):
            for name in [each for each in (reversed(names) if number % 2 else names) if each in found.rates]:
                with GpuWatch() if setting.device == "cuda" else contextlib.nullcontext() as watch:
                    if name == FOOTPLATE:
                        run = self._run(job, report_choices=number == 0)
                        rates = run.rates
                        setting = replace(setting, **convert_choices(run.choices))
                    elif name == PURE:
                        rates = run_in_process(sides.time_bare_steps, setting)
                    else:
                        try:
                            rates = run_in_process(others[name], setting)
                        except SystemExit:
                            print(f"  {name} fails here and is left out", flush=True)
                            del found.rates[name], found.gpu[name]
                            continue
                self._on_result(name, rates)
                found.rates[name].append(rates)
                if watch is not None:
                    found.gpu[name].append(watch.measure(rates.window))
                print(f"  round {number + 1}, {name}: {rates.first:,.1f}, {rates.later:,.1f} images/s", flush=True)
        found.print()
        return found

    def _run(self, job: Job, *, report_choices: bool) -> WatchedRun:
        shutil.rmtree(os.environ["FOOTPLATE_CACHE"], ignore_errors=True)
        self._runs += 1
        run = WatchedRun(self._forker, job, self._folder / f"run-{self._runs}", seconds=self.chosen.seconds)
        self.bottleneck = run.bottleneck
        for choice in run.choices.values() if report_choices else ():
            print(f"  {choice.field}: {choice.choice} ({choice.why})", flush=True)
        return run


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="one round of 5 s, 400 made images, 64 px alone")
    parser.add_argument("--pure", action="store_true", help="folders of images against bare steps alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--images", type=int, default=5000, help="made for the part “made”")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 160])
    parser.add_argument("--datasets", type=Path, default=DATASETS)
    parser.add_argument("--gpu", default="0", help="the GPU's UUID or index")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.seconds, chosen.images, chosen.sizes = 1, 5.0, 400, chosen.sizes[:1]
    print(f"{describe_environment()}; {chosen.rounds} rounds of {chosen.seconds:g} s")
    with use_empty_home() as folder, contextlib.closing(Forker()) as forker:
        bench = Bench(chosen, forker, folder)
        if "mnist" in chosen.only:
            bench.compare_mnist()
        if "hymenoptera" in chosen.only:
            for size in chosen.sizes:
                bench.compare_images("hymenoptera", chosen.datasets / "hymenoptera", size)
        if "made" in chosen.only:
            synthetic = make_images(folder / "made", chosen.images + 200, 500, held_out=200, distinct=250)
            for size in chosen.sizes:
                bench.compare_images("made", synthetic, size)
        for dataset, job in TASK_JOBS.items():
            if dataset in chosen.only:
                fields = {"dataset": str(chosen.datasets / dataset), "epochs": 1000, "devices": ("cpu",)}
                bench.compare_task(dataset, job.with_fields(**fields))
        if "gpu" in chosen.only and torch.cuda.is_available():
            print(f"\n{describe_gpu()}")
            like_imagenet = make_images(folder / "gpu", 20_000, 500, held_out=500, distinct=500)
            bench.compare_images("gpu", like_imagenet, 224, "cuda", model="resnet50", batch=256)
    print("\nall aims are met" if bench.verdicts.met else "\nan aim is missed")
    return 0 if bench.verdicts.met else 1


if __name__ == "__main__":
    sys.exit(main())
