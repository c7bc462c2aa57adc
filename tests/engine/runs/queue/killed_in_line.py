"""``python killed_in_line.py EVENT EVERY``: has processes stand in line that are killed each at another place of the
queue's code: at every so many lines ("line") or instructions of Python ("opcode") that they go through there. Looks
each time at what is left, and prints how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from types import FrameType
from typing import Any

from engine.runs import queue
from engine.runs.queue.tickets import queue_folder
from engine.system import file_locks
from tests.engine.runs.queue.lines import a_line, holders, standing

_WHERE = (os.path.dirname(queue.__file__), file_locks.__file__)


def stand() -> None:
    """All that supervisors and a user do in line."""
    one, two, other = a_line("one", "x"), a_line("two", "x", "z"), a_line("other", "y", start="at_once")
    for line in (one, two, other):
        line.step()
    assert (one.turn, two.turn, other.turn) == (True, False, True)
    queue.move("two", -1)
    queue.hold("two")
    queue.release("two")
    one.close()
    two.step()
    assert two.turn
    other.close()
    two.close()


class Killer:
    """Ends this process by SIGKILL at the `number`-th such event in the queue's code."""

    def __init__(self, event: str, number: int) -> None:
        self._event = event
        self._left = number

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_WHERE):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def stand_and_die(event: str, number: int) -> bool:
    """Whether the process was killed before it had gone through everything."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sys.settrace(Killer(event, number))
            stand()
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def main(event: str, every: int) -> None:
    first, second = a_line("first", "y"), a_line("second", "y")
    for line in (first, second):
        line.step()
    assert (first.turn, second.turn) == (True, False)
    killed = 0
    for number in count(1, every):
        over = not stand_and_die(event, number)
        assert holders() == {"y": ("first",)}, number
        assert standing() == {"second": ("first",)}, number
        after = a_line("after", "x", "z")
        after.step()
        assert after.turn, number
        after.close()
        if over:
            break
        killed += 1
    first.close()
    second.step()
    assert second.turn
    second.close()
    assert {path.name for path in queue_folder().iterdir()} == {"mutex", "order.json"}
    print(killed)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
