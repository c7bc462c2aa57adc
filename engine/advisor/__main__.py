"""``python -m engine.advisor``: reads a `FinderOrder` as JSON, prints `FinderMessage` lines, the answer last.

Ctrl+C, SIGTERM, the end of its parent and of who reads its lines end it and its workers, and nothing stays.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import msgspec

from engine.advisor.batch_finder import find_batch
from engine.advisor.rate_finder import find_rate
from engine.contract.finders import FinderFailed, FinderMessage, FinderOrder
from engine.contract.problems import Problem
from engine.system import linux

INTERRUPTED = 130


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    linux.signal_at_parents_death(signal.SIGTERM)
    linux.name_process("footplate-find")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model file prints is no answer

    def say(message: FinderMessage) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")
        answers.flush()

    try:
        say(_answer(sys.stdin.buffer.read(), say))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(INTERRUPTED)  # at once: neither waits for threads nor flushes into a closed pipe
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once, so that what is cleaned up then is not broken off."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _answer(order: bytes, say: Callable[[FinderMessage], None]) -> FinderMessage:
    try:
        wanted = msgspec.json.decode(order, type=FinderOrder)
    except msgspec.DecodeError as error:
        return FinderFailed(Problem("job", f"Invalid request: {error}.", "Pass one as JSON."))
    return find_rate(wanted.job, say) if wanted.finder == "rate" else find_batch(wanted.job, say)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of torch's may hold up an orderly end
