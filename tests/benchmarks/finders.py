"""Quality of suggested learning rates: `python tests/benchmarks/finders.py [--only ROW ...]`.

Each row's job is trained with the learning rate from `find-lr` and with several fixed learning rates, once per seed,
with AdamW and a cosine schedule. The output shows the mean of the best validation metrics for each learning rate, and
the mean with suggested learning rates as a fraction of the highest mean. Rows whose dataset is missing are skipped.
Results are saved in the JSON file `--results`. They are reused for the same job and commit, so an interrupted benchmark
can continue.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from engine.cli.children import run_in_child
from engine.cli.terminal import CommandError
from engine.contract.advice import FinderRequest
from engine.contract.events import Failed, StepMetrics, Validation
from engine.contract.job import Job
from engine.supervisor.environment import usable_cores
from tests.benchmarks.frame import SHARED, describe_environment, make_parser
from tests.benchmarks.outcome import Results, describe_commit
from tests.support.worker_group import Forker, WorkerGroup

SWEEP = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
AIM = 0.98


def make_jobs(shared: Path) -> dict[str, Job]:
    """Make a small job for each dataset that exists in the folder `shared`, by the dataset's name."""
    weights = str(shared / "weights/tf_efficientnet_lite0.safetensors")
    rows = {
        "hymenoptera": Job.from_fields(
            model="timm:tf_efficientnet_lite0", weights_file=weights, image_size=96, epochs=4, batch_size=16
        ),
        "fashion_mnist_small": Job.from_fields(model="mnist_cnn", image_size=28, epochs=6),
        "mnist": Job.from_fields(model="mnist_cnn", image_size=28, epochs=1, batch_size=128),
        "camvid_subset": Job.from_fields(
            task="segmentation", model="unet", encoder="resnet18", image_size=64, epochs=10, batch_size=6
        ),
    }
    return {
        name: job.with_fields(
            dataset=str(shared / "datasets" / name), optimizer="adamw", weight_decay=0.01, augmentation="light"
        )
        for name, job in rows.items()
        if (shared / "datasets" / name).is_dir()
    }


def train_with_rate(forker: Forker, job: Job, rate: float) -> float:
    """Train the job with learning rate `rate`. Return the best value of the main metric, or 0 if training diverges."""
    with tempfile.TemporaryDirectory() as folder:
        group = WorkerGroup(forker, job.with_fields(learning_rate=rate), Path(folder), threads=usable_cores())
        group.finish(3600)
        failures = group.of(Failed)
        if failures and failures[0].kind != "not_finite":
            raise SystemExit(failures[0].cause)
        assert group.of(StepMetrics)
        return max((next(iter(validation.measures.values())) for validation in group.of(Validation)), default=0.0)


def run_finder(job: Job) -> dict[str, Any]:
    """Run the learning rate finder.

    Returns its suggestion "rate" (None if it has none), the reason "why", the number of trained "steps" and the
    duration in "seconds". "steps" is missing if the finder failed.
    """
    start = time.monotonic()
    try:
        found = run_in_child(FinderRequest("rate", job))
    except CommandError:
        return {"rate": None, "why": "The trial failed.", "seconds": time.monotonic() - start}
    seconds = time.monotonic() - start
    return {"rate": found.suggestion, "why": found.why, "steps": len(found.points), "seconds": seconds}


def compare(forker: Forker, name: str, job: Job, results: Results, seeds: int) -> float:
    """Train with suggested and with fixed learning rates, print the metrics, and return how good the suggestions are.

    The result is the mean metric with the suggestions as a fraction of the best mean metric with a fixed learning rate.
    """

    def load_or_make(job: Job, cell: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        settings = {"row": name, "job": msgspec.to_builtins(job.values()), "commit": describe_commit()} | cell
        if (known := results.get(settings)) is None:
            results.add(settings, {**make(), "machine": describe_environment()})
            known = results.get(settings)
        assert known is not None
        return known

    def value(job: Job, rate: float) -> float:
        return float(
            load_or_make(job, {"trained_at": rate}, lambda: {"value": train_with_rate(forker, job, rate)})["value"]
        )

    suggestions = []
    seeded = [job.with_fields(seed=seed) for seed in range(seeds)]
    for each in seeded:
        found = load_or_make(each, {"finder": "rate"}, lambda: run_finder(each))  # noqa: B023 - called at once
        if found["rate"] is None:
            print(f"{name}: the finder suggests none: {found['why']}", flush=True)
            return 0.0
        suggestions.append(value(each, found["rate"]))
        print(f"{name}: {found['rate']:.2g} after {found['seconds']:.0f} s: {suggestions[-1]:.4f}", flush=True)
    sweep = {}
    for rate in SWEEP:
        values = [value(each, rate) for each in seeded]
        sweep[rate] = statistics.mean(values)
        print(f"  {rate:.0e}: {sweep[rate]:.4f} ({', '.join(f'{each:.4f}' for each in values)})", flush=True)
    best = max(sweep.values())
    share = statistics.mean(suggestions) / best
    print(f"{name}: {share:.3f} of {best:.4f} at {max(sweep, key=sweep.__getitem__):.0e}", flush=True)
    return share


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of datasets/ and weights/")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("finders.json"))
    chosen = parser.parse_args()
    print(describe_environment(), flush=True)
    results = Results(chosen.results)
    with closing(Forker()) as forker:
        shares = {
            name: compare(forker, name, job, results, chosen.seeds)
            for name, job in make_jobs(chosen.shared).items()
            if not chosen.only or name in chosen.only
        }
    if not shares:
        raise SystemExit(f"None of the datasets is in {chosen.shared / 'datasets'}. Set --shared.")
    if any(share < AIM for share in shares.values()):
        raise SystemExit(f"Below {AIM}: {', '.join(name for name, share in shares.items() if share < AIM)}")


if __name__ == "__main__":
    main()
