"""Notices of what becomes of runs: which a user wants and how, and what the one who sends them is given and answers.

The wishes are a file of the user's, `notices.toml` in Footplate's home, which may also be written by hand:

    ended = true           # a run has come to its end
    failed = true          # a run has failed
    stalled = true         # nothing goes on in a run
    restarted = false      # a run starts again by itself after a fault
    least_minutes = 1.0    # only of runs that have gone on for so long, their waiting included
    desktop = true         # as a notification of the desktop
    command = ""           # and by this line, which the system's shell runs

The line is one of a shell's (`/bin/sh`, on Windows `cmd.exe`), so that what works in a terminal works here, and what is
to be told comes in its environment, so that no name and no message is ever read as a part of it: see `VARIABLES`. It
runs in the run's folder, apart from the run, for `COMMAND_S` at most.

A run's supervisor sends them, so that a closed window changes nothing; the window sends none of them.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tomli_w
from msgspec import Meta

from engine.contract.problems import Problem
from engine.system import paths

FILE = "notices.toml"
SENDER = "engine.supervisor.notices.sending"
"""The module that sends one notice, in a process of its own: it reads a `Notice` from its standard input, and writes
the `NoticeSent` to its standard output."""
COMMAND_S = 60.0
"""How long the user's command may take."""

NoticeKind = Literal["ended", "failed", "stalled", "restarted"]

VARIABLES = {
    "FOOTPLATE_NOTICE": "ended, failed, stalled or restarted",
    "FOOTPLATE_TITLE": "what has happened, in a few words",
    "FOOTPLATE_TEXT": "the message, in a sentence or two",
    "FOOTPLATE_RUN": "the run's id",
    "FOOTPLATE_NAME": "the run's name, or that of its dataset",
    "FOOTPLATE_FOLDER": "the run's folder",
    "FOOTPLATE_OUTCOME": "completed or failed; empty while the run continues",
    "FOOTPLATE_CAUSE": "why it failed, stalled or restarted; else empty",
    "FOOTPLATE_BEST": "its best metrics, such as top1=0.941 top5=0.998; may be empty",
    "FOOTPLATE_SECONDS": "how long it has been running",
}
"""What the user's command finds in its environment."""


class NoticeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user wants to be told of, and how. See the module for what each field means."""

    ended: bool = True
    failed: bool = True
    stalled: bool = True
    restarted: bool = False
    least_minutes: Annotated[float, Meta(ge=0, le=10_080)] = 1.0
    desktop: bool = True
    command: Annotated[str, Meta(max_length=4096)] = ""

    def wants(self, kind: NoticeKind, seconds: float) -> bool:
        """Whether something of `kind` is to be told of a run that has gone on for `seconds`, in any way at all."""
        asked = {"ended": self.ended, "failed": self.failed, "stalled": self.stalled, "restarted": self.restarted}
        return asked[kind] and seconds >= 60 * self.least_minutes and (self.desktop or bool(self.command.strip()))


@dataclass(frozen=True)
class KindWords:
    """How a kind of notice is offered."""

    title: str
    meaning: str


KINDS: dict[NoticeKind, KindWords] = {
    "ended": KindWords(
        "A run has come to its end", "All epochs are done. There is no notification for runs that you stop or pause."
    ),
    "failed": KindWords("A run has failed", "It could not continue, and will not restart by itself."),
    "stalled": KindWords(
        "A run stalls",
        "All of its workers are alive, but there has been no progress for two minutes, or twenty typical steps.",
    ),
    "restarted": KindWords(
        "A run starts again", "A worker died or hung, and the run resumes by itself from its last checkpoint."
    ),
}
"""All there is to be told of, in the order in which it is listed."""


class Notice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One notice, and how it is to be sent. The command runs in `folder` with `variables` in its environment."""

    title: str
    text: str
    folder: str
    desktop: bool
    command: str
    variables: dict[str, str]


class NoticeSent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What became of a notice. `desktop_by` is the program that showed it, "" for none; `command_code` the exit code of
    the command, None where none was asked for or it did not end by itself; `said` the end of what it printed. What went
    wrong stands in words in the two problems, "" for nothing.
    """

    desktop_by: str = ""
    desktop_problem: str = ""
    command_code: int | None = None
    command_s: float = 0.0
    said: str = ""
    command_problem: str = ""


_TYPES: dict[str, Any] = {info.name: info.type for info in msgspec.structs.fields(NoticeSettings)}
_WANTED = {
    "least_minutes": "Write a number from 0 to 10,080.",
    "command": "Write one line in quotes, of at most 4,096 characters.",
}


def settings_file(folder: Path | None = None) -> Path:
    """Where the settings are kept; `folder` is Footplate's home where none is given."""
    return (folder or paths.home()) / FILE


def load_notices(folder: Path | None = None) -> tuple[NoticeSettings, list[Problem]]:
    """The settings, and what is wrong with their file: a warning for each, since no run is kept from its work by it.

    Whatever can be understood holds; for the rest the defaults do.
    """
    path = settings_file(folder)
    try:
        if not paths.is_only_writable_by_user(path):
            message = f"{path} is writable by others, whose command would run as yours."
            return NoticeSettings(), [_wrong("", message, "The defaults apply until only you can write to it.")]
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return NoticeSettings(), []
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return NoticeSettings(), [
            _wrong("", f"{path} can't be read: {why}.", "The defaults apply until that is fixed.")
        ]
    except (ValueError, RecursionError) as error:
        return NoticeSettings(), [
            _wrong("", f"{path} is not valid TOML: {error}.", "The defaults apply until that is fixed.")
        ]
    found = NoticeSettings()
    problems = []
    for name, value in values.items():
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, n=1)
            hint = f"Did you mean “{near[0]}”?" if near else f"Available: {', '.join(_TYPES)}."
            problems.append(_wrong(name, f"“{name}” in {path} is not a notification setting.", hint))
            continue
        try:
            found = msgspec.structs.replace(found, **{name: msgspec.convert(value, _TYPES[name])})
        except msgspec.ValidationError:
            hint = _WANTED.get(name, "Write true or false.")
            problems.append(_wrong(name, f"{name} = {value!r} in {path} is not valid.", f"{hint} The default applies."))
    return found, problems


def save_notices(settings: NoticeSettings, folder: Path | None = None) -> None:
    """Writes the settings, whole or not at all. Raises OSError.

    A file that could not be understood in full is kept beside them, as `notices.toml.damaged`.
    """
    path = settings_file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    if load_notices(folder)[1]:
        os.replace(path, path.with_name(f"{FILE}.damaged"))
    # For its user alone, since it names a command.
    paths.write_atomically(path, tomli_w.dumps(msgspec.to_builtins(settings)).encode())


def has_session_bus() -> bool:
    """Whether there is a D-Bus of the desktop's to connect to. Without this look a library might try to start one."""
    if not sys.platform.startswith("linux"):
        return False
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return bool(os.environ.get("DBUS_SESSION_BUS_ADDRESS") or (runtime and Path(runtime, "bus").exists()))


def _wrong(name: str, message: str, remedy: str) -> Problem:
    return Problem(name, message, remedy, "warning")
