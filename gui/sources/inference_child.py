"""Work with a trained model in a process of its own (``python -m engine.inference``): evaluations, predictions, and
more.
"""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.contract.inference.messages import MESSAGE, Done, Order, Progress, Refused
from engine.system.format import duration
from gui.format import localised
from gui.sources.child import ChildModule

LINE_LIMIT_BYTES = 1 << 20


class InferenceChild(ChildModule):
    """Does one order at a time; a new one ends the last. `doing` begins the sentences on what went wrong, e.g. "The
    evaluation".

    Signals: progress(object) - a Progress; done(str) - the path of the file that tells what came of the order;
    refused(object) - the Problems that stand in its way, a tuple. Attributes: order - the last that was given, None
    where none was.
    """

    progress = Signal(object)
    done = Signal(str)
    refused = Signal(object)
    cleans_up = True

    def __init__(self, doing: str, parent: QObject | None = None, module: str = "engine.inference") -> None:
        super().__init__(module, doing, LINE_LIMIT_BYTES, parent)
        self.order: Order | None = None
        self._last: Done | Refused | None = None

    def start(self, order: Order) -> None:
        """Begins with `order`; the answers come as signals."""
        self.order, self._last = order, None
        self._start([], msgspec.json.encode(order))
        self.progress.emit(Progress(fraction=0.0, what="Starting"))

    def _take(self, line: bytes) -> None:
        message = MESSAGE.decode(line)
        if isinstance(message, Progress):
            self.progress.emit(message)
        else:
            self._last = message

    def _answer(self) -> bool:
        if isinstance(self._last, Done):
            self.done.emit(self._last.path)
        elif self._last is not None:
            self.refused.emit(self._last.problems)
        return self._last is not None


def progress_words(progress: Progress) -> str:
    """ "Evaluating, 1,840 images/s, 3:12 min left"."""
    rate = progress.images_per_second
    parts = [
        progress.what,
        f"{localised(rate)} images/s"
        if rate is not None and rate >= 10
        else f"{localised(rate, 1)} images/s"
        if rate
        else "",
        f"{duration(progress.seconds_left)} left" if progress.seconds_left is not None else "",
    ]
    words = ", ".join(filter(None, parts))
    return words if len(list(filter(None, parts))) > 1 else f"{words} …"
