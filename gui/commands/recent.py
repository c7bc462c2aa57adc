"""Recent datasets and runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.runs.folder import RunSummary
from engine.system.decode_errors import NOT_DECODED
from gui.sources.settings import Settings
from gui.titles import run_title

MOST = 10
_KEY = "recent_datasets"


class RecentDatasets:
    """Saved list of dataset folders that could be read, newest first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def folders(self) -> list[str]:
        try:
            return msgspec.json.decode(self._settings.text(_KEY, "[]"), type=list[str])[:MOST]
        except NOT_DECODED:
            return []

    def add(self, folder: str) -> None:
        known = self.folders()
        if folder and known[:1] != [folder]:
            folders = [folder, *(each for each in known if each != folder)][:MOST]
            self._settings.set(_KEY, msgspec.json.encode(folders).decode())

    def forget(self) -> None:
        self._settings.forget(_KEY)


def datasets_of(runs: Sequence[RunSummary], recent: Sequence[str]) -> list[str]:
    """Return all known datasets: the recent ones, then those of runs, newest first."""
    return list(dict.fromkeys([*recent, *(run.dataset for run in runs if run.dataset)]))


def titles_of(folders: Sequence[str]) -> dict[str, str]:
    """Return the name of each folder, with its parent's name if two folders share it."""
    names = [Path(folder).name for folder in folders]
    return {
        folder: name if names.count(name) == 1 else f"{name} ({Path(folder).parent.name})"
        for folder, name in zip(folders, names, strict=True)
    }


def run_line(run: RunSummary) -> str:
    """Return the title and state of a run, for menus."""
    return f"{run_title(run)} · {run.state}"
