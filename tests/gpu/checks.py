"""Framework of the GPU tests.

A part is a module in tests/gpu/parts whose `main` calls `run_checks` with its checks. A check is a function that
reports claims and measurements through a `CheckContext`. Results go to standard output as JSON lines, and everything
else to standard error:

    {"checks": {CHECK: SECONDS, ...}}           first: the checks with their time limits
    {"begin": CHECK}                            then for each check
    {"name": TEXT, "outcome": OUTCOME, ...}     any number of results: "ok", "failed", "skipped" or "measured", with a "text"
                                                and for measurements "figure", "unit" and "at_most" or "at_least"
    {"fact": NAME, "value": TEXT}               a fact about the machine
    {"file": NAME, "text": TEXT}                a file for the report
    {"end": CHECK}
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import faulthandler
import functools
import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import torch

from engine.contract.devices import CPU
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.gpus.cuda_order import ask_cuda
from engine.system import linux
from tests.gpu.runner import ALL_DEVICES
from tests.support.worker_group import Forker, WorkerGroup

Check = tuple[Callable[["CheckContext"], None], float]
"""Check function, and its time limit in seconds."""

TEXT_LIMIT = 600
"""Maximum number of characters of an explanation in the report. The log contains the full text."""


class Skipped(Exception):  # noqa: N818 - a skipped check is no error
    """Raised when this machine can't run a check. The message is the reason."""


class CheckContext:
    """Context that gives a check its device, an empty temporary folder (`folder`), and access to the report.

    `device` is the torch device, and `gpu` is its name in jobs. If `rehearsing`, both are the CPU.
    """

    def __init__(self, folder: Path, *, rehearsing: bool, report: Callable[..., None]) -> None:
        self.folder = folder
        self.rehearsing = rehearsing
        self.gpu = CPU if rehearsing else _find_first_gpu()
        self.device = torch.device("cpu") if rehearsing else torch.device("cuda", 0)
        self._report = report
        self._groups: list[WorkerGroup] = []

    def ranks(self, count: int) -> tuple[str, ...]:
        """Return devices for `count` ranks: different GPUs with `--devices all`, otherwise the same GPU for all ranks.

        Raises:
            Skipped: The machine has fewer GPUs than ranks.
        """
        if self.rehearsing or not os.environ.get(ALL_DEVICES):
            return (self.gpu,) * count
        uuids = tuple(ask_cuda() or ())
        if len(uuids) < count:
            raise Skipped(f"it needs {count} GPUs; this machine has {len(uuids)}")
        return uuids[:count]

    def claim(self, name: str, holds: bool, text: str = "") -> None:
        """Add the claim `name` to the report. It fails unless it `holds`. `text` describes the observed values."""
        self._report(name=name, outcome="ok" if holds else "failed", text=text)

    def measure(
        self,
        name: str,
        figure: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        text: str = "",
        anywhere: bool = False,
    ) -> None:
        """Add the measurement `figure` to the report. It fails if it is above `at_most` or below `at_least`.

        Rehearsals ignore these limits unless `anywhere` is True.
        """
        bounds = {"at_most": at_most, "at_least": at_least} if anywhere or not self.rehearsing else {}
        aims = {bound: value for bound, value in bounds.items() if value is not None}
        met = figure <= aims.get("at_most", figure) and figure >= aims.get("at_least", figure)
        outcome = ("ok" if met else "failed") if aims else "measured"
        self._report(name=name, outcome=outcome, figure=figure, unit=unit, text=text, **aims)

    def report_fact(self, name: str, value: object) -> None:
        """Add a fact about the machine to the report."""
        self._report(fact=name, value=str(value))

    def add_file(self, name: str, text: str) -> None:
        """Add a small text file to the folder of the report."""
        self._report(file=name, text=text)

    def require_gpu(self, why: str) -> None:
        """Skip the check if this is a rehearsal, for the reason `why`."""
        if self.rehearsing:
            raise Skipped(f"no GPU: {why}")

    def start(self, job: Job, **options: Any) -> WorkerGroup:
        """Start the workers of `job` in a new folder. They are terminated after the check.

        `options` are passed to `WorkerGroup`.
        """
        folder = self.folder / f"run-{len(self._groups) + 1}"
        self._groups.append(WorkerGroup(_forker(), job, folder, **options))
        return self._groups[-1]

    def run(self, job: Job, *, seconds: float = 120.0, **options: Any) -> WorkerGroup:
        """Run the workers of `job` for at most `seconds` until they exit, and return their group.

        Metrics are reported for every step. `options` are passed to `WorkerGroup`.

        Raises:
            RuntimeError: A worker fails.
        """
        group = self.start(job, **{"every_step": True} | options)
        codes = group.finish(seconds)
        if any(code != 0 for code in codes):
            causes = [failed.cause for failed in group.of(Failed)]
            print(group.logs(), file=sys.stderr)
            raise RuntimeError(" ".join(causes) or f"the workers exited with {codes}")
        return group

    def close(self) -> None:
        for group in self._groups:
            group.close()


def run_checks(checks: Mapping[str, Check]) -> None:
    """Run the checks that the command line selects, and print their results as lines of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rehearse", action="store_true", help="use the CPU instead of a GPU")
    parser.add_argument("check", nargs="*", help="check to run; default: all")
    options = parser.parse_args()
    linux.die_with_parent(os.getppid())
    report = functools.partial(_report, _reserve_output())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the runner requests the stack of a check that takes too long
    report(checks={name: seconds for name, (_, seconds) in checks.items()})
    for name, (function, _) in checks.items():
        if not options.check or name in options.check:
            _make(name, function, options.rehearse, report)


def _make(name: str, function: Callable[[CheckContext], None], rehearsing: bool, report: Callable[..., None]) -> None:
    report(begin=name)
    broken = False
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as folder:
        try:
            with contextlib.closing(CheckContext(Path(folder), rehearsing=rehearsing, report=report)) as context:
                function(context)
        except Skipped as why:
            report(name=name, outcome="skipped", text=str(why))
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            text = str(error).strip() or "no message"
            report(name=name, outcome="failed", text=f"{type(error).__name__}: {text}"[:TEXT_LIMIT])
            broken = "CUDA error" in text  # afterwards, this process can't use the GPU any more
    report(end=name)
    if broken:
        sys.exit(1)
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _reserve_output() -> TextIO:
    """Reserve standard output for results. Other output, including that of child processes, goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    sys.stdout.flush()
    os.dup2(2, 1)
    return output


def _report(out: TextIO, **line: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # the runner is gone, and will end this process
        out.write(json.dumps(line) + "\n")
        out.flush()


@functools.cache
def _find_first_gpu() -> str:
    """Return the UUID of the first GPU in CUDA's order, without creating a CUDA context."""
    uuids = ask_cuda()
    if not uuids or not torch.cuda.is_available():
        raise RuntimeError("torch finds no NVIDIA GPU; --rehearse uses the CPU instead")
    return uuids[0]


@functools.cache
def _forker() -> Forker:
    forker = Forker()
    atexit.register(forker.close)
    return forker
