"""Notifications of the desktop, through what the system has for it: no library, and no window, is needed.

Linux: `notify-send` (of libnotify), else `gdbus` (of GLib, which GNOME and most other desktops have), both of which
speak the Desktop Notifications Specification. macOS: `osascript`. Windows: PowerShell. The last two have never been
run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from html import escape
from typing import Literal

import msgspec

from engine.runs.notices import has_session_bus

PATIENCE_S = 10.0
"""How long showing a notification may take: `notify-send` waits half a minute or more for a service that does not
answer."""

_NAME = "org.freedesktop.Notifications"
_PATH = "/org/freedesktop/Notifications"
_APPLE = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms, System.Drawing; "
    "$icon = New-Object System.Windows.Forms.NotifyIcon; "
    "$icon.Icon = [System.Drawing.SystemIcons]::Information; $icon.Visible = $true; "
    "$icon.ShowBalloonTip(5000, $env:FOOTPLATE_SHOWN_TITLE, $env:FOOTPLATE_SHOWN_TEXT, 'Info'); "
    "Start-Sleep -Seconds 6; $icon.Dispose()"
)

Way = Literal["notify-send", "gdbus", "osascript", "powershell"]


def way() -> Way | None:
    """The program that shows notifications here; None where there is no desktop, or no such program."""
    if sys.platform == "darwin":
        return "osascript" if shutil.which("osascript") else None
    if sys.platform == "win32":
        return "powershell" if shutil.which("powershell") else None
    if not has_session_bus():
        return None
    if shutil.which("notify-send"):
        return "notify-send"
    return "gdbus" if shutil.which("gdbus") else None


def command(by: Way, title: str, text: str) -> list[str]:
    """The command that shows a notification. Neither text is ever read as an option, as markup or as a script."""
    body = escape(text, quote=False)  # the specification lets a notification's text hold marks
    match by:
        case "notify-send":
            whole = body.replace("\\", "\\\\")  # it reads escapes in the text, such as \n
            return ["notify-send", "--app-name=Footplate", "--icon=footplate", "--", title, whole]
        case "gdbus":
            # A JSON text is one in GVariant's notation too, whose escapes are the same and more.
            said = [msgspec.json.encode(words).decode() for words in ("Footplate", "footplate", title, body)]
            call = ["gdbus", "call", "--session", f"--timeout={PATIENCE_S:.0f}", f"--dest={_NAME}"]
            call += [f"--object-path={_PATH}", f"--method={_NAME}.Notify", "--"]
            return [*call, said[0], "0", said[1], said[2], said[3], "[]", "{}", "-1"]
        case "osascript":
            return ["osascript", *(part for line in _APPLE for part in ("-e", line)), title, text]
        case "powershell":
            return ["powershell", "-NoProfile", "-NonInteractive", "-Command", _WINDOWS]


def show(by: Way, title: str, text: str) -> str:
    """Shows a notification; returns in words why it could not, "" where it could. Waits for `PATIENCE_S` at most."""
    try:
        done = subprocess.run(
            command(by, title, text),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"FOOTPLATE_SHOWN_TITLE": title, "FOOTPLATE_SHOWN_TEXT": text},
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (
            f"Desktop notifications don't work: the notification service did not answer {by} within {PATIENCE_S:.0f} s."
        )
    except OSError as error:
        return f"Desktop notifications don't work: {by} could not be started ({error.strerror})."
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    why = lines[-1].strip() if lines else f"exit code {done.returncode}"
    return f"Desktop notifications don't work: {by} reported: {why}"
