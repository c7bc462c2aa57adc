"""Evaluation, prediction, heat maps and conversion on the GPU, compared with the CPU."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.contract.devices import CPU
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.gpu.jobs import write_class_folders

TOLERANCE = 1e-2
"""Maximum difference of metrics and probabilities between GPU and CPU."""
PIXEL_TOLERANCE = 12.0
"""Maximum mean difference between the pixels of two heat maps. Pixels range from 0 to 255."""


def run_footplate(*arguments: str) -> Any:
    """Run a Footplate command with `arguments`, and return its decoded JSON output.

    Raises:
        RuntimeError: The command fails. The message contains its error messages.
    """
    command = [sys.executable, "footplate.py", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:] or f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def train_run(context: CheckContext, model: str = "mnist_cnn") -> tuple[str, Path]:
    """Train a small run on the GPU. Return its id and the path of its dataset."""
    data = write_class_folders(context.folder / "data", {"train": 60, "val": 30})
    answer = run_footplate(
        "train", str(data), "--no-pretrained", "--model", model, "--image-size", "32", "--epochs", "2", "--batch-size", "12",
        "--devices", context.gpu, "--name", "used",
    )  # fmt: skip
    context.claim("the run completes", answer.get("outcome") == "completed", str(answer)[:200])
    return "used", data


def compare_evaluation(context: CheckContext) -> None:
    """Compare the metrics of an evaluation on the GPU with those on the CPU."""
    run, _ = train_run(context)
    on_gpu, on_cpu = (run_footplate("evaluate", run, "--devices", device)["measures"] for device in (context.gpu, CPU))
    # Compare the values without their intervals.
    differences = [abs(on_gpu[name][0] - on_cpu[name][0]) for name in on_cpu]
    context.measure(
        "evaluation: largest difference of a metric", max(differences), "", at_most=TOLERANCE, anywhere=True
    )


def compare_predictions(context: CheckContext) -> None:
    """Compare the values that `footplate predict` writes on the GPU with those on the CPU."""
    run, data = train_run(context)
    tables = []
    for device in (context.gpu, CPU):
        out = context.folder / f"predicted-{len(tables)}"
        run_footplate("predict", run, str(data / "val"), "--devices", device, "--format", "csv", "--out", str(out))
        (table,) = out.glob("*.csv")
        with table.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))[1:]
        tables.append({row[0]: [float(value) for value in row if _is_number(value)] for row in rows})
    context.claim("predictions: the same images", tables[0].keys() == tables[1].keys(), f"{len(tables[1])} images")
    difference = max(float(np.abs(np.subtract(tables[0][name], tables[1][name])).max()) for name in tables[1])
    context.measure("predictions: largest difference of a value", difference, "", at_most=TOLERANCE, anywhere=True)


def compare_heat_maps(context: CheckContext) -> None:
    """Compare the pixels of heat maps that are computed on the GPU and on the CPU."""
    run, data = train_run(context)
    images = sorted(map(str, (data / "val").rglob("*.*")))[:3]
    maps = []
    for device in (context.gpu, CPU):
        out = context.folder / f"explained-{len(maps)}"
        run_footplate("explain", run, *images, "--devices", device, "--out", str(out))
        maps.append([np.asarray(Image.open(path).convert("RGB"), float) for path in sorted(out.rglob("*.png"))])
    context.claim("heat maps: same number", len(maps[0]) == len(maps[1]) > 0, f"{len(maps[0])}")
    difference = max(float(np.abs(one - other).mean()) for one, other in zip(*maps, strict=True))
    context.measure("heat maps: mean pixel difference", difference, "/ 255", at_most=PIXEL_TOLERANCE, anywhere=True)


def check_conversion(context: CheckContext) -> None:
    """Convert a model that was trained on the GPU, and check that the converted model has the same outputs."""
    if any(find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        raise Skipped("onnx, onnxscript and onnxruntime are not installed")
    run, _ = train_run(context, "resnet18")
    answer = run_footplate("convert", run, "--to", "onnx", "--out", str(context.folder / "converted"))
    context.claim("the converted model equals the trained one", not answer.get("problems"), str(answer)[:300])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def main() -> None:
    run_checks(
        {
            "evaluate": (compare_evaluation, 90),
            "predict": (compare_predictions, 90),
            "explain": (compare_heat_maps, 90),
            "convert": (check_conversion, 120),
        }
    )


if __name__ == "__main__":
    main()
