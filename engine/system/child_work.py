"""What a child process does that is given one order on its standard input and answers in lines of JSON."""

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
    """Reads the order to its end, calls `answer(order, say)`, prints what it returns as the last line, and returns
    the exit code. `say` prints a message before that; `name` is the process's.

    Ctrl+C, SIGTERM and the end of the parent raise KeyboardInterrupt in `answer`, once, so that what is cleaned up
    then is not broken off. After that, and when nobody reads any more, the process ends at once.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    linux.signal_at_parents_death(signal.SIGTERM)
    linux.name_process(name)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model file prints is no answer

    def say(message: Any) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")
        answers.flush()

    try:
        say(answer(sys.stdin.buffer.read(), say))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(INTERRUPTED)  # at once: neither waits for threads nor flushes into a closed pipe
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
