"""``python -m engine.advisor``: read a `FinderOrder` as JSON, print `FinderMessage` lines, the answer last.

Ctrl+C, SIGTERM and the end of its parent or of the reader of its output end it with its workers. It leaves no files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import msgspec

from engine.advisor.batch_finder import find_batch
from engine.advisor.rate_finder import find_rate
from engine.contract.finders import FinderFailed, FinderMessage, FinderOrder
from engine.contract.problems import Problem
from engine.system.child_work import serve_order


def main() -> int:
    return serve_order("footplate-find", _answer)


def _answer(order: bytes, send: Callable[[FinderMessage], None]) -> FinderMessage:
    try:
        decoded = msgspec.json.decode(order, type=FinderOrder)
    except msgspec.DecodeError as error:
        return FinderFailed(Problem("job", f"Invalid request: {error}.", "Pass one as JSON."))
    return find_rate(decoded.job, send) if decoded.finder == "rate" else find_batch(decoded.job, send)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of PyTorch may delay an orderly exit
