"""Checkpoints of a run, and the choice of a checkpoint to fork from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from engine.contract.events import EVENT, CheckpointSaved
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import read_end
from gui.format import format_time_or_date, localized, size
from gui.translation import tr

BEST = "best.pt"
LAST = "last.pt"

_TAG = b'{"type":"checkpoint"'
"""Start of a log line about a checkpoint. Each line starts with the event's tag."""

_TAIL_BYTES = 1 << 22
"""Number of bytes at the end of a log that are searched for the newest checkpoints."""


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint file of a run.

    Attributes:
        written: Time of writing, in seconds since the epoch.
        epoch: Epoch after which it was written, or None if unknown.
        step: Step after which it was written, or None if unknown.
    """

    path: Path
    bytes: int
    written: float
    epoch: int | None = None
    step: int | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def has_only_weights(self) -> bool:
        """True if the file contains weights but no training state.

        A run can be forked from it, but not resumed.
        """
        return self.name == BEST

    @property
    def position_text(self) -> str:
        """Position in the training, such as "epoch 3, step 345", or "" if unknown."""
        if self.epoch is None or self.step is None:
            return ""
        return tr("epoch {epoch}, step {step}").format(epoch=self.epoch, step=localized(self.step))

    @property
    def text(self) -> str:
        """Description such as "epoch 3, step 345 · 14:05 · 44.9 MiB".

        The position is left out if the file name contains it.
        """
        position = "" if OLDER_CHECKPOINT.fullmatch(self.name) else self.position_text
        return " · ".join(filter(None, (position, format_time_or_date(self.written), size(self.bytes))))


def checkpoints_of(run: RunFolder) -> tuple[Checkpoint, ...]:
    """Return the complete checkpoints of a run, newest first."""
    try:
        with os.scandir(run.checkpoints) as entries:
            files = [(entry, entry.stat()) for entry in entries if _is_checkpoint_name(entry.name)]
    except OSError:
        return ()
    positions = _read_logged_positions(run.events_file)
    found = []
    for entry, info in files:
        epoch, step = positions.get(entry.name, (None, None))
        if (older := OLDER_CHECKPOINT.fullmatch(entry.name)) is not None:  # its name contains them
            epoch, step = int(older["epoch"]), int(older["step"])
        found.append(Checkpoint(Path(entry.path), info.st_size, info.st_mtime, epoch, step))
    return tuple(sorted(found, key=lambda checkpoint: checkpoint.written, reverse=True))


def choose_fork_checkpoint(checkpoints: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """Return the default checkpoint for a fork, or None if there is none.

    In order of preference, it is last.pt, the newest resumable checkpoint, or the newest weights.
    """
    resumable = [checkpoint for checkpoint in checkpoints if not checkpoint.has_only_weights]
    last = next((checkpoint for checkpoint in resumable if checkpoint.name == LAST), None)
    return last or next(iter(resumable or checkpoints), None)  # they are sorted, newest first


def _is_checkpoint_name(name: str) -> bool:
    # Checkpoints that are being written have a hidden name.
    return name.endswith(".pt") and not name.startswith(".")


def _read_logged_positions(log: Path) -> dict[str, tuple[int, int]]:
    """Read the epoch and step of the newest last.pt and best.pt from the end of a log, by file name."""
    try:
        tail = read_end(log, _TAIL_BYTES)
    except OSError:
        return {}
    positions: dict[str, tuple[int, int]] = {}
    end = len(tail)
    # Search backwards until both names are found, since a log contains many checkpoints.
    while len(positions) < 2 and (start := tail.rfind(_TAG, 0, end)) >= 0:
        try:
            event = EVENT.decode(tail[start : tail.find(b"\n", start)])
        except NOT_DECODED:
            event = None
        if isinstance(event, CheckpointSaved):
            positions.setdefault(f"{event.kind}.pt", (event.epoch, event.step))
        end = start
    return positions
