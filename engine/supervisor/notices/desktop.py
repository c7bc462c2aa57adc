"""Desktop notifications, which command-line programs of the system show without a library or window.

On Linux, the program is `notify-send` (libnotify) or, if that is missing, `gdbus` (GLib). Both follow the Desktop
Notifications Specification. On macOS, it is `osascript`, and on Windows PowerShell. These two are untested.
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
from engine.system.children import run_child

TIMEOUT_S = 10.0
"""Maximum time for showing a notification, in seconds.

`notify-send` would wait half a minute for a service that hangs.
"""

_NAME = "org.freedesktop.Notifications"
_PATH = "/org/freedesktop/Notifications"
_APPLE_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_POWERSHELL_SCRIPT = (
    "Add-Type -AssemblyName System.Windows.Forms, System.Drawing; "
    "$icon = New-Object System.Windows.Forms.NotifyIcon; "
    "$icon.Icon = [System.Drawing.SystemIcons]::Information; $icon.Visible = $true; "
    "$icon.ShowBalloonTip(5000, $env:FOOTPLATE_SHOWN_TITLE, $env:FOOTPLATE_SHOWN_TEXT, 'Info'); "
    "Start-Sleep -Seconds 6; $icon.Dispose()"
)

Program = Literal["notify-send", "gdbus", "osascript", "powershell"]


def find_program() -> Program | None:
    """Return the program that shows notifications, or None if there is no desktop or no such program."""
    if sys.platform == "darwin":
        return "osascript" if shutil.which("osascript") else None
    if sys.platform == "win32":
        return "powershell" if shutil.which("powershell") else None
    if not has_session_bus():
        return None
    if shutil.which("notify-send"):
        return "notify-send"
    return "gdbus" if shutil.which("gdbus") else None


def create_command(program: Program, title: str, text: str) -> list[str]:
    """Return the command line for a notification. Its texts can't be interpreted as options, markup or code."""
    body = escape(text, quote=False)  # the specification allows markup in the text
    match program:
        case "notify-send":
            escaped = body.replace("\\", "\\\\")  # notify-send interprets escapes such as \n
            return ["notify-send", "--app-name=Footplate", "--icon=footplate", "--", title, escaped]
        case "gdbus":
            # JSON strings are valid in GVariant's text format.
            app, icon, title, body = (
                msgspec.json.encode(each).decode() for each in ("Footplate", "footplate", title, body)
            )
            call = ["gdbus", "call", "--session", f"--timeout={TIMEOUT_S:.0f}", f"--dest={_NAME}"]
            call += [f"--object-path={_PATH}", f"--method={_NAME}.Notify", "--"]
            return [*call, app, "0", icon, title, body, "[]", "{}", "-1"]
        case "osascript":
            return ["osascript", *(word for line in _APPLE_SCRIPT for word in ("-e", line)), title, text]
        case "powershell":
            # The script reads the texts from environment variables.
            return ["powershell", "-NoProfile", "-NonInteractive", "-Command", _POWERSHELL_SCRIPT]


def show(program: Program, title: str, text: str) -> str:
    """Show a notification within `TIMEOUT_S`. Return a sentence about the problem, or "" if it was shown."""
    try:
        variables = {"FOOTPLATE_SHOWN_TITLE": title, "FOOTPLATE_SHOWN_TEXT": text}  # for `_POWERSHELL_SCRIPT`
        done = run_child(create_command(program, title, text), timeout_s=TIMEOUT_S, env=os.environ | variables)
    except subprocess.TimeoutExpired:
        problem = f"the notification service did not answer {program} within {TIMEOUT_S:.0f} s."
    except OSError as error:
        problem = f"{program} could not be started ({error.strerror})."
    else:
        if done.returncode == 0:
            return ""
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        problem = f"{program} reported: {lines[-1].strip() if lines else f'exit code {done.returncode}'}"
    return f"Desktop notifications don't work: {problem}"
