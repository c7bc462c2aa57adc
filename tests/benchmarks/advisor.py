"""Quality of the advisor's answers: `python tests/benchmarks/advisor.py [--only JOB ...] [--seconds N]`.

Five jobs run on two CPU workers with one core each: a small CNN, a ResNet, a ViT, wide layers whose gradients are slow
to exchange, and a model that exceeds the memory limit of one worker. For each job, the benchmark compares:

- Speed: the advised setup with the best of all setups. Both are measured again in turns. The aim is a ratio of 0.95.
- Time: the predicted training time with that of a run of `footplate train`. The aim is a difference of at most 10%.
- Memory: the estimates for two workers with the measurements in trials. The aim is a difference of at most 15%.
- The advisor's duration with its budget. It must also leave no processes or files behind.

Variants of a setup that is less than half as fast as the best one are skipped. The benchmark takes about eight minutes
on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from engine.advisor.advice.contenders import Contender, rank
from engine.advisor.advice.setups import Setup, list_setups
from engine.advisor.advice.trial_files import TrialRequest
from engine.advisor.advice.trials import try_setup
from engine.advisor.workers import TrialFolder, import_for
from engine.contract.advice import ADVISING, Advice, AdviceProgress, AdviceRequest, apply_candidate
from engine.contract.catalogue import load_catalogue
from engine.contract.events import EVENT, RunFinished
from engine.contract.job import Job, save_job
from engine.contract.messages import Done
from engine.system import paths
from tests.benchmarks.frame import ROOT, describe_environment, make_parser, use_empty_home
from tests.support.consent import permit_model_file
from tests.support.timed_runs import make_images

MIN_SPEED, TIME_OFF, MEMORY_OFF = 0.95, 0.10, 0.15
OVER_S = 3.0
"""Seconds by which the advisor may exceed its budget, because it has to end the last trial."""
TURNS = 3
WORKERS = ("cpu", "cpu")
CAP_BYTES = 1_800_000_000

WIDE = """
from torch import nn

def build_model(num_classes):
    wide = [layer for _ in range(3) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    return nn.Sequential(nn.AdaptiveAvgPool2d(16), nn.Flatten(), nn.LazyLinear(2048), *wide, nn.Linear(2048, num_classes))
"""
DEEP = """
import torch
from torch import nn

class Deep(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(())), nn.Linear(3, classes)

    def forward(self, x):
        x = x.expand(-1, 3, -1, -1) * self.scale
        for _ in range(12):
            x = torch.sigmoid(x)
        return self.last(x.mean((2, 3)))

def build_model(num_classes):
    return Deep(num_classes)
"""


class AdvisorCase(msgspec.Struct, frozen=True):
    """Job for the advisor. `cap_bytes` is the memory limit of each process in bytes, or 0 for no limit."""

    job: Job
    cap_bytes: int = 0


def make_cases(folder: Path, epochs: int) -> dict[str, AdvisorCase]:
    images = str(make_images(folder / "images", 520, 64, ".bmp", held_out=8))

    def custom(name: str, text: str, **changes: Any) -> Job:
        file = folder / f"{name}.py"
        file.write_text(text)
        return Job.from_fields(dataset=images, model=str(file), model_file_sha256=permit_model_file(file), **changes)

    common: dict[str, Any] = {"devices": WORKERS, "strategy": "ddp", "epochs": epochs, "cpu_threads": 1}
    return {
        "small_cnn": AdvisorCase(
            Job.from_fields(
                dataset=str(paths.sample_dataset()),
                model="mnist_cnn",
                image_size=28,
                batch_size=64,
                **{**common, "epochs": 8 * epochs},
            )
        ),
        "resnet": AdvisorCase(
            Job.from_fields(dataset=images, model="resnet18", image_size=64, batch_size=32, **common)
        ),
        "vit": AdvisorCase(
            Job.from_fields(dataset=images, model="timm:vit_tiny_patch16_224", image_size=64, batch_size=32, **common)
        ),
        "wide": AdvisorCase(
            custom(
                "wide",
                WIDE.replace("nn.LazyLinear(2048)", "nn.Linear(768, 2048)"),
                image_size=32,
                batch_size=16,
                **common,
            )
        ),
        "capped": AdvisorCase(
            custom("deep", DEEP, image_size=192, batch_size=128, **{**common, "epochs": 4 * epochs}), CAP_BYTES
        ),
    }


def limit_memory(cap_bytes: int) -> Any:
    return partial(resource.setrlimit, resource.RLIMIT_DATA, (cap_bytes, cap_bytes)) if cap_bytes else None


def run_advisor(case: AdvisorCase, seconds: float, folder: Path) -> tuple[Advice, float]:
    """Run the advisor for at most `seconds`. Return its answer and the time in seconds that it took.

    Exits if the advisor leaves processes or files behind.
    """
    request = msgspec.json.encode(AdviceRequest(job=case.job, seconds=seconds, remeasure=True))
    start = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "engine.advisor.advice"],
        input=request,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=limit_memory(case.cap_bytes),
        check=True,
    )
    took_s = time.monotonic() - start
    *progress, last = map(ADVISING.decode, result.stdout.splitlines())
    assert all(isinstance(message, AdviceProgress) for message in progress)
    if not isinstance(last, Done):
        raise SystemExit(f"Refused: {last}")
    answer: Advice = last.answer
    left = [*map(str, folder.iterdir()), *(child.name() for child in psutil.Process().children(recursive=True))]
    if left:
        raise SystemExit(f"Left behind: {', '.join(left)}")
    return answer, took_s


def measure_jobs(cap_bytes: int, jobs: Sequence[Job], seconds: float) -> dict[Job, float]:
    """Measure jobs in a process with a memory limit of `cap_bytes`, each for `seconds`.

    Returns the speed of each job in images per second.
    """
    with tempfile.NamedTemporaryFile() as given:
        given.write(msgspec.json.encode(list(jobs)))
        given.flush()
        result = subprocess.run(
            [sys.executable, __file__, "--measure", given.name, "--seconds", str(seconds)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a process without threads can fork workers
            preexec_fn=limit_memory(cap_bytes),
            check=True,
        )
    return dict(zip(jobs, json.loads(result.stdout.splitlines()[-1]), strict=True))


def measure_all_setups(case: AdvisorCase, first: Job, seconds: float) -> dict[Job, float]:
    """Measure the speed of `first` and of every setup (strategy with its options) that is possible for a case.

    Returns images per second by job. If a strategy with default options is less than half as fast as the fastest job,
    its other options are skipped.
    """
    able = [setup for setup in list_setups(case.job, load_catalogue()) if not setup.refusal]
    bases = {way.name: way.job for way in able if not way.base_name}
    speeds = measure_jobs(case.cap_bytes, list(dict.fromkeys([first, *bases.values()])), seconds)
    near = [way.job for way in able if way.base_name and 2 * speeds[bases[way.base_name]] > max(speeds.values())]
    return speeds | measure_jobs(case.cap_bytes, near, seconds) if near else speeds


def measure(jobs: list[Job], seconds: float) -> list[float]:
    """Measure jobs in this process, each for `seconds`, and return their speeds in images per second.

    A job that is less than half as fast as the best previous job is aborted. Its speed is that of the steps until then,
    or 0 if none was timed.
    """
    import_for(jobs[0] if len(jobs[0].parallel.devices) > 1 else jobs[0].with_fields(strategy="ddp", devices=WORKERS))
    tried: list[Contender] = []
    with TrialFolder() as folder:
        for job in jobs:
            tried.append(Contender(Setup(job, job.parallel.strategy)))
            best = min(each.step_s for each in rank(tried))
            try_setup(tried[-1], TrialRequest(seconds=seconds, give_up_s=2 * best), Path(folder), 120)
    return [each.speed.median for each in tried]


def measure_run_s(job: Job, folder: Path, cap_bytes: int) -> float:
    """Run the job with `footplate train`. Return the seconds from the supervisor's start to its end.

    `cap_bytes` is the memory limit of each process in bytes, or 0 for no limit.
    """
    save_job(job, folder / "job.toml")
    trust = ["--trust-model-file"] if job.model_is_file else []
    result = subprocess.run(
        [sys.executable, "footplate.py", "train", "--job", str(folder / "job.toml"), "--json", *trust],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "FOOTPLATE_HOME": str(folder / "home")},
        preexec_fn=limit_memory(cap_bytes),
        check=True,
    )
    events = map(EVENT.decode, result.stdout.splitlines())
    return next(event.seconds for event in events if isinstance(event, RunFinished))


def check_case(name: str, case: AdvisorCase, seconds: float, trial_s: float) -> list[str]:
    """Compare the advice for a case with measurements, print the results, and return descriptions of missed aims.

    The advisor runs for at most `seconds`. For comparison, every possible setup is measured for `trial_s` seconds.
    """
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "trials")
        folder.mkdir()
        answer, took_s = run_advisor(case, seconds, folder)
        print(f"{name}: {answer.sentence}", flush=True)
        print(
            f"  {len(answer.table)} of {answer.considered} tried in {took_s:.1f} s of {seconds:g} ({answer.ended_by})",
            flush=True,
        )
        if took_s > seconds + OVER_S:
            wrong.append(f"{name}: the advisor took {took_s:.1f} s")
        if not answer.fits:
            return [*wrong, f"{name}: nothing fits"]
        first = apply_candidate(case.job, answer.table[0])
        predicted = answer.table[0].time
        assert predicted is not None
        real_s = measure_run_s(first, Path(temporary), case.cap_bytes)
        off = predicted.total_s / real_s - 1
        print(
            f"  time: predicted {predicted.total_s:.1f} s, took {real_s:.1f} s ({100 * off:+.1f}%); {predicted}",
            flush=True,
        )
        if abs(off) > TIME_OFF:
            wrong.append(f"{name}: predicted time {100 * off:+.1f}%")
        offs = {
            row.name: row.estimated_bytes / row.memory_bytes - 1
            for row in answer.table
            if row.memory_bytes and row.estimated_bytes and len(row.devices) > 1
        }
        worst = max(offs, key=lambda row: abs(offs[row]), default="")
        print(f"  memory: {', '.join(f'{row} {100 * off:+.1f}%' for row, off in offs.items())}", flush=True)
        if worst and abs(offs[worst]) > MEMORY_OFF:
            wrong.append(f"{name}: memory of {worst} {100 * offs[worst]:+.1f}%")
        speeds = measure_all_setups(case, first, trial_s)
        rivals = sorted(speeds, key=lambda job: -speeds[job])[:2]
        turns = [measure_jobs(case.cap_bytes, list(dict.fromkeys([first, *rivals])), 2 * trial_s) for _ in range(TURNS)]
        medians = {job: statistics.median(rates_by_job[job] for rates_by_job in turns) for job in turns[0]}
        if not medians[first]:
            return [*wrong, f"{name}: the advised way does not run again"]
        share = medians[first] / max(medians.values())
        best = max(medians, key=lambda job: medians[job])
        named = next(
            (setup.name for setup in list_setups(case.job, load_catalogue()) if setup.job == best), "the advised"
        )
        print(f"  speed: {medians[first]:,.1f} images/s, {share:.3f} of the best of {len(speeds)}: {named}", flush=True)
        if share < MIN_SPEED:
            wrong.append(f"{name}: {share:.3f} of the best speed")
    return wrong


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=30.0, help="the advisor's time for each job")
    parser.add_argument(
        "--trial-seconds", type=float, default=0.3, help="how long each way is timed in the exhaustive run"
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure is not None:
        jobs = msgspec.json.decode(chosen.measure.read_bytes(), type=list[Job])
        print(json.dumps(measure(jobs, chosen.seconds)))
        return
    print(describe_environment(), flush=True)
    with use_empty_home() as folder:
        wrong = [
            missed
            for name, case in make_cases(folder, chosen.epochs).items()
            if not chosen.only or name in chosen.only
            for missed in check_case(name, case, chosen.seconds, chosen.trial_seconds)
        ]
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
