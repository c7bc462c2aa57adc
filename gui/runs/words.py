"""How the list of runs writes what it knows of a run."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path

from engine.contract.runs import RunSummary
from gui.run import words

_KIB = 1024
_DOING = {
    "starting": "starting",
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


def moment(seconds: float) -> str:
    """ "2026-11-21 14:05", of this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def lately(seconds: float) -> str:
    """ "14:05" for a moment of today, "2026-11-20" for one of another day."""
    day, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if day[:3] == now[:3] else "%Y-%m-%d", day)


def size_words(count: int) -> str:
    """ "812 B", "44.9 MiB": bytes in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIB:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KIB
    return f"{value:.1f} TiB"


def doing(run: RunSummary) -> str:
    """What a run that has not finished was at, by the end of its log: "training, epoch 3 of 5, step 345"."""
    parts = [_DOING.get(run.phase, "starting")]
    if run.epoch is not None and run.step is not None:
        parts += [f"epoch {run.epoch} of {run.epochs}", f"step {run.step:,}"]
    return ", ".join(parts)


def many(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"
