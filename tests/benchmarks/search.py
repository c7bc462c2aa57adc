"""Cost and gain of a search: `python tests/benchmarks/search.py [--only handover gain] [--trials N] [--gain-trials N]`.

The part "handover" runs trials of the sample dataset on two CPU workers. It divides the duration of the search by the
ideal for two devices, half the sum of the trials' durations. The part "gain" runs a search over a few fields on each of
three datasets. The search starts at the default settings of `footplate train` and confirms its best trials. The best
settings and the default settings are then trained with three other seeds, and the means of the best validation metric
are compared.

Missing datasets are skipped. The exit code is 1 if the quotient exceeds 1.1 or a mean is below that of the default.
"""

from __future__ import annotations

import signal
import statistics
import sys
import time
from typing import Any

from engine.checks.search_checks import validate_search
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.search import SearchState
from engine.runs.searches import (
    SearchFolder,
    best_job,
    create_search,
    describe_confirmed_result,
    start_driver,
    stop_driver,
    trials_of,
)
from engine.system import paths
from tests.benchmarks.frame import SHARED, describe_environment, make_parser, use_empty_home

AIM = 1.1
DEVICES = ["cpu", "cpu"]
SEEDS = [101, 102, 103]
ROWS: dict[str, dict[str, Any]] = {
    "fashion_mnist_small": {
        "model": "mnist_cnn",
        "image_size": 28,
        "epochs": 6,
        "batch_size": 32,
        "recipe": "from-scratch",
    },
    "mnist": {"model": "mnist_cnn", "image_size": 28, "epochs": 1, "batch_size": 128, "recipe": "from-scratch"},
    "camvid_subset": {
        "task": "segmentation",
        "model": "unet",
        "encoder": "resnet18",
        "image_size": 64,
        "epochs": 8,
        "batch_size": 6,
        "recipe": "from-scratch",
    },
}
SPACE: dict[str, Any] = {
    "learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
    "optimizer": ["sgd", "adamw"],
    "weight_decay": {"low": 1e-5, "high": 1e-1, "log": True},
    "augmentation": ["none", "light"],
}
SPACES: dict[str, dict[str, Any]] = {
    "camvid_subset": {
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "loss": ["cross_entropy", "dice", "cross_entropy_dice"],
        "class_weights": ["none", "balanced"],
        "augmentation": ["none", "light"],
    },
}
"""Search spaces for datasets that don't use the common `SPACE`."""


def run_search(name: str, job: Job, **values: Any) -> tuple[SearchFolder, SearchState, float]:
    """Run a search on two CPU workers. Return its folder, its final state and its duration in seconds.

    `values` are fields of the search. Exits if the search is invalid or doesn't complete.
    """
    search, problems = validate_search({"name": name, "devices": DEVICES, **values}, job, load_catalogue())
    if search is None:
        raise SystemExit("; ".join(map(str, problems)))
    folder = create_search(search)
    start = time.monotonic()
    start_driver(folder)
    try:
        while folder.status() == "running":
            time.sleep(0.1)
    finally:  # Ctrl+C leaves nothing behind
        stop_driver(folder)
        while folder.driver() is not None:
            time.sleep(0.1)
    seconds, state = time.monotonic() - start, folder.state()
    if state.ended != "completed":
        raise SystemExit(f"{name} is {folder.status()}: {state.cause}")
    return folder, state, seconds


def handover(trials: int, epochs: int) -> bool:
    job = Job.from_fields(
        dataset=str(paths.sample_dataset()),
        model="mnist_cnn",
        image_size=28,
        batch_size=8,
        epochs=epochs,
        predictions=0,
    )
    space = {name: SPACE[name] for name in ("learning_rate", "weight_decay")}
    _folder, state, seconds = run_search(
        "handover", job, space=space, trials=trials, pruner="none", sampler="random", confirm=0
    )
    worked_s = [run.worked_s() for run, _trial in trials_of("handover")]
    ratio = seconds / (sum(worked_s) / 2)
    print(
        f"handover: {len(state.trials)} trials of {statistics.mean(worked_s):.1f} s on two CPU workers: {seconds:.1f} s, "
        f"{ratio:.3f} x the ideal {sum(worked_s) / 2:.1f} s",
        flush=True,
    )
    return ratio <= AIM


def gain(name: str, trials: int) -> bool:
    row = ROWS[name] | {"dataset": str(SHARED / "datasets" / name)}
    start = time.monotonic()
    job = _make_default_job(row)
    folder, state, _seconds = run_search(name, job, space=SPACES.get(name, SPACE), trials=trials)
    search, best = folder.search(), state.row(state.best)
    confirmed = describe_confirmed_result(state, lambda value: f"{value:.4f}")
    assert search is not None
    if best is None:
        raise SystemExit(f"{name}: no trial was completed: {', '.join(trial.state for trial in state.trials)}")
    means = {}
    for side, each in (("default", search.job), ("best", best_job(search, best))):
        of_seeds = {"space": {"seed": SEEDS}, "sampler": "grid", "pruner": "none"}
        _folder, found, _seconds = run_search(f"{name} {side}", each, **of_seeds)
        means[side] = statistics.mean(trial.values[0] or 0.0 for trial in found.trials)
    settings = ", ".join(
        f"{field}={value:.2g}" if isinstance(value, float) else f"{field}={value}"
        for field, value in best.params.items()
    )
    print(
        f"gain: {name}: {search.goals[0].title} {means['default']:.4f} by default, {means['best']:.4f} with {settings} "
        f"(trial {best.number} of {len(state.originals)}, {best.values[0]:.4f} in the search; {confirmed}; "
        f"{state.count('pruned')} pruned; {time.monotonic() - start:.0f} s)",
        flush=True,
    )
    return means["best"] >= means["default"]


def _make_default_job(row: dict[str, Any]) -> Job:
    """Make the job that Footplate creates by default for the fields in `row`, such as dataset and task."""
    from engine.cli.main import create_parser
    from engine.cli.search import build_search

    arguments = [argument for field, value in row.items() for argument in (f"--{field.replace('_', '-')}", str(value))]
    options = create_parser().parse_args(["search", "--name", "by itself", "--vary", "seed=0,1", "--json", *arguments])
    options.unknown = []
    search, problems = build_search(options)
    if search is None:
        raise SystemExit("; ".join(map(str, problems)))
    return search.job.with_fields(predictions=0)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=("handover", "gain"), default=("handover", "gain"))
    parser.add_argument("--trials", type=int, default=20, help="of the handover")
    parser.add_argument("--epochs", type=int, default=20, help="of a trial of the handover")
    parser.add_argument("--gain-trials", type=int, default=10)
    parser.add_argument("--datasets", nargs="+", choices=tuple(ROWS), default=tuple(ROWS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    print(describe_environment(), flush=True)
    met = True
    with use_empty_home():
        if "handover" in options.only:
            met &= handover(options.trials, options.epochs)
        for name in options.datasets if "gain" in options.only else ():
            if (SHARED / "datasets" / name).is_dir():
                met &= gain(name, options.gain_trials)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
