"""Use of the user's ssh, with valid host names, command lines, and explanations of errors."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Sequence

SSH = (
    "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=2",
)  # fmt: skip
"""Options that keep ssh from asking for a password, and make it give up after ten seconds without a response."""

_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_LONGEST_NAME = 253
_LONGEST_REASON = 500
_NOT_FOUND = 127
_USAGE = 2  # argparse exits with it after an unknown command or option
_SSH_FAILED = 255
"""Exit code that ssh has for its own errors. Other exit codes are those of the remote command (ssh(1))."""

_EXPLANATIONS: tuple[tuple[str, str], ...] = (
    ("Could not resolve hostname", "can't be resolved. Check the spelling, or set its HostName in ~/.ssh/config."),
    ("Connection refused", "refused the connection. No ssh server is running there, or it uses another port: set Port in ~/.ssh/config."),
    ("Host key verification failed", "is not trusted yet, or its host key has changed. Run `ssh {name}` once in a terminal and answer the prompt."),
    ("Permission denied", "denied access. Footplate needs key-based login: run `ssh-copy-id {name}`, and `ssh-add` if the key has a passphrase."),
    ("Too many authentication failures", "received too many keys. Set the right one in ~/.ssh/config "
     "(IdentityFile, IdentitiesOnly yes)."),
    ("timed out", "does not respond. It may be off, asleep, or behind a firewall."),
    ("not responding", "has stopped responding. It may be off, asleep, or disconnected from the network."),
    ("No route to host", "can't be reached: no route to host. Check the network."),
    ("Network is unreachable", "can't be reached: the network is unreachable from this machine."),
    ("closed by", "closed the connection."),
    ("Connection reset", "reset the connection."),
    ("Broken pipe", "can no longer be reached: the connection was lost."),
)  # fmt: skip
"""Explanations of ssh's errors.

Each pair has a part of ssh's output, and the end of a sentence that starts with the name of the host.
"""


def create_english_environment() -> dict[str, str]:
    """Return an environment that makes ssh print English messages. `explain_ssh_exit` expects these."""
    return {**os.environ, "LC_ALL": "C"}


def ssh_command(destination: str, command: Sequence[str]) -> list[str]:
    """Return the ssh command line that runs `command` on another machine, with quotes for that machine's shell."""
    return ["ssh", *SSH, "--", destination, *map(shlex.quote, command)]


def host_name_problem(name: str) -> str:
    """Return the reason why a host can't be added under this name, or "" if it can.

    The name is passed to ssh unchanged. It is a host name, an address, or an entry in ~/.ssh/config, optionally after
    "user@".
    """
    user, _, host = name.rpartition("@")
    if _is_ipv6(host) and (not user or _NAME.fullmatch(user)):
        return ""
    if not name:
        return "Enter a host name as for ssh: “workstation2” or “anna@workstation2”."
    if name.startswith("-"):
        return "A host name can't start with a dash."
    if ":" in host:
        return "A port can't be entered here. Set it in ~/.ssh/config (Host, HostName, Port) and add the host by that name."
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return "A host name may contain only letters, digits, dots and dashes, with an optional “user@” in front."
    return ""


def explain_ssh_exit(name: str, code: int, output: str) -> str:
    """Explain in a sentence why ssh to the host `name`, or Footplate there, has failed.

    `code` is the exit code of ssh, and `output` the end of its output, in English.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_REASON] if lines else ""
    if code == _SSH_FAILED:
        for pattern, explanation in _EXPLANATIONS:
            if any(pattern in line for line in lines):
                return f"{name} {explanation.format(name=name)}"
        return (
            f"The connection to {name} was lost: {last.rstrip('.')}." if last else f"The connection to {name} was lost."
        )
    if code == _NOT_FOUND or "not found" in last:
        return (
            f"Footplate was not found on {name}. Install it there and make sure that `ssh {name} footplate --version` "
            "works (a link in ~/.local/bin or /usr/local/bin is often enough)."
        )
    if code == _USAGE:
        return f"Footplate on {name} is too old to be watched. Update it there."
    return f"Footplate on {name} has exited: {last.rstrip('.')}." if last else f"Footplate on {name} has exited."


def _is_ipv6(host: str) -> bool:
    """Return True if `host` is an IPv6 address without a scope."""
    try:
        return "%" not in host and ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
