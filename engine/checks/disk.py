"""What checks ask of the disk and the network, so that whoever must not wait for them can answer from what is known."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from engine.checks.custom_metrics import measures_in
from engine.contract.catalogue import Measure
from engine.contract.weights import OnDisk, Weights, find
from engine.runs.consent import is_agreed
from engine.system.regular_files import read_regular

ANSWER_S = 3.0
"""How long a server is waited for."""
REMEMBERED_S = 30.0
"""How long its answer counts, since one job is checked several times in a row."""

MODEL_FILE_BYTES = 16 << 20
"""A Python file with more is none that anybody wrote."""

Kind = Literal["", "file", "folder", "other"]
"""What lies at a path: "" where there is nothing, or nothing that may be looked at."""


@dataclass(frozen=True)
class ModelFile:
    """A Python file as it is now. `sha256` is what consent to run it is bound to, None where it cannot be read;
    `measures` are those that its text names; `agreed` tells whether the user has allowed it to run as it is."""

    sha256: str | None
    measures: tuple[Measure, ...] = ()
    agreed: bool = False


class Disk(Protocol):
    """None is the answer to what is not known yet, of which checks then say nothing."""

    def kind(self, path: str) -> Kind | None:
        """What lies at `path`."""

    def model_file(self, path: str) -> ModelFile | None:
        """The Python file at `path`."""

    def weights(self, weights: Weights) -> OnDisk | None:
        """The file of these weights, as far as it has been fetched."""

    def reaches(self, host: str) -> bool | None:
        """Whether the server at an address such as "https://huggingface.co" answers."""


class RealDisk:
    """Answers from the disk itself, however long that takes."""

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(os.path.expanduser(path)).st_mode
        except (OSError, ValueError):  # what is typed may hold characters that no path has
            return ""
        return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def model_file(self, path: str) -> ModelFile:
        try:
            content = read_regular(os.path.expanduser(path), MODEL_FILE_BYTES)
        except (OSError, ValueError):
            return ModelFile(None)
        sha256 = hashlib.sha256(content).hexdigest()
        return ModelFile(sha256, measures_in(content), is_agreed(path, sha256))

    def weights(self, weights: Weights) -> OnDisk:
        return find(weights)

    def reaches(self, host: str) -> bool:
        return _answers(host, int(time.monotonic() / REMEMBERED_S))


@lru_cache(maxsize=16)
def _answers(host: str, _period: int) -> bool:
    """Whether anything at all answers there, by way of the user's proxy where there is one."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(host, method="HEAD"), timeout=ANSWER_S):
            return True
    except HTTPError as refusal:
        refusal.close()
        return True
    except (OSError, ValueError, HTTPException):
        return False


def model_file_sha256(path: str) -> str | None:
    """The hash that consent to run a model file is bound to, or None where the file cannot be read."""
    return RealDisk().model_file(path).sha256
