"""Facts about the disk and the network that checks need; a window answers from its cache."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.checks.custom_metrics import metrics_in
from engine.contract.catalogue import Measure
from engine.contract.weights import OnDisk, Weights, WeightsDisk, find
from engine.runs.consent import is_agreed
from engine.system.regular_files import read_regular

ANSWER_S = 2.0
"""Seconds to wait for a server."""
REMEMBERED_S = 30.0
"""Seconds for which an answer is reused, since a job is checked several times in a row."""

MODEL_FILE_BYTES = 16 << 20
"""Maximum size of a Python file that is read."""

Kind = Literal["", "file", "folder", "other"]
"""Kind of file at a path; "" if there is none, or it is inaccessible."""


@dataclass(frozen=True)
class ModelFile:
    """Current state of a Python file.

    Attributes:
        sha256: Hash that the user's consent to run it is bound to; None if it can't be read.
        measures: Metrics that its text defines.
        agreed: True if the user has allowed this content to run.
    """

    sha256: str | None
    measures: tuple[Measure, ...] = ()
    agreed: bool = False


class Disk(WeightsDisk, Protocol):
    """Source of answers for checks. None means unknown; checks then report nothing."""

    def kind(self, path: str) -> Kind | None:
        """Return the kind of file at `path`."""

    def model_file(self, path: str) -> ModelFile | None:
        """Return the state of the Python file at `path`."""


class RealDisk:
    """Answers from the disk and the network, which may block."""

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(os.path.expanduser(path)).st_mode
        except (OSError, ValueError):  # invalid characters in the user's input
            return ""
        return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def model_file(self, path: str) -> ModelFile:
        try:
            content = read_regular(os.path.expanduser(path), MODEL_FILE_BYTES)
        except (OSError, ValueError):
            return ModelFile(None)
        sha256 = hashlib.sha256(content).hexdigest()
        return ModelFile(sha256, metrics_in(content), is_agreed(path, sha256))

    def weights(self, weights: Weights) -> OnDisk:
        return find(weights)

    def reaches(self, host: str) -> bool | None:
        return _probe(host).wait()


class ImpatientDisk(RealDisk):
    """Disk that asks servers in the background; until they answer, the result is unknown."""

    def reaches(self, host: str) -> bool | None:
        return _probe(host).answer


class _Probe:
    """Request to a server, on a thread that is abandoned after `ANSWER_S`.

    Name servers and proxies may block it for longer than the connection's timeout.
    """

    def __init__(self, host: str) -> None:
        self.started_at = time.monotonic()
        self._answers: list[bool] = []  # the first counts, also if the server answers late
        self._thread = threading.Thread(target=self._ask, args=(host,), name="probe", daemon=True)
        self._thread.start()

    def _ask(self, host: str) -> None:
        self._answers.append(_answers(host))

    @property
    def answer(self) -> bool | None:
        return self._answers[0] if self._answers else None

    def wait(self) -> bool:
        """Wait for the answer; after `ANSWER_S` it is False."""
        self._thread.join(max(0.0, self.started_at + ANSWER_S - time.monotonic()))
        if not self._answers:
            self._answers.append(False)
        return self._answers[0]


_probes: dict[str, _Probe] = {}
_probes_lock = threading.Lock()


def _probe(host: str) -> _Probe:
    """Return the latest request to `host`, or a new one if that is too old."""
    with _probes_lock:
        probe = _probes.get(host)
        if probe is None or time.monotonic() - probe.started_at > REMEMBERED_S:
            probe = _probes[host] = _Probe(host)
        return probe


def _answers(host: str) -> bool:
    """Return True if any server answers at `host`, through the user's proxy if there is one."""
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
    """Return the hash that consent to run a model file is bound to; None if the file can't be read."""
    return RealDisk().model_file(path).sha256
