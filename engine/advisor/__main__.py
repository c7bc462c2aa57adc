"""``python -m engine.advisor``: reads a `FinderOrder` as JSON, prints `FinderMessage` lines, the answer last.

Ctrl+C, SIGTERM, the end of its parent and of who reads its lines end it and its workers, and nothing stays.
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
