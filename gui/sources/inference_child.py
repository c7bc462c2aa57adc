"""Child process that works with a trained model: evaluations, predictions, heat maps, reviews."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject

from engine.contract.inference.messages import INFERENCE, Order
from engine.contract.messages import Progress
from engine.system.format import duration
from gui.format import localised
from gui.sources.json_lines import JsonLinesProcess
from gui.translation import tr


class InferenceChild(JsonLinesProcess):
    """Execution of one order at a time (``python -m engine.inference``).

    Its progress is a `Progress`, and its result the path of the file with the results.

    Attributes:
        order: The last order, None before the first.
    """

    def __init__(self, activity: str, parent: QObject | None = None) -> None:
        super().__init__("engine.inference", activity, INFERENCE.decode, parent, cleans_up=True)
        self.order: Order | None = None

    def start(self, order: Order) -> None:
        """Execute `order`."""
        self.order = order
        self.run(stdin=msgspec.json.encode(order), first=Progress(fraction=0.0, what=tr("Starting")))


def progress_words(progress: Progress) -> str:
    """Return a line such as "Evaluating, 1,840 images/s, 3:12 min left"."""
    parts = [progress.what]
    if rate := progress.images_per_second:
        parts.append(f"{localised(rate, 0 if rate >= 10 else 1)} images/s")
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(parts) if len(parts) > 1 else f"{progress.what} …"
