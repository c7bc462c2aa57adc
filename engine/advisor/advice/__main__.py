"""``python -m engine.advisor.advice``: reads an `AdviceOrder` as JSON, prints `AdviceMessage` lines, the answer last.

Ctrl+C and SIGTERM end the trials, and the answer is what is known by then. With the end of its parent and of who
reads its lines it ends, too, and its workers, and nothing stays.
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


def _answer(order: bytes, say: Callable[[AdviceMessage], None]) -> AdviceMessage:
    try:
        wanted = msgspec.json.decode(order, type=AdviceOrder)
    except msgspec.DecodeError as error:
        return AdviceRefused((Problem("job", f"Invalid request: {error}.", "Pass one as JSON."),))
    return advise(wanted, say)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of torch's may hold up an orderly end
