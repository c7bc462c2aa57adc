"""Wrong labels that a review finds: `python tests/benchmarks/label_errors.py [--share 0.1] [--folds 4] [--epochs 12]`.

A fraction of the 1,200 images of fashion_mnist_small get a wrong label. Then `footplate review --cross-validate` runs
with the small MNIST network. The output shows which fraction of the wrong labels is in the list of suspicious samples,
cut off at 15% of the dataset, and the precision of this list. The exit code is 1 if the fraction is below 60%.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.contract.inference.review import decode_review
from tests.benchmarks.frame import ROOT, describe_environment

IMAGES = ROOT.parent / "shared/datasets/fashion_mnist_small"
FIRST = 0.15
AIM = 0.6


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--share", type=float, default=0.1)
    arguments.add_argument("--folds", type=int, default=4)
    arguments.add_argument("--epochs", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, first = measure(Path(folder), options.share, options.folds, options.epochs, options.seed)
    print(describe_environment())
    print(f"{found:.0%} of the wrong labels are among the first 15%; {first:.0%} of the labels listed there are wrong")
    return 0 if found >= AIM else 1


def measure(folder: Path, share: float, folds: int, epochs: int, seed: int) -> tuple[float, float]:
    """Give a fraction `share` of the labels a wrong class, and review the labels by cross-validation with `folds` folds.

    Returns the recall and the precision of the review's first label issues, which are 15% of the dataset.
    """
    wrong = flip_labels(IMAGES, folder / "images", share, seed=seed)
    home = os.environ | {"FOOTPLATE_HOME": str(folder / "home")}
    start = time.monotonic()
    job = ["--model", "mnist_cnn", "--epochs", str(epochs), "--batch-size", "32", "--optimizer", "adamw"]
    job += ["--learning-rate", "0.001", "--devices", "cpu", "--predictions", "0", "--name", "whole"]
    run_footplate("train", str(folder / "images"), "--task", "classification", *job, environment=home)
    answer = run_footplate("review", "last", "--cross-validate", str(folds), "--labels", "--json", environment=home)
    review = decode_review(answer)
    assert review.held_out
    assert review.samples == sum(1 for _ in (folder / "images").glob("*/*"))
    print(
        f"{review.samples} samples, {len(wrong)} wrong labels, {review.expected_errors} expected, {time.monotonic() - start:.0f} s"
    )
    listed = [Path(issue.sample.path).name for issue in review.label_issues][: round(FIRST * review.samples)]
    hits = len(wrong.intersection(listed))
    return hits / len(wrong), hits / max(1, len(listed))


def flip_labels(source: Path, target: Path, share: float, seed: int) -> set[str]:
    """Copy images from the folders SPLIT/CLASS in `source` to the folders CLASS in `target`.

    A fraction `share` of the images, chosen by `seed`, is copied to the folder of a wrong class.

    Returns the new names of the images with wrong labels. The names begin with the split and the true class.
    """
    draw = random.Random(seed)
    classes = sorted({path.name for path in source.glob("*/*") if path.is_dir()})
    files = [path for name in classes for path in sorted(source.glob(f"*/{name}/*"))]
    wrong = set(draw.sample(files, round(share * len(files))))
    for name in classes:
        (target / name).mkdir(parents=True)
    for path in files:
        label = path.parent.name
        if path in wrong:
            label = draw.choice([name for name in classes if name != label])
        shutil.copyfile(path, target / label / f"{path.parent.parent.name}-{path.parent.name}-{path.name}")
    return {f"{path.parent.parent.name}-{path.parent.name}-{path.name}" for path in wrong}


def run_footplate(*arguments: str, environment: dict[str, str]) -> bytes:
    """Run a Footplate command and return its output. Exit if it fails."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "footplate.py"), *arguments], env=environment, stdout=subprocess.PIPE, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
