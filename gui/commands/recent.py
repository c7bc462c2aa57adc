"""Which datasets and runs were used lately."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.runs.folder import RunSummary
from engine.system.decode_errors import NOT_DECODED
from gui.sources.settings import Settings
from gui.titles import run_title

MOST = 10
_KEPT_UNDER = "recent_datasets"


class RecentDatasets:
    """The folders that were chosen and could be read, the last first, kept from one opening to the next."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def folders(self) -> list[str]:
        try:
            return msgspec.json.decode(self._settings.text(_KEPT_UNDER, "[]"), type=list[str])[:MOST]
        except NOT_DECODED:
            return []

    def add(self, folder: str) -> None:
        known = self.folders()
        if folder and known[:1] != [folder]:
            kept = [folder, *(each for each in known if each != folder)][:MOST]
            self._settings.set(_KEPT_UNDER, msgspec.json.encode(kept).decode())

    def forget(self) -> None:
        self._settings.forget(_KEPT_UNDER)


def datasets_of(runs: Sequence[RunSummary], recent: Sequence[str]) -> list[str]:
    """All datasets that are known: those chosen lately, then those of runs, the newest first."""
    return list(dict.fromkeys([*recent, *(run.dataset for run in runs if run.dataset)]))


def titles_of(folders: Sequence[str]) -> dict[str, str]:
    """What each folder is called: its own name, with that of the folder above it where two share it."""
    names = [Path(folder).name for folder in folders]
    return {
        folder: name if names.count(name) == 1 else f"{name} ({Path(folder).parent.name})"
        for folder, name in zip(folders, names, strict=True)
    }


def run_line(run: RunSummary) -> str:
    """A run in a menu: its title and how it ended."""
    return f"{run_title(run)} · {run.state}"
