"""Runs that are trials of a search over settings (see `engine.contract.search`)."""

from __future__ import annotations

import msgspec

from engine.contract.search import TRIAL_FILE, Trial
from engine.runs.folder import RunFolder, list_runs
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import read_file


def trial_of(run: RunFolder) -> Trial | None:
    """Read the trial of a run, None if it is none."""
    try:
        return msgspec.json.decode(read_file(run.path / TRIAL_FILE), type=Trial)
    except (OSError, *NOT_DECODED):
        return None


def save_trial(run: RunFolder, trial: Trial) -> None:
    """Write the trial of a run. Raises OSError."""
    paths.write_atomically(run.path / TRIAL_FILE, msgspec.json.encode(trial), sync=True)


def trials_of(search: str) -> list[tuple[RunFolder, Trial]]:
    """Return the trials of a search, sorted by number; the oldest of each number."""
    found: dict[int, tuple[RunFolder, Trial]] = {}
    for run in list_runs():
        trial = trial_of(run)
        if trial is not None and trial.search == search:
            found[trial.number] = (run, trial)
    return [found[number] for number in sorted(found)]


def tag_of(search: str) -> str:
    """Return the tag of the runs of a search."""
    return f"search {search}"
