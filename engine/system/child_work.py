"""Child process that reads one order from standard input and answers in JSON lines."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec

from engine.system import linux

INTERRUPTED = 130


def serve_order(name: str, answer: Callable[[bytes, Callable[[Any], None]], Any]) -> int:
    """Read the order, print what `answer(order, send)` sends and returns as JSON lines, and return the exit code.

    Ctrl+C, SIGTERM and the end of the parent raise KeyboardInterrupt in `answer`, only once, so that the cleanup is not
    interrupted. After that, and when nobody reads any more, the process exits immediately.

    Args:
        name: Name of the process in ps.
        answer: Function of the encoded order and of a function that sends a message.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    linux.signal_at_parents_death(signal.SIGTERM)
    linux.name_process(name)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model file prints is no answer

    def send(message: Any) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")
        answers.flush()

    try:
        send(answer(sys.stdin.buffer.read(), send))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(INTERRUPTED)  # at once: neither waits for threads nor flushes into a closed pipe
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
