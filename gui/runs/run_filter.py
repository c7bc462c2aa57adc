"""Which runs are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.runs.folder import RunSummary
from gui.titles import model_title, run_title, strategy_title


@dataclass(frozen=True)
class RunFilter:
    """What a run must be like to be shown; what is empty asks for nothing.

    `text` holds words that must all occur in its name, model, dataset, strategy, state, tags, notes or id. `since` is
    the earliest start in seconds since the epoch.
    """

    text: str = ""
    state: str = ""
    model: str = ""
    strategy: str = ""
    tag: str = ""
    favourites: bool = False
    since: float | None = None

    def takes(self, run: RunSummary) -> bool:
        if (
            (self.state and run.state != self.state)
            or (self.model and run.model != self.model)
            or (self.strategy and run.strategy != self.strategy)
            or (self.tag and self.tag not in run.tags)
            or (self.favourites and not run.favourite)
            or (self.since is not None and run.started < self.since)
        ):
            return False
        if not self.text:
            return True
        said = _said(run)
        return all(word in said for word in self.text.lower().split())


def _said(run: RunSummary) -> str:
    parts = (
        run_title(run),
        model_title(run.model),
        run.model,
        Path(run.dataset).name,
        strategy_title(run.strategy),
        run.state,
        *run.tags,
        run.notes,
        run.run_id,
    )
    return "\n".join(parts).lower()
