"""What ssh says when it fails, in plain words and with what to do."""

from __future__ import annotations

import ipaddress
import re

_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_LONGEST_NAME = 253
_NOT_FOUND = 127
_USAGE = 2
_SSH_FAILED = 255
"""ssh's exit code for its own faults; any other is the remote command's (ssh(1))."""

_KNOWN: tuple[tuple[str, str], ...] = (
    ("Could not resolve hostname", "is not known: no machine of that name is found. Check the spelling, or give it an "
     "address in ~/.ssh/config."),
    ("Connection refused", "refuses the connection: no ssh server listens there, or at another port, which "
     "~/.ssh/config can name."),
    ("Host key verification failed", "is not trusted yet, or its key has changed. Run `ssh {name}` once in a terminal "
     "and answer its question."),
    ("Permission denied", "lets nobody in without a key, and a password cannot be asked for here. Set one up with "
     "`ssh-copy-id {name}`; where the key has a passphrase, `ssh-add` unlocks it."),
    ("Too many authentication failures", "was offered too many keys. Name the right one in ~/.ssh/config "
     "(IdentityFile, IdentitiesOnly yes)."),
    ("timed out", "does not answer. It may be off, asleep, or behind a firewall."),
    ("not responding", "does not answer any more. It may be off, asleep, or cut off from the network."),
    ("No route to host", "cannot be reached: no route leads there. Check the network."),
    ("Network is unreachable", "cannot be reached: this machine has no network that leads there."),
    ("closed by", "closed the connection."),
    ("Connection reset", "broke off the connection."),
    ("Broken pipe", "can no longer be reached: the connection broke."),
)  # fmt: skip
"""A part of ssh's last words, and how the sentence after the host's name goes on."""


def problem_with(name: str) -> str:
    """Why a host cannot be added by this name; "" where it can.

    A name is handed to ssh as it stands: a host or an address, or one from ~/.ssh/config, with "user@" before it or not.
    """
    user, _, host = name.rpartition("@")
    if _is_ipv6(host) and (not user or _NAME.fullmatch(user)):
        return ""
    if not name:
        return "Give a host's name, as ssh takes it: “workstation2” or “anna@workstation2”."
    if name.startswith("-"):
        return "A host's name cannot begin with a dash."
    if ":" in host:
        return "A port cannot be given here. Name it in ~/.ssh/config (Host, HostName, Port), and add the host by that name."
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return "A host's name has letters, digits, dots and dashes only, and no spaces; “user@” may stand before it."
    return ""


def why_it_ended(name: str, code: int, said: str) -> str:
    """Why ssh to `name` ended with `code`, from what it (or the command over there) said last, as one sentence."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if code == _SSH_FAILED:
        for part, words in _KNOWN:
            if any(part in line for line in lines):
                return f"{name} {words.format(name=name)}"
        return f"The connection to {name} broke: {last.rstrip('.')}." if last else f"The connection to {name} broke."
    if code == _NOT_FOUND or "not found" in last:
        return (
            f"Footplate is not found on {name}. Install it there, and see to it that `ssh {name} footplate --version` "
            "finds it (a link to it in ~/.local/bin or /usr/local/bin often does)."
        )
    if code == _USAGE:
        return f"Footplate on {name} is older than this one and cannot be watched. Update it there."
    return f"Footplate on {name} has ended: {last.rstrip('.')}." if last else f"Footplate on {name} has ended."


def _is_ipv6(host: str) -> bool:
    try:
        return "%" not in host and ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
