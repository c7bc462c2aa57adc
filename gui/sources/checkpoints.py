"""The checkpoints of a run: where in its training each was written, and what a fork makes of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from engine.contract.events import EVENT, CheckpointSaved
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from engine.system.decode_errors import NOT_DECODED
from gui.format import lately, localised, size

BEST = "best.pt"
LAST = "last.pt"

_TOLD = b'{"type":"checkpoint"'
"""How a line of the log begins that tells of one: the encoder writes the tag first."""

_TAIL_BYTES = 1 << 22
"""How much of a log's end is searched for what was told of the newest ones."""


@dataclass(frozen=True)
class Checkpoint:
    """`written` is in seconds since the epoch; `epoch` and `step` are None where nothing tells them."""

    path: Path
    bytes: int
    written: float
    epoch: int | None = None
    step: int | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def weights_alone(self) -> bool:
        """Whether it holds a model without the progress of a training: a fork begins with it, and does not go on from
        it.
        """
        return self.name == BEST

    @property
    def location(self) -> str:
        """ "epoch 3, step 345", "epoch 3", or nothing."""
        if self.epoch is None:
            return ""
        return f"epoch {self.epoch}" + (f", step {localised(self.step)}" if self.step is not None else "")

    @property
    def words(self) -> str:
        """ "epoch 3, step 345 · 14:05 · 44.9 MiB"; without the progress where the name tells it."""
        location = "" if OLDER_CHECKPOINT.fullmatch(self.name) else self.location
        return " · ".join(filter(None, (location, lately(self.written), size(self.bytes))))


def checkpoints_of(run: RunFolder) -> tuple[Checkpoint, ...]:
    """Those that are whole, the newest first; what is being written has a name that begins with a dot."""
    try:
        with os.scandir(run.checkpoints) as entries:
            files = [(entry, entry.stat()) for entry in entries if _is_one(entry.name)]
    except OSError:
        return ()
    told = _told(run.events_file)
    found = []
    for entry, info in files:
        older = OLDER_CHECKPOINT.fullmatch(entry.name)
        location = (int(older[1]), int(older[2])) if older is not None else told.get(entry.name, (None, None))
        found.append(Checkpoint(Path(entry.path), info.st_size, info.st_mtime, *location))
    return tuple(sorted(found, key=lambda each: each.written, reverse=True))


def to_fork_from(checkpoints: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """The one that a fork begins from where none is named: last.pt, else the newest that holds the progress of a
    training, else the best weights; None where there is none.
    """
    whole = [each for each in checkpoints if not each.weights_alone]
    last = next((each for each in whole if each.name == LAST), None)
    return last or next(iter(whole or checkpoints), None)


def _is_one(name: str) -> bool:
    return name.endswith(".pt") and not name.startswith(".")


def _told(log: Path) -> dict[str, tuple[int | None, int | None]]:
    """The epoch and step of the newest last.pt and the newest best.pt, as far as the end of the log tells."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = stream.read()
    except OSError:
        return {}
    told: dict[str, tuple[int | None, int | None]] = {}
    end = len(tail)
    while len(told) < 2 and (begin := tail.rfind(_TOLD, 0, end)) >= 0:
        try:
            event = EVENT.decode(tail[begin : tail.find(b"\n", begin)])
        except NOT_DECODED:
            event = None
        if isinstance(event, CheckpointSaved):
            told.setdefault(f"{event.kind}.pt", (event.epoch, event.step))
        end = begin
    return told
