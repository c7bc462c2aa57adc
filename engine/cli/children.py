"""Send requests to child processes: the sampler, the inspector, the advisor and inference."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from engine.cli.terminal import BAD_REQUEST, FAILED, CommandError, report, show_progress
from engine.contract.advice import ADVISING, FINDING, AdviceRequest, FinderRequest
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import INSPECTION, DatasetReport, InspectionProgress, inspector_options
from engine.contract.devices import Snapshot, SnapshotRequest
from engine.contract.hosts import host
from engine.contract.inference.messages import INFERENCE, InferenceRequest
from engine.contract.job import Job
from engine.contract.messages import Done, Refused
from engine.contract.model_split import PLANNING
from engine.contract.problems import Problem
from engine.system import paths
from engine.system.children import run_child
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import describe_exit
from engine.system.plain_text import escape
from engine.system.ssh import create_english_environment, explain_ssh_exit, ssh_command

Message = TypeVar("Message")
_MAX_STDERR_BYTES = 1 << 16
_ANSWER_S = 60.0
"""Timeout in seconds for another machine to list its devices."""
_SNAPSHOT = msgspec.json.Decoder(Snapshot)


class ChildFailed(Exception):  # noqa: N818  (named after the event)
    """Raised when a child process exits without an answer. The message is its last line on standard error."""


def read_snapshot_lines(
    *, once: bool = False, interval_s: float = 1.0, request: SnapshotRequest | None = None
) -> Generator[bytes]:
    """Yield JSON lines of the sampler with the state of this machine's devices, a single one if `once` is True.

    `request` limits expensive readings in repeated snapshots. A single snapshot is complete. Raises ChildFailed if the
    sampler exited without a snapshot, or before the generator was closed.
    """
    arguments, stdin = ["--interval", str(interval_s)], subprocess.DEVNULL
    if once:
        arguments = ["--once"]
    elif request is not None:
        arguments, stdin = [*arguments, "--listen"], subprocess.PIPE
    with _start_child("engine.gpus", *arguments, stdin=stdin) as (process, log):
        assert process.stdout is not None
        try:
            if process.stdin is not None:  # stays open: the sampler exits at its end
                with suppress(BrokenPipeError):  # the sampler has exited, and `_await_last_error` reads the reason
                    os.write(process.stdin.fileno(), msgspec.json.encode(request) + b"\n")
            has_answered = False
            for line in process.stdout:
                has_answered = True
                yield line
            is_complete = once and has_answered
            if not is_complete:  # the sampler has exited, although it repeats snapshots until it is closed
                raise ChildFailed(_await_last_error(process, log))
        finally:
            process.terminate()


def read_snapshots(
    *, once: bool = False, interval_s: float = 1.0, request: SnapshotRequest | None = None
) -> Iterator[Snapshot]:
    """Yield snapshots of this machine's devices. See `read_snapshot_lines` for the arguments."""
    with closing(read_snapshot_lines(once=once, interval_s=interval_s, request=request)) as lines:
        yield from map(_SNAPSHOT.decode, lines)


def read_snapshot() -> Snapshot:
    """Return one complete snapshot of this machine's devices. Raises ChildFailed."""
    return next(read_snapshots(once=True))


def read_remote_snapshot(name: str) -> Snapshot:
    """Return the devices of the host `name`, read over ssh. Raises OSError with the reason if that fails."""
    known = host(name)
    if known is None:
        raise OSError(f"{name} is not among your hosts.")
    command = ssh_command(known.ssh_destination, known.command("gpus", "--json"))
    try:
        done = run_child(command, timeout_s=_ANSWER_S, env=create_english_environment())
        return _SNAPSHOT.decode(done.stdout)
    except subprocess.TimeoutExpired:
        raise OSError(f"{name} has not answered within {_ANSWER_S:.0f} s.") from None
    except NOT_DECODED:
        raise OSError(explain_ssh_exit(name, done.returncode, done.stderr.decode(errors="replace"))) from None


def inspect(job: Job, on_progress: Callable[[InspectionProgress], None], samples: int = 0) -> DatasetReport:
    """Inspect the dataset of a job, and list `samples` of its samples with their annotations. Raises ChildFailed."""
    arguments = (job.data.dataset, *inspector_options(job, load_catalogue(), samples))
    for message in _run_module("engine.data", INSPECTION, *arguments):
        if isinstance(message, Done):
            return message.answer
        on_progress(message)
    raise AssertionError("_run_module ends by raising")


def run_in_child(request: Any, *, is_quiet: bool = False, refused: int | None = None) -> Any:
    """Send a request to a new child process, show its progress, and return its answer.

    The first Ctrl+C stops the trials of the advisor, and its answer contains their results. The second one stops
    everything.

    Args:
        request: Request to the advisor, a finder, the planner (a `Job`), or inference. Its type selects the program.
        is_quiet: True to hide the progress.
        refused: Exit code if the child refuses the request. By default, the code depends on the problem.

    Raises:
        CommandError: The child has refused the request, or exited without an answer. This has been reported.
    """
    child = next(child for kind, child in _CHILDREN.items() if isinstance(request, kind))
    try:
        msgspec.json.encode(request)
    except UnicodeEncodeError as error:
        message = f"{escape(str(error.object))} is not valid UTF-8."
        raise CommandError(report((Problem("paths", message, "Rename it, or name its folder."),))) from None
    is_advice = isinstance(request, AdviceRequest)
    messages = _run_module(child.module, child.decoder, request=request, answers_interrupt=is_advice)
    problems: tuple[Problem, ...] = ()
    try:
        with show_progress(quiet=is_quiet) as on_progress, closing(messages):
            for message in messages:
                if isinstance(message, Done):
                    return message.answer
                if isinstance(message, Refused):
                    problems = message.problems
                    break
                on_progress(message)
    except ChildFailed as error:
        problems = (msgspec.structs.replace(child.failure, message=f"{child.failure.message}: {error}."),)
    report(problems)
    if refused is None:  # a problem with a field is one with the request
        refused = BAD_REQUEST if any(problem.field for problem in problems) else FAILED
    raise CommandError(refused)


class _ChildProgram(NamedTuple):
    """Program that runs as a child process and answers a request.

    Attributes:
        module: Module to run.
        decoder: Decoder for its messages.
        failure: Problem to report if it exits without an answer.
    """

    module: str
    decoder: msgspec.json.Decoder[Any]
    failure: Problem


_CHILDREN: dict[type, _ChildProgram] = {
    AdviceRequest: _ChildProgram("engine.advisor.advice", ADVISING, Problem("job", "The trials ended early")),
    FinderRequest: _ChildProgram("engine.advisor", FINDING, Problem("job", "The trial ended early")),
    Job: _ChildProgram(
        "engine.advisor.planning", PLANNING, Problem("model", "It could not be measured", "Try a smaller batch size.")
    ),
    InferenceRequest: _ChildProgram(
        "engine.inference", INFERENCE, Problem("", "The work ended early", "Run `footplate doctor`.")
    ),
}


def _run_module(
    module: str,
    decoder: msgspec.json.Decoder[Message],
    *arguments: str,
    request: msgspec.Struct | None = None,
    answers_interrupt: bool = False,
) -> Generator[Message]:
    """Start a module with command-line `arguments` in a child process, and yield its messages, decoded by `decoder`.

    `request`, if given, is written to the child's standard input. If `answers_interrupt` is True, the first Ctrl+C sends
    SIGTERM to the child, whose answer still arrives. Closing the generator stops the child. Raises ChildFailed if the
    child exits before that.
    """
    stdin = subprocess.DEVNULL if request is None else subprocess.PIPE
    with (
        _start_child(module, *arguments, stdin=stdin) as (process, log),
        _terminate_on_interrupt(process) if answers_interrupt else nullcontext(),
    ):
        assert process.stdout is not None
        try:
            if process.stdin is not None:
                with suppress(BrokenPipeError):  # the child has exited, and `_await_last_error` reads the reason
                    process.stdin.write(msgspec.json.encode(request))
                    process.stdin.close()
            for line in process.stdout:
                yield decoder.decode(line)
            raise ChildFailed(_await_last_error(process, log))
        finally:
            process.terminate()
            process.wait()  # also after Ctrl+C: it ends its workers first


@contextmanager
def _terminate_on_interrupt(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Inside the context, let the first Ctrl+C only send SIGTERM to the child. The next one interrupts this process."""

    def end(_number: int, _frame: object) -> None:
        """Handle Ctrl+C: send SIGTERM to the child, and restore the previous handler."""
        signal.signal(signal.SIGINT, previous)
        process.terminate()

    previous = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _start_child(
    module: str, *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Context manager that runs a module with command-line `arguments` in a child process.

    Yields the process and a file that receives its standard error, since an unread pipe would block a child that writes
    much. `stdin` is the same as for `subprocess.Popen`.
    """
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=paths.PACKAGES,
        ) as process,
    ):
        yield process, log


def _await_last_error(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """Wait for the child to exit. Returns the last line of its standard error, or its exit status."""
    process.wait()
    log.seek(max(0, log.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES))
    lines = log.read().decode(errors="replace").strip().splitlines()
    if lines:
        return lines[-1]
    code = process.returncode
    return f"it {describe_exit(code)}" if code < 0 else f"it {describe_exit(code)} without reporting an error"
