"""The child processes whose answers the commands need: the sampler, the dataset inspector, the planner, the finders,
the advisor, and what works with a trained model.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import IO, TypeVar

import msgspec

from engine.contract.advice import ADVISING, Advice, AdviceOrder, AdviceProgress, AdviceRefused
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import INSPECTION, DatasetReport, InspectionDone, InspectionProgress, inspector_options
from engine.contract.devices import Snapshot, SnapshotRequest
from engine.contract.finders import FINDING, BatchFound, FinderFailed, FinderOrder, FinderProgress, RateFound
from engine.contract.hosts import host
from engine.contract.inference.messages import MESSAGE, Done, Order, Progress, Refused
from engine.contract.job import Job
from engine.contract.planning import PLANNING, PlanningDone, PlanningFailed, PlanningProgress
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import exit_words
from engine.system.ssh import english_environment, ssh_command, ssh_exit_reason

Message = TypeVar("Message")
_LAST_BYTES = 1 << 16
_SNAPSHOT = msgspec.json.Decoder(Snapshot)


class ChildFailed(Exception):  # noqa: N818  (it says what happened)
    """A child process ended without an answer; the text is what it said last."""


def snapshot_lines(
    *, once: bool = False, interval_s: float = 1.0, shown: SnapshotRequest | None = None
) -> Generator[bytes]:
    """This machine's devices as the sampler's lines, now or every `interval_s`, with what is `shown`, by default all.

    A single look is of everything, and waits until all have answered. Raises ChildFailed where the sampler tells
    nothing, and where it ends while more is wanted.
    """
    arguments = ["--once"] if once else ["--interval", str(interval_s)]
    listens = shown is not None and not once
    if listens:
        arguments.append("--listen")
    with _child("engine.gpus", *arguments, stdin=subprocess.PIPE if listens else subprocess.DEVNULL) as (process, said):
        assert process.stdout is not None
        try:
            if process.stdin is not None:  # which stays open, as long as it is listened to
                with suppress(BrokenPipeError):  # what it said at its end tells more
                    os.write(process.stdin.fileno(), msgspec.json.encode(shown) + b"\n")
            told = False
            for line in process.stdout:
                told = True
                yield line
            if not (once and told):
                raise ChildFailed(_last_words(process, said))
        finally:
            process.terminate()


def snapshots(
    *, once: bool = False, interval_s: float = 1.0, shown: SnapshotRequest | None = None
) -> Iterator[Snapshot]:
    """The same lines as snapshots."""
    with closing(snapshot_lines(once=once, interval_s=interval_s, shown=shown)) as lines:
        yield from map(_SNAPSHOT.decode, lines)


def snapshot() -> Snapshot:
    return next(snapshots(once=True))


def snapshot_of(name: str) -> Snapshot:
    """Another machine's devices, through ssh. Raises OSError, with why there are none."""
    known = host(name)
    if known is None:
        raise OSError(f"{name} is not among your hosts.")
    command = ssh_command(known.reached_by, known.command("gpus", "--json"))
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=english_environment()
    )
    try:
        return _SNAPSHOT.decode(done.stdout)
    except NOT_DECODED:
        raise OSError(ssh_exit_reason(name, done.returncode, done.stderr.decode(errors="replace"))) from None


def inspect(job: Job, on_progress: Callable[[InspectionProgress], None], samples: int = 0) -> DatasetReport:
    """Inspect the job's dataset, listing `samples` of it with their annotations. Raises ChildFailed."""
    with _child("engine.data", job.data.dataset, *inspector_options(job, load_catalogue(), samples)) as (process, said):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                message = INSPECTION.decode(line)
                if isinstance(message, InspectionDone):
                    return message.report
                on_progress(message)
            raise ChildFailed(_last_words(process, said))
        finally:
            process.terminate()


def plan(job: Job, on_progress: Callable[[PlanningProgress], None]) -> PlanningDone | PlanningFailed:
    """Measures on the job's devices where its model is to be cut. Raises ChildFailed."""
    for message in _answers("engine.advisor.planning", msgspec.json.encode(job), PLANNING):
        if not isinstance(message, PlanningProgress):
            return message
        on_progress(message)
    raise AssertionError("_answers ends by raising")


def find(order: FinderOrder, on_progress: Callable[[FinderProgress], None]) -> RateFound | BatchFound | FinderFailed:
    """Has a finder try a job on its devices. Raises ChildFailed."""
    for message in _answers("engine.advisor", msgspec.json.encode(order), FINDING):
        if not isinstance(message, FinderProgress):
            return message
        on_progress(message)
    raise AssertionError("_answers ends by raising")


def advise(order: AdviceOrder, on_progress: Callable[[AdviceProgress], None]) -> Advice | AdviceRefused:
    """Has the advisor try what comes into question for a job. Ctrl+C ends its trials, and the answer is what is known
    by then; a second one ends all at once. Raises ChildFailed.
    """
    with closing(_answers("engine.advisor.advice", msgspec.json.encode(order), ADVISING, gently=True)) as messages:
        for message in messages:
            if not isinstance(message, AdviceProgress):
                return message
            on_progress(message)
    raise AssertionError("_answers ends by raising")


@contextmanager
def _ended_gently(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Inside, the first Ctrl+C is for the child alone."""

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        process.terminate()

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def infer(order: Order, on_progress: Callable[[Progress], None]) -> Done | Refused:
    """Has work done with a run's model, on the order's devices. Raises ChildFailed."""
    for message in _answers("engine.inference", msgspec.json.encode(order), MESSAGE):
        if not isinstance(message, Progress):
            return message
        on_progress(message)
    raise AssertionError("_answers ends by raising")


def _answers(
    module: str, order: bytes, decoder: msgspec.json.Decoder[Message], *, gently: bool = False
) -> Generator[Message]:
    """The messages of a module that is given `order`; when no more are wanted it is ended. With `gently`, Ctrl+C ends
    it, and its answer still comes. Raises ChildFailed at their end.
    """
    with (
        _child(module, stdin=subprocess.PIPE) as (process, said),
        _ended_gently(process) if gently else nullcontext(),
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # what it said at its end tells more
                process.stdin.write(order)
                process.stdin.close()
            for line in process.stdout:
                yield decoder.decode(line)
            raise ChildFailed(_last_words(process, said))
        finally:
            process.terminate()
            process.wait()  # also after Ctrl+C, when it has workers to end


@contextmanager
def _child(
    module: str, *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A child, and what it says besides its answers: in a file, since it may be more than a pipe holds, which nobody
    reads before its end.
    """
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=said,
            cwd=paths.PACKAGES,
        ) as process,
    ):
        yield process, said


def _last_words(process: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    """The last line that a child has said, which is about to end."""
    process.wait()
    said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_BYTES))
    lines = said.read().decode(errors="replace").strip().splitlines()
    if lines:
        return lines[-1]
    code = process.returncode
    return f"it {exit_words(code)}" if code < 0 else f"it {exit_words(code)} without reporting an error"
