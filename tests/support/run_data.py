"""Builder of the window's data about a run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from engine.contract.events import AnyEvent
from gui.sources.run_data import RunData


def make_run_data(*parts: Iterable[AnyEvent]) -> RunData:
    """Make the data of a run from several sequences of events, `parts`, which are joined and numbered from 1."""
    data = RunData()
    events = list(chain(*parts))
    for number, event in enumerate(events, 1):
        event.n = number
    data.apply_all(events)
    return data
