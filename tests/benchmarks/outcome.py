"""Quality of models against expert recipes: `python tests/benchmarks/outcome.py [--only COMPARISON ...]`.

Models are trained by `footplate train` and by the recipes in `tests/support/experts.py`, with the same images, image
size, epochs, batch size and initial weights, once per seed. The output has a table for each comparison: the mean and
standard deviation of the metric in the best and in the last epoch, and the ratio to the best of the recipes. The exit
code is 1 if Footplate's mean is lower by more than two standard errors, or if a training failed.

The JSON file `--results` contains a result for each training. Results for the same settings are reused, so that an
interrupted benchmark can continue. Footplate's results are identified by commit and flags. Another `--label` or other
`--footplate-flags` add a row to the table.

The recipes are run by the interpreter `--python`. Recipes whose package it lacks are skipped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.supervisor.environment import usable_cores
from tests.benchmarks.frame import ROOT, SHARED, describe_environment, make_parser
from tests.support.experts import Setting

WEIGHTS = SHARED / "weights/tf_efficientnet_lite0.safetensors"
MODEL = "tf_efficientnet_lite0"
STANDARD_ERRORS = 2.0
OTHERS_BATCH = 8
CLASSIFIERS = ("fastai", "timm", "torchvision")
SEGMENTER = ("--task", "segmentation", "--model", "unet", "--encoder", f"tu-{MODEL}")
MODULES = {"smp": "segmentation_models_pytorch", "pytorch": "torch"}


@dataclass(frozen=True)
class Comparison:
    """Comparison of Footplate with the training recipes `others` of tests/support/experts.py.

    `folder` is the name of the dataset's folder, `measure` the id of the compared metric, and `flags` are Footplate's
    flags. If `weights` is False, the recipes train from random weights, and Footplate chooses its initial weights. If
    `batch` is None, Footplate chooses its batch size, and the recipes use `OTHERS_BATCH`.
    """

    folder: str
    measure: str
    size: int
    epochs: int
    batch: int | None
    others: tuple[str, ...]
    flags: tuple[str, ...]
    model: str = MODEL
    weights: bool = True
    ignored: int | None = None


FINE_TUNED = ("--model", f"timm:{MODEL}")
RESNET18 = ("--model", "resnet18", "--recipe", "from-scratch")
COMPARISONS = {
    "hymenoptera": Comparison("hymenoptera", "top1", 160, 5, 32, CLASSIFIERS, FINE_TUNED),
    "fashion": Comparison("fashion_mnist_small", "top1", 96, 5, 32, CLASSIFIERS, FINE_TUNED),
    "garments": Comparison("", "top1", 96, 5, 32, CLASSIFIERS, FINE_TUNED),
    "mnist-scratch": Comparison(
        "mnist", "top1", 28, 5, 64, ("pytorch", "fastai"), ("--model", "mnist_cnn"), "mnist_cnn", weights=False
    ),
    "fashion-scratch": Comparison(
        "fashion_mnist_small", "top1", 64, 20, 32, CLASSIFIERS, RESNET18, "resnet18", weights=False
    ),
    "camvid": Comparison(
        "camvid_subset", "miou", 128, 20, 8, ("smp",), (*SEGMENTER, "--ignore-value", "11"), ignored=11
    ),
    "nuclei": Comparison("nuclei_subset", "miou", 192, 10, 8, ("smp",), SEGMENTER),
    "bccd": Comparison("bccd", "map", 256, 10, None, (), ("--task", "detection"), weights=False),
    "bccd-320": Comparison("bccd", "map", 320, 10, None, (), ("--task", "detection"), weights=False),
    "nuclei-instances": Comparison(
        "nuclei_subset", "mask_map", 256, 10, None, (), ("--task", "instance_segmentation"), weights=False
    ),
}


def write_garments(folder: Path, _: Path) -> None:
    """Write images of 96 px: garments of the sample dataset, tinted and at random positions, on smooth backgrounds."""
    random = np.random.default_rng(0)
    for path in sorted((ROOT / "resources/sample").rglob("*.png")):
        for number in range(2):
            coarse = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            ground = Image.fromarray(coarse).resize((96, 96), Image.Resampling.BICUBIC)
            side = int(random.integers(32, 72))
            garment = Image.open(path).convert("L").resize((side, side))
            tint = Image.new("RGB", garment.size, tuple(random.integers(96, 256, 3).tolist()))
            ground.paste(tint, tuple(random.integers(0, 96 - side, 2).tolist()), garment)
            target = folder / path.relative_to(ROOT / "resources/sample").with_name(f"{path.stem}-{number}.jpg")
            target.parent.mkdir(parents=True, exist_ok=True)
            ground.save(target, quality=90)


def write_nuclei(folder: Path, source: Path) -> None:
    """Write the images of the dataset in `source`, each with a mask in which all nuclei have the value 1."""
    for path in sorted((source / "masks").rglob("*.png")):
        mask = folder / "masks" / path.parent.name / path.name
        mask.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((np.asarray(Image.open(path)) > 0).astype(np.uint8)).save(mask)
        image = folder / "images" / path.parent.name / path.name
        image.parent.mkdir(parents=True, exist_ok=True)
        image.symlink_to((source / "images" / path.parent.name / path.name).resolve())


MAKERS = {"garments": write_garments, "nuclei": write_nuclei}
"""Functions that write generated datasets, by the name of the dataset's folder."""


class TrainingError(Exception):
    """Raised when a training run fails. The message is the reason."""


class Results:
    """Results of trainings in a JSON file. Keys are the trainings' settings as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, settings: dict[str, Any], cell: dict[str, Any]) -> None:
        self.cells[_key(settings)] = {**settings, **cell}
        partial = self._path.with_name(self._path.name + ".part")
        partial.write_text(json.dumps(self.cells, indent=1))
        os.replace(partial, self._path)

    def get(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        return self.cells.get(_key(settings))


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def describe_commit() -> str:
    """Return the short hash of the Git commit, followed by "+" if the folder engine has uncommitted changes."""

    def git(*arguments: str) -> str:
        return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", "engine") else "")


def train_with_footplate(setting: Setting, comparison: Comparison, flags: list[str]) -> list[float]:
    """Train with Footplate and return the metric after each epoch."""
    arguments = [setting.data, "--json", *comparison.flags, "--image-size", setting.size, "--epochs", setting.epochs]
    arguments += ["--seed", setting.seed, "--start", "at_once"]
    if comparison.weights:
        arguments += ["--weights-file", setting.weights]
    if comparison.batch is not None:
        arguments += ["--batch-size", comparison.batch]
    return [measures[comparison.measure] for measures in run_training([*arguments, *flags])]


def run_training(arguments: list[Any]) -> list[dict[str, float]]:
    """Run `footplate train` with these arguments, which must include --json. Return the metrics after each epoch."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"FOOTPLATE_HOME": f"{folder}/home", "FOOTPLATE_CACHE": f"{folder}/cache"}
        command = [sys.executable, str(ROOT / "footplate.py"), "train", *map(str, arguments)]
        output = _output(command, environment)
    events = [json.loads(line) for line in output.splitlines()]
    return [event["measures"] for event in events if event["type"] == "validation"]


def train_with_recipe(recipe: str, setting: Setting, python: str) -> tuple[list[Any], dict[str, str]]:
    """Train with a recipe in the interpreter `python`. Return the metrics per epoch, and its packages' versions."""
    script = str(ROOT / "tests/support/experts.py")
    output = _output([python, "-W", "ignore", script, recipe, json.dumps(asdict(setting))], {})
    answer = json.loads(output.splitlines()[-1])
    return answer["values"], answer["versions"]


def _output(command: list[str], environment: dict[str, str]) -> str:
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **environment})
    if ended.returncode:
        raise TrainingError("\n".join((ended.stderr.strip() or ended.stdout.strip()).splitlines()[-4:]))
    return ended.stdout


def has_packages(python: str, recipe: str) -> bool:
    """Return True if the interpreter `python` has the packages that the recipe needs."""
    test = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({MODULES.get(recipe, recipe)!r}))"
    return subprocess.run((python, "-c", test), check=False).returncode == 0


def train_sides(name: str, options: argparse.Namespace, results: Results, folder: Path) -> Iterator[tuple[str, Any]]:
    """Train each side (Footplate or another library) of the comparison `name`, unless its results are saved.

    Yields the name of the side with its results, one per seed. A failed training has the result None. Sides that the
    options exclude or whose library is missing are skipped.
    """
    comparison = COMPARISONS[name]
    size, epochs = options.size or comparison.size, options.epochs or comparison.epochs
    for side in ("footplate", *comparison.others):
        if options.sides and side not in options.sides:
            continue
        if side != "footplate" and not has_packages(options.python, side):
            print(f"{name}: {side} is left out, which {options.python} lacks.", flush=True)
            continue
        cells = []
        for seed in options.seeds:
            setting = Setting(
                str(folder), comparison.model, str(options.weights) if comparison.weights else "", size, epochs,
                comparison.batch or OTHERS_BATCH, seed, options.threads, comparison.ignored,
            )  # fmt: skip
            settings = {"dataset": name, "side": side, "measure": comparison.measure, "weights": comparison.weights}
            settings |= {field: getattr(setting, field) for field in ("model", "size", "epochs", "batch", "seed")}
            if side == "footplate":
                settings |= {"label": options.label, "flags": options.footplate_flags, "commit": describe_commit()}
            if results.get(settings) is None:
                train(setting, settings, options, results)
            cells.append(results.get(settings))
        yield (side if side != "footplate" else options.label), cells


def train(setting: Setting, settings: dict[str, Any], options: argparse.Namespace, results: Results) -> None:
    """Train with Footplate or a recipe, and save the result under `settings`. If training fails, print the reason."""
    start = time.monotonic()
    name, side = settings["dataset"], settings["side"]
    versions: dict[str, str] = {}
    try:
        if side == "footplate":
            values = train_with_footplate(setting, COMPARISONS[name], shlex.split(options.footplate_flags))
        else:
            values, versions = train_with_recipe(side, setting, options.python)
    except TrainingError as failure:
        print(f"  {name}, {side}, seed {setting.seed} failed:\n{failure}", flush=True)
        return
    seconds = time.monotonic() - start
    results.add(
        settings, {"values": values, "seconds": seconds, "versions": versions, "machine": describe_environment()}
    )
    text = " ".join(f"{value:.3f}" for value in values)
    print(f"  {name}, {side}, seed {setting.seed}: {text}; {seconds:.0f} s", flush=True)


def compare(name: str, options: argparse.Namespace, results: Results, folder: Path) -> bool:
    """Print the table of a comparison.

    Returns True if Footplate is as good as the best recipe (within the noise) and no training failed.
    """
    rows = dict(train_sides(name, options, results, folder))
    complete = {side: cells for side, cells in rows.items() if cells and None not in cells}
    best = {side: [max(cell["values"]) for cell in cells] for side, cells in complete.items()}
    others = {side: statistics.mean(values) for side, values in best.items() if side != options.label}
    expert = max(others, key=lambda side: others[side], default=None)
    print(f"\n| {name}, {COMPARISONS[name].measure} | best epoch | last epoch | to the best other | seconds |")
    print("|---|---|---|---|---|")
    for side, cells in complete.items():
        ratio = f"{statistics.mean(best[side]) / others[expert]:.3f}" if expert is not None else ""
        last = [cell["values"][-1] for cell in cells]
        seconds = statistics.mean(cell["seconds"] for cell in cells)
        print(f"| {side} | {_spread(best[side])} | {_spread(last)} | {ratio} | {seconds:.0f} |")
    print(flush=True)
    if options.label not in best or expert is None:
        return len(complete) == len(rows)
    noise = STANDARD_ERRORS * math.sqrt(
        sum(_variance(best[side]) / len(best[side]) for side in (options.label, expert))
    )
    return len(complete) == len(rows) and statistics.mean(best[options.label]) >= others[expert] - noise


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ± {math.sqrt(_variance(values)):.4f}"


def _variance(values: list[float]) -> float:
    return statistics.variance(values) if len(values) > 1 else 0.0


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--datasets", type=Path, default=SHARED / "datasets")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help=f"timm's weights of {MODEL}")
    parser.add_argument("--only", nargs="+", choices=tuple(COMPARISONS), default=tuple(COMPARISONS))
    parser.add_argument("--sides", nargs="+", choices=("footplate", *CLASSIFIERS, "pytorch", "smp"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--size", type=int, help="the images' side in pixels")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of the others' trainings")
    parser.add_argument("--python", default=sys.executable, help="whose packages the others are trained with")
    parser.add_argument("--footplate-flags", default="", help='more for `footplate train`, e.g. "--recipe fine_tune"')
    parser.add_argument("--label", default="footplate", help="what its row is called")
    parser.add_argument("--results", type=Path, default=Path("outcome.json"))
    options = parser.parse_args()
    print(describe_environment(), flush=True)
    results = Results(options.results)
    met = True
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.only:
            source = folder = options.datasets / COMPARISONS[name].folder
            if not source.is_dir():
                print(f"{source.name} is missing and left out.")
                continue
            if name in MAKERS:
                MAKERS[name](folder := Path(temporary) / name, source)
            met &= compare(name, options, results, folder)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
