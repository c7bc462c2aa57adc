"""``python -m engine.advisor.advice``: read an `AdviceOrder` as JSON, print `AdviceMessage` lines, the answer last.

Ctrl+C and SIGTERM end the trials; the answer then covers the measurements made by then. If its parent or the reader
of its output ends, it ends with its workers. It leaves no files behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import msgspec

from engine.advisor.advice.advisor import advise
from engine.contract.advice import AdviceMessage, AdviceOrder, AdviceRefused
from engine.contract.problems import Problem
from engine.system.child_work import serve_order


def main() -> int:
    return serve_order("footplate-advise", _answer)


def _answer(order: bytes, send: Callable[[AdviceMessage], None]) -> AdviceMessage:
    try:
        decoded = msgspec.json.decode(order, type=AdviceOrder)
    except msgspec.DecodeError as error:
        return AdviceRefused((Problem("job", f"Invalid request: {error}.", "Pass one as JSON."),))
    return advise(decoded, send)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of PyTorch may delay an orderly exit
