"""Script that kills processes while they use the queue: at every EVERYth line or opcode of the queue's code.

    python -m … EVENT EVERY

EVENT is "line" or "opcode". The script checks the queue after each kill, and prints the number of kills.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from types import FrameType
from typing import Any

from engine.runs import queue
from engine.runs.queue import list_holders
from engine.runs.queue.tickets import queue_folder
from engine.system import file_locks
from tests.engine.runs.queue.slots import list_waits, make_slot

_TRACED = (os.path.dirname(queue.__file__), file_locks.__file__)


def use_queue() -> None:
    """Perform all operations that supervisors and users perform on the queue."""
    one, two = make_slot("one", "x"), make_slot("two", "x", "z")
    other = make_slot("other", "y", start="at_once")
    for slot in (one, two, other):
        slot.poll()
    assert (one.has_devices, two.has_devices, other.has_devices) == (True, False, True)
    queue.move("two", -1)
    queue.hold("two")
    queue.release("two")
    one.close()
    two.poll()
    assert two.has_devices
    other.close()
    two.close()


class Killer:
    """Trace function that kills this process at the `number`th line or opcode that the queue's code executes.

    `event` is "line" or "opcode".
    """

    def __init__(self, event: str, number: int) -> None:
        self._event = event
        self._remaining = number

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_TRACED):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event:
            self._remaining -= 1
            if self._remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def is_killed(event: str, number: int) -> bool:
    """Run `use_queue` in a child process that `Killer` kills at the given event.

    Returns False if the process ends before that event.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sys.settrace(Killer(event, number))
            use_queue()
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def main(event: str, every: int) -> None:
    first, second = make_slot("first", "y"), make_slot("second", "y")
    for slot in (first, second):
        slot.poll()
    assert (first.has_devices, second.has_devices) == (True, False)
    killed = 0
    for number in count(1, every):
        has_ended = not is_killed(event, number)
        assert list_holders() == {"y": ("first",)}, number
        assert list_waits() == {"second": ("first",)}, number
        after = make_slot("after", "x", "z")
        after.poll()
        assert after.has_devices, number
        after.close()
        if has_ended:
            break
        killed += 1
    first.close()
    second.poll()
    assert second.has_devices
    second.close()
    assert {path.name for path in queue_folder().iterdir()} == {"mutex", "order.json"}
    print(killed)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
