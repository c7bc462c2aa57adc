"""Install Footplate on another machine through ssh. A wheel is installed in a separate virtual environment there."""

from __future__ import annotations

import re
from pathlib import Path

from engine.contract.hosts import Host
from engine.system.children import run_child
from engine.system.files import open_file
from engine.system.ssh import create_english_environment, explain_ssh_exit, ssh_command

FOLDER = ".local/share/footplate/venv"
"""Folder of the virtual environment on the other machine, relative to the home folder."""
_INSTALL = """set -e
mkdir -p "$HOME/{parent}"
cat > "$HOME/{parent}/{wheel}"
python3 -m venv "$HOME/{folder}"
"$HOME/{folder}/bin/python" -m pip install --quiet --upgrade "$HOME/{parent}/{wheel}"
rm "$HOME/{parent}/{wheel}"
"""


class InstallFailed(Exception):  # noqa: N818 - describes the event
    """Raised when an installation on another machine fails. The message is the reason."""


def install(host: Host, wheel: Path) -> None:
    """Copy `wheel` to `host`, and install it there with its dependencies. Raises InstallFailed."""
    name = wheel.name
    if not re.fullmatch(r"footplate-[\w.+-]+\.whl", name, re.ASCII):  # used in a shell script below
        raise InstallFailed(f"{wheel} is not a wheel of Footplate. Choose a file footplate-….whl.")
    script = _INSTALL.format(parent=str(Path(FOLDER).parent), folder=FOLDER, wheel=name)
    try:
        with open_file(wheel) as content:
            command = ssh_command(host.ssh_destination, ["sh", "-c", script])
            done = run_child(command, timeout_s=None, stdin=content, env=create_english_environment())
    except OSError as error:
        raise InstallFailed(f"{wheel} can't be read: {error.strerror}. Check the path and its permissions.") from error
    if done.returncode:
        errors = done.stderr.decode(errors="replace")
        last = errors.strip().splitlines()[-1:] or ["no reason given"]
        # 255 is the exit code of ssh itself.
        reason = explain_ssh_exit(host.title, done.returncode, errors) if done.returncode == 255 else f"{last[0]}."
        raise InstallFailed(f"Footplate could not be installed on {host.title}: {reason}")
