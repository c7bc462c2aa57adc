"""Accuracy of detectors after short trainings: those of transformers, Faster R-CNN and Ultralytics' YOLO11n.

    python tests/benchmarks/detectors.py [--epochs N] [--only MODEL ...] [--results FILE] [--python PYTHON]

Each model is trained with Footplate's recipe on the training images of bccd and evaluated on its validation images. The
output is a table with COCO's AP and AP50 in the best epoch, and the minutes including the start. All models start from
random weights, except for "fasterrcnn", whose encoder has the included weights. YOLO11n is trained and evaluated by
Ultralytics with its defaults, by the interpreter `--python`. It is skipped if that interpreter lacks the package.
Results that the file `--results` contains are not measured again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from engine.supervisor.environment import usable_cores
from tests.benchmarks.frame import DATASETS, describe_environment, make_parser
from tests.benchmarks.outcome import (
    Results,
    TrainingError,
    describe_commit,
    has_packages,
    run_training,
    train_with_recipe,
)
from tests.support.experts import Setting

BATCH = 8
"""Batch size for Ultralytics. Recipes determine the batch sizes of other models."""
SIZES = {"rfdetr_nano": 288}
"""Image sizes in pixels for models that don't accept the common size."""
SCRATCH = ("--no-pretrained", "--recipe", "from-scratch")
YOLO = "yolo11n"
HUB_MODELS = ("dfine_n", "deimv2_pico", "deimv2_n", "rtdetrv2_r18", "rfdetr_nano")
FLAGS: dict[str, tuple[str, ...]] = {
    "fasterrcnn": ("--model", "fasterrcnn"),
    "fasterrcnn_random": ("--model", "fasterrcnn", *SCRATCH),
    YOLO: (),
    **{name: ("--model", name, *SCRATCH) for name in HUB_MODELS},
}
"""Flags of `footplate train` for each row of the table."""


def train(name: str, size: int, options: Any) -> dict[str, Any]:
    """Train the model `name` on images of `size` px.

    Returns "ap" and "ap50" in the best epoch, the "minutes" of training, and the "versions" and "machine" used.
    """
    started = time.monotonic()
    versions: dict[str, str] = {}
    if name == YOLO:
        folder = str(DATASETS / "bccd")
        setting = Setting(folder, YOLO, "", size, options.epochs, BATCH, options.seed, usable_cores())
        measured, versions = train_with_recipe("ultralytics", setting, options.python)
    else:
        more = ["--image-size", size, "--epochs", options.epochs, "--seed", options.seed, "--start", "at_once"]
        measured = run_training([DATASETS / "bccd", "--task", "detection", "--json", *FLAGS[name], *more])
    best = max(measured, key=lambda epoch: epoch["map"])
    minutes = (time.monotonic() - started) / 60
    return {
        "ap": best["map"],
        "ap50": best["ap50"],
        "minutes": minutes,
        "versions": versions,
        "machine": describe_environment(),
    }


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(FLAGS), default=tuple(FLAGS))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--size", type=int, default=256, help="the images' side in pixels; 288 for RF-DETR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable, help="which has Ultralytics")
    parser.add_argument("--results", type=Path, default=Path("detectors.json"))
    options = parser.parse_args()
    print(describe_environment(), flush=True)
    results = Results(options.results)
    failed = False
    print("| model | size | epochs | AP | AP50 | minutes |\n|---|---|---|---|---|---|", flush=True)
    for name in options.only:
        size = SIZES.get(name, options.size)
        settings = {"model": name, "size": size, "epochs": options.epochs, "seed": options.seed}
        settings |= {"commit": describe_commit()} if name != YOLO else {}
        if results.get(settings) is None and name == YOLO and not has_packages(options.python, "ultralytics"):
            continue
        try:
            cell = results.get(settings) or train(name, size, options)
        except TrainingError as failure:
            print(f"{name} failed: {failure}", flush=True)
            failed = True
            continue
        results.add(settings, cell)
        figures = f"{cell['ap']:.3f} | {cell['ap50']:.3f} | {cell['minutes']:.1f}"
        print(f"| {name} | {size} | {options.epochs} | {figures} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
