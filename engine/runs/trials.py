"""The runs that are trials of a search over settings (see `engine.contract.search`)."""

from __future__ import annotations

import msgspec

from engine.contract.search import TRIAL_FILE, Trial
from engine.runs.folder import RunFolder, list_runs
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED


def trial_of(run: RunFolder) -> Trial | None:
    """What makes a run a trial; None where it is none."""
    try:
        return msgspec.json.decode((run.path / TRIAL_FILE).read_bytes(), type=Trial)
    except (OSError, *NOT_DECODED):
        return None


def save_trial(run: RunFolder, trial: Trial) -> None:
    """Replaces what makes a run a trial. Raises OSError."""
    paths.write_atomically(run.path / TRIAL_FILE, msgspec.json.encode(trial), sync=True)


def trials_of(search: str) -> list[tuple[RunFolder, Trial]]:
    """The runs that are trials of the search of that name, by their numbers; of several of one number the oldest."""
    found: dict[int, tuple[RunFolder, Trial]] = {}
    for run in list_runs():
        trial = trial_of(run)
        if trial is not None and trial.search == search:
            found[trial.number] = (run, trial)
    return [found[number] for number in sorted(found)]


def tag_of(search: str) -> str:
    """The tag that the runs of a search have."""
    return f"search {search}"
