"""How the list of runs writes what it knows of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from engine.contract.runs import RunFolder, RunSummary, UnreadableJob
from gui.run import words

MOST_UNREAD = 3
_DOING = {
    "starting": "starting",
    "fetching": "fetching its weights",
    "preparing": "preparing",
    "training": "training",
    "validating": "validating",
    "saving": "writing a checkpoint",
    "pausing": "pausing",
    "stopping": "stopping",
}

model_title = lru_cache(maxsize=None)(words.model_title)
strategy_title = lru_cache(maxsize=None)(words.strategy_title)


def title(run: RunSummary) -> str:
    """The run's own name, else the dataset's with enough of the run's id to tell runs apart."""
    return run.name or f"{Path(run.dataset).name} · {run.run_id[-4:]}"


def title_of(run: RunFolder) -> str:
    """The title of the run in a folder; its id where its job is gone, not ours to read, or damaged. Raises OSError."""
    try:
        return title(run.summary())
    except (FileNotFoundError, PermissionError, UnreadableJob):
        return run.run_id


def moment(seconds: float) -> str:
    """ "2026-11-21 14:05", of this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def lately(seconds: float) -> str:
    """ "14:05" for a moment of today, "2026-11-20" for one of another day."""
    day, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if day[:3] == now[:3] else "%Y-%m-%d", day)


def doing(run: RunSummary) -> str:
    """What a run that has not finished was at, by the end of its log: "training, epoch 3 of 5, step 345"."""
    parts = [_DOING.get(run.phase, "starting")]
    if run.epoch is not None and run.step is not None:
        parts += [f"epoch {run.epoch} of {run.epochs}", f"step {run.step:,}"]
    return ", ".join(parts)


def unread_words(unread: Mapping[str, str]) -> str:
    """Which runs cannot be read and why, a line each; at most `MOST_UNREAD` of them."""
    lines = [f"{run_id} cannot be read: {why}." for run_id, why in list(unread.items())[:MOST_UNREAD]]
    left = len(unread) - len(lines)
    return "\n".join([*lines, *([f"{many(left)} more cannot be read."] if left else [])])


def many(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"
