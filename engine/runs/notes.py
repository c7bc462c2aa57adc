"""Notes of the user about a run: name, tags, text, and whether it is a favorite.

They are stored in notes.json in the run folder, since the log and the job never change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from engine.system import paths
from engine.system.decode_errors import decode_file

FILE = "notes.json"
_MAX_NAME = 120
"""Maximum length of a name or a tag in characters, which is that of a job's name."""


class RunNotes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes that the user has made to a run: its name, tags, text, star and dismissed notice.

    `name` is None if the run uses its job's name. `set_aside` is True if the user has dismissed the notice that the run
    was interrupted.
    """

    name: str | None = None
    tags: tuple[str, ...] = ()
    text: str = ""
    favorite: bool = False
    set_aside: bool = False


_NOTES = msgspec.json.Decoder(RunNotes)


def tags_of(text: str) -> tuple[str, ...]:
    """Split a text at commas into tags, without duplicates and superfluous spaces."""
    tags = (" ".join(tag.split()) for tag in text.split(","))
    return tuple(dict.fromkeys(filter(None, tags)))


def read_notes(folder: Path) -> RunNotes:
    """Read the notes from a run folder. Returns empty notes if the file is missing or invalid."""
    notes = decode_file(folder / FILE, _NOTES) or RunNotes()
    name = None if notes.name is None else notes.name[:_MAX_NAME]
    return msgspec.structs.replace(notes, name=name, tags=tuple(tag[:_MAX_NAME] for tag in notes.tags))


def change_notes(folder: Path, **changes: Any) -> RunNotes:
    """Change the fields in `changes` in the notes of a run, atomically, and return all notes. Raises OSError."""
    if "name" in changes:
        changes["name"] = " ".join(str(changes["name"]).split())[:_MAX_NAME]
    notes = msgspec.structs.replace(read_notes(folder), **changes)
    paths.write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(notes), indent=1), sync=True)
    return notes
