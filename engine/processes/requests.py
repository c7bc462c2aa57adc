"""Execution of the request that a child process gets on its standard input (see `engine.contract.messages`)."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import msgspec

from engine.contract.messages import Done, Refused
from engine.contract.problems import Problem
from engine.system import linux
from engine.system.decode_errors import NOT_DECODED
from engine.system.stdio import exit_now

INTERRUPTED = 130

_CarryOut = Callable[[Any, Callable[[Any], None]], object]


class RequestError(Exception):
    """Raised when a request to a child process can't be executed. `problems` has the reasons with their remedies."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(" ".join(map(str, problems)))
        self.problems = problems


def serve_request(name: str, request_type: Any, carry_out: _CarryOut) -> NoReturn:
    """Read a request from standard input, execute it, print its messages and result as JSON lines, and exit.

    Ctrl+C, SIGTERM and the exit of the parent raise KeyboardInterrupt in `carry_out`, but only once, so that its
    cleanup is not interrupted. After the cleanup, or if a message can't be written because the output is closed, the
    process exits without waiting for threads.

    Args:
        name: Name of the process in ps.
        request_type: Type of the request.
        carry_out: Executes a request and returns the result. Its second argument is a function that sends a message. It
            may raise RequestError.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    linux.signal_at_parents_death(signal.SIGTERM)
    if not _is_output_read():
        os._exit(INTERRUPTED)  # the parent has exited during the imports
    linux.name_process(name)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep output of model files out of the answers

    def send(message: Any) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")
        answers.flush()

    try:
        send(_execute(request_type, carry_out, send))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(INTERRUPTED)  # do not wait for threads or flush into a closed pipe
    exit_now(0)


def _is_output_read() -> bool:
    """Return True unless the system reports that the reading end of standard output has been closed."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(1, 0)  # no events: errors are always reported
    return not any(mask & select.POLLERR for _, mask in poll.poll(0))


def _execute(request_type: Any, carry_out: _CarryOut, send: Callable[[Any], None]) -> Done[Any] | Refused:
    """Read a request from standard input, and return the result of `carry_out`, or the problems as `Refused`.

    `send` is passed on to `carry_out`, which may send messages with it.
    """
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=request_type)
    except NOT_DECODED as error:
        return Refused((Problem("", f"Invalid request: {error}.", "Pass one as JSON."),))
    try:
        return Done(carry_out(request, send))
    except RequestError as error:
        return Refused(error.problems)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and ignore further signals, which would interrupt the cleanup."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
