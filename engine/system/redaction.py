"""Redaction of names, paths, hosts and addresses from texts that others may read."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from engine.system import paths

_SYSTEM = ("/dev", "/proc", "/sys")
"""Folders whose paths reveal nothing about the user."""
_MARK = r"<(?!python>|source>)[\w-]+>"
"""Pattern for the replacement of a folder, such as <home>, after which the rest of a path may follow."""
_QUOTED = re.compile(rf"""(?P<open>["'“‘])(?P<path>(?:~|[A-Za-z]:|{_MARK}|file:/?)?[\\/][^"'”’\n]*)(?P<close>["'”’])""")
"""Pattern for a path between quotes, which may contain spaces."""
_PATH = re.compile(
    rf"(?<![\w/.<>-])(?:~|[A-Za-z]:|{_MARK})?[\\/](?!\s)(?:[^\s\"'<>|:,;()\[\]{{}}]|{_MARK})+"  # up to the first space
    rf"(?:(?: [^\s\"'<>|:,;/()]+){{1,4}}/[^\s\"'<>|:,;()]*|(?: [^\s\"'<>|:,;/()]+){{0,3}} ?[^\s\"'<>|:,;/()]*\.\w{{2,5}}\b)*"
)
"""Pattern for a path without quotes in a sentence.

It allows spaces in the path's folders, and in a file name with an extension.
"""
_ENDINGS = (
    r"\.(?:png|jpe?g|gif|bmp|webp|tiff?|npy|npz|mat|csv|tsv|xml|las|laz|ply|pcd|mp4|mkv|avi|mov|pt|pth|safetensors|onnx|"
    r"toml|ya?ml|zip)\b"
)
_FILE = re.compile(
    r"(?:(?:[^\s\"'<>|:,;()/]+ ){0,2}[^\s\"'<>|:,;()/]+/[^\"'<>|:,;()\n]*?|[^\s\"'<>|:,;()/]+)" + _ENDINGS,
    re.IGNORECASE,
)
_PATTERNS = (
    (re.compile(r"[\w.+-]+@[\w.-]+"), "<address>"),
    (re.compile(r"(?<![\d.])(?!127\.)\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"), "<address>"),
    (
        re.compile(
            r"(?<![\w:>])(?=[0-9A-Fa-f:]*::[0-9A-Fa-f]|(?:[0-9A-Fa-f]{1,4}:){7})[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}"
        ),
        "<address>",
    ),
    (re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}", re.IGNORECASE), "<uuid>"),
)


class Redactor:
    """Redactor that replaces names, paths and addresses in texts.

    The parts of paths inside the packages of Footplate and Python are kept, because tracebacks need them.
    """

    def __init__(self, secrets: Iterable[tuple[str, str]] = ()) -> None:
        """Create a redactor that also replaces `secrets`, given as pairs of a text and its replacement.

        Longer texts are replaced before shorter ones.
        """
        pairs = [*_list_machine_names(), *secrets]
        spellings = ((form, mark) for text, mark in pairs if text.strip() for form in _list_spellings(text))
        self._marks = {form.lower(): mark for form, mark in spellings}
        longest_first = sorted(self._marks, key=len, reverse=True)
        # Next to letters or digits, a secret would be a part of another word.
        self._secret = re.compile(
            r"(?<![^\W_])(?:" + "|".join(map(re.escape, longest_first)) + r")(?![^\W_])", re.IGNORECASE
        )
        self._code_folders = [
            (re.compile(re.escape(folder) + r"(?=[/\\])"), mark) for folder, mark in _list_code_folders()
        ]

    def redact(self, text: str) -> str:
        """Return `text` with names, paths, hosts and addresses replaced."""
        # Code folders come first, since they may be inside the home folder. Its mark then begins the remaining paths.
        for pattern, mark in self._code_folders:
            text = pattern.sub(mark, text)
        text = self._secret.sub(lambda match: self._marks[match[0].lower()], text)
        # Before paths without quotes, since quotes show where a path with spaces ends.
        text = _QUOTED.sub(lambda match: match["open"] + _replace_path(match["path"]) + match["close"], text)
        text = _PATH.sub(lambda match: _replace_path(match[0]), text)
        text = _FILE.sub("<file>", text)
        for pattern, mark in _PATTERNS:
            text = pattern.sub(mark, text)
        return text


def _replace_path(path: str) -> str:
    """Return "<path>", or `path` itself if it is in a system folder and therefore reveals nothing."""
    return path if path.startswith(_SYSTEM) else "<path>"


def _list_machine_names() -> Iterable[tuple[str, str]]:
    """Yield the user name, the machine name and Footplate's folders, each with its replacement."""
    for folder in (paths.home(), paths.cache_folder(), paths.runs_folder()):
        yield from ((str(folder), "<footplate>"), (os.path.realpath(folder), "<footplate>"))
    home = str(Path.home())
    yield from ((home, "<home>"), (os.path.realpath(home), "<home>"), (Path(home).name, "<user>"))
    with suppress(OSError, KeyError, ImportError):
        yield getpass.getuser(), "<user>"
    with suppress(ImportError, KeyError, AttributeError):
        import pwd

        account = pwd.getpwuid(os.getuid())
        yield account.pw_name, "<user>"
        for name in account.pw_gecos.split(","):
            yield name, "<user>"
            # Shorter words would also be replaced where they don't mean the user.
            yield from ((name_word, "<user>") for name_word in name.split() if len(name_word) > 3)
    for name in (socket.gethostname(), os.uname().nodename if hasattr(os, "uname") else ""):
        yield from ((name, "<host>"), (name.partition(".")[0], "<host>"))


def _list_code_folders() -> list[tuple[str, str]]:
    """Return the folders with the code of Python and Footplate, longest first, each with its replacement."""
    import sysconfig

    folders = {sysconfig.get_path(name): "<python>" for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    folders |= {str(Path(path).resolve()): mark for path, mark in folders.items()}
    folders |= {sys.prefix: "<python>", sys.base_prefix: "<python>", str(paths.PACKAGES): "<source>"}
    return sorted(((path, mark) for path, mark in folders.items() if len(path) > 1), key=lambda pair: -len(pair[0]))


def _list_spellings(text: str) -> set[str]:
    """Return the forms that a text may have in a log: plain, escaped as in JSON or Python, and URL-encoded."""
    return {text, json.dumps(text)[1:-1], repr(text)[1:-1], ascii(text)[1:-1], quote(text)} - {"", "."}
