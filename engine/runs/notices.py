"""Settings for notifications about the end, failure or stall of runs, and messages of the sending process.

The settings are in `notices.toml` in Footplate's home, which users may edit:

ended = true           # a run has ended
failed = true          # a run has failed
stalled = true         # a run makes no progress
restarted = false      # a run restarts automatically after a fault
least_minutes = 1.0    # only for runs that have taken at least this long, including their time in the queue
desktop = true         # show a notification on the desktop
command = ""           # run this command line in the system's shell

The command runs in `/bin/sh`, or in `cmd.exe` on Windows. It receives its data in environment variables (see
`VARIABLES`), so that the shell never interprets a name or message. It runs in the run folder, independently of the run,
for at most `COMMAND_S`.

The supervisor of a run sends notifications, so they don't need an open window.
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
from engine.system.files import read_file

FILE = "notices.toml"
SENDER = "engine.supervisor.notices.sending"
"""Module that sends one notification. It reads a `Notice` from standard input, and prints a `NoticeSent`."""
COMMAND_S = 60.0
"""Maximum time in seconds for the command that the user runs with each notification."""

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
"""Environment variables that the user's command receives, with descriptions of their contents."""


class NoticeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings for notifications about runs.

    Attributes:
        ended: True to notify about runs that have ended.
        failed: True to notify about runs that have failed.
        stalled: True to notify about runs that make no progress.
        restarted: True to notify about runs that restart automatically.
        least_minutes: Minimum duration of a run, including its time in the queue.
        desktop: True to show notifications on the desktop.
        command: Command line to run for a notification, or "".
    """

    ended: bool = True
    failed: bool = True
    stalled: bool = True
    restarted: bool = False
    least_minutes: Annotated[float, Meta(ge=0, le=10_080)] = 1.0
    desktop: bool = True
    command: Annotated[str, Meta(max_length=4096)] = ""

    def wants(self, kind: NoticeKind, seconds: float) -> bool:
        """Return True if the user wants a notification of `kind` for a run that has taken `seconds`."""
        is_enabled: bool = getattr(self, kind)
        has_receiver = self.desktop or bool(self.command.strip())
        return is_enabled and has_receiver and seconds >= 60 * self.least_minutes


@dataclass(frozen=True)
class KindDescription:
    """Label and explanation of a kind of notification, for the user."""

    title: str
    meaning: str


KINDS: dict[NoticeKind, KindDescription] = {
    "ended": KindDescription(
        "Run finished", "All epochs are done. There is no notification for runs that you stop or pause."
    ),
    "failed": KindDescription("Run failed", "It could not continue, and will not restart by itself."),
    "stalled": KindDescription(
        "Run stalled",
        "All of its workers are alive, but there has been no progress for two minutes, or twenty typical steps.",
    ),
    "restarted": KindDescription(
        "Run restarted", "A worker died or hung, and the run resumes by itself from its last checkpoint."
    ),
}
"""All kinds of notifications, in the order in which they are displayed."""


class Notice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Notification to send.

    Attributes:
        folder: Run folder, in which the command runs.
        desktop: True to show the notification on the desktop.
        command: User's command line, or "" for none.
        variables: Environment variables for the command.
    """

    title: str
    text: str
    folder: str
    desktop: bool
    command: str
    variables: dict[str, str]


class NoticeSent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of sending a notification.

    Attributes:
        desktop_by: Program that has shown the notification on the desktop, or "".
        desktop_problem: Reason why it could not be shown, or "".
        command_code: Exit code of the user's command, or None if there was no command or it timed out.
        command_s: Duration of the command in seconds.
        command_output: End of the command's output.
        command_problem: Problem with the command, or "".
    """

    desktop_by: str = ""
    desktop_problem: str = ""
    command_code: int | None = None
    command_s: float = 0.0
    command_output: str = ""
    command_problem: str = ""


_TYPES: dict[str, Any] = {info.name: info.type for info in msgspec.structs.fields(NoticeSettings)}
_REMEDIES = {
    "least_minutes": "Write a number from 0 to 10,080.",
    "command": "Write one line in quotes, of at most 4,096 characters.",
}


def settings_file() -> Path:
    return paths.home() / FILE


def load_notices() -> tuple[NoticeSettings, list[Problem]]:
    """Read the user's settings for notifications, and return them with the problems found.

    Invalid settings are replaced by the defaults. The problems are only warnings, because they do not block a run.
    """
    path = settings_file()
    try:
        if not paths.is_only_writable_by_user(path):
            message = f"{path} is writable by others, whose command would run as yours."
            return NoticeSettings(), [
                _create_warning("", message, "The defaults apply until only you can write to it.")
            ]
        values = tomllib.loads(read_file(path).decode())
    except FileNotFoundError:
        return NoticeSettings(), []
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            message = f"{path} can't be read: {error.strerror}."
        elif isinstance(error, UnicodeDecodeError):
            message = f"{path} can't be read: it is not UTF-8."
        else:
            message = f"{path} is not valid TOML: {error}."
        return NoticeSettings(), [_create_warning("", message, "The defaults apply until that is fixed.")]
    settings = NoticeSettings()
    problems = []
    for name, value in values.items():
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, n=1)
            hint = f"Did you mean “{near[0]}”?" if near else f"Available: {', '.join(_TYPES)}."
            problems.append(_create_warning(name, f"“{name}” in {path} is not a notification setting.", hint))
            continue
        try:
            settings = msgspec.structs.replace(settings, **{name: msgspec.convert(value, _TYPES[name])})
        except msgspec.ValidationError:
            hint = _REMEDIES.get(name, "Write true or false.")
            problems.append(
                _create_warning(name, f"{name} = {value!r} in {path} is not valid.", f"{hint} The default applies.")
            )
    return settings, problems


def save_notices(settings: NoticeSettings) -> None:
    """Write the settings for notifications atomically. Raises OSError.

    An invalid settings file is kept as `notices.toml.damaged`.
    """
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    if load_notices()[1]:
        os.replace(path, path.with_name(f"{FILE}.damaged"))
    # Readable for this user only, since it contains a command.
    paths.write_atomically(path, tomli_w.dumps(msgspec.to_builtins(settings)).encode())


def has_session_bus() -> bool:
    """Return True if the D-Bus of the desktop session is available. Without it, a library might try to start one."""
    if not sys.platform.startswith("linux"):
        return False
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return bool(os.environ.get("DBUS_SESSION_BUS_ADDRESS") or (runtime and Path(runtime, "bus").exists()))


def _create_warning(name: str, message: str, remedy: str) -> Problem:
    """Create a problem with the setting `name`, or with all settings if it is "", that does not block a run."""
    return Problem(name, message, remedy, "warning")
