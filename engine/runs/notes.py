"""What the user says of a run: a name, tags, notes, whether it is a favourite.

It is a small file of its own, notes.json in the run's folder, so that neither the log nor the job is ever written to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

FILE = "notes.json"
_MOST_NAME = 120
"""Characters of a name or a tag at most, as of a name in a job."""


class RunNotes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`name` is None where the run keeps the name that its job gives it. `set_aside` is whether its user has seen that
    it was interrupted and lets it rest.
    """

    name: str | None = None
    tags: tuple[str, ...] = ()
    text: str = ""
    favourite: bool = False
    set_aside: bool = False


def tags_of(text: str) -> tuple[str, ...]:
    """The tags in a text, between commas: each once, in their order."""
    return tuple(dict.fromkeys(tag for part in text.split(",") if (tag := " ".join(part.split()))))


def read_notes(folder: Path) -> RunNotes:
    """The notes in a run's folder; empty where there are none or they cannot be understood."""
    try:
        notes = msgspec.json.decode((folder / FILE).read_bytes(), type=RunNotes)
    except (OSError, *NOT_DECODED):
        return RunNotes()
    name = None if notes.name is None else notes.name[:_MOST_NAME]
    return msgspec.structs.replace(notes, name=name, tags=tuple(tag[:_MOST_NAME] for tag in notes.tags))


def change_notes(folder: Path, **changes: Any) -> RunNotes:
    """Writes the notes with `changes`, so that the file is either as before or whole. Raises OSError."""
    if "name" in changes:
        changes["name"] = " ".join(str(changes["name"]).split())[:_MOST_NAME]
    notes = msgspec.structs.replace(read_notes(folder), **changes)
    paths.write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(notes), indent=1), sync=True)
    return notes
