"""The user's own ssh: which names it is given, how it is called, and what it says when it fails, in plain words."""

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
"""Never asks for a password; gives up on a host that does not answer, or no longer, after ten seconds."""

_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_LONGEST_NAME = 253
_NOT_FOUND = 127
_USAGE = 2
_SSH_FAILED = 255
"""ssh's exit code for its own faults; any other is the remote command's (ssh(1))."""

_KNOWN: tuple[tuple[str, str], ...] = (
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
"""A part of ssh's last words, and how the sentence after the host's name goes on."""


def in_english() -> dict[str, str]:
    """The environment in which ssh says what `why_it_ended` knows."""
    return {**os.environ, "LC_ALL": "C"}


def ssh_command(destination: str, command: Sequence[str]) -> list[str]:
    """What runs `command` on another machine, each word of it as it stands, whatever a shell would make of it."""
    return ["ssh", *SSH, destination, *map(shlex.quote, command)]


def problem_with(name: str) -> str:
    """Why a host cannot be added by this name; "" where it can.

    A name is handed to ssh as it stands: a host or an address, or one from ~/.ssh/config, with "user@" before it or
    not.
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


def why_it_ended(name: str, code: int, said: str) -> str:
    """Why ssh to `name` ended with `code`, from what it (or the command over there) said last, as one sentence."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if code == _SSH_FAILED:
        for part, words in _KNOWN:
            if any(part in line for line in lines):
                return f"{name} {words.format(name=name)}"
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
    try:
        return "%" not in host and ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
