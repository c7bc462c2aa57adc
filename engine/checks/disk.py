"""Facts about files, the network and custom tasks that checks of a job depend on.

Checks get them from a `Disk`. `RealDisk` reads them when they are requested, and the window's `CachedDisk` in the
background.
"""

from __future__ import annotations

import ast
import hashlib
import os
import stat
import threading
import time
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from engine.contract.catalogue import Measure
from engine.contract.weights import Weights, WeightsDisk, WeightsFile, find_weights
from engine.runs.consent import has_consent
from engine.system.regular_files import read_regular

BASE = "CustomTask"
"""Name of the base class of custom tasks (`engine.tasks.custom.interface`)."""
MAX_BYTES = 1 << 20


def parse_metrics(content: bytes) -> tuple[Measure, ...]:
    """Return the metrics of the task class in a Python file, given its content.

    The file is not run. The result is empty if the metrics are not literals.
    """
    if len(content) > MAX_BYTES:
        return ()
    try:
        module = ast.parse(content)
        classes = [each for each in module.body if isinstance(each, ast.ClassDef)]
        tasks = [each for each in classes if any(map(_is_task_base, each.bases))]
        return tuple(_create_measure(call) for task in tasks for call in _list_metric_calls(task))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, msgspec.MsgspecError):
        return ()


def _is_task_base(base: ast.expr) -> bool:
    """Return True if `base`, a base class in a class definition, is named `BASE`, with or without its module."""
    return BASE in (getattr(base, "id", ""), getattr(base, "attr", ""))


def _list_metric_calls(task: ast.ClassDef) -> list[ast.expr]:
    """Return the items of the list or tuple that a class assigns to `metrics`, or [] if it assigns nothing.

    The assignment may have a type annotation. Raises TypeError for another value.
    """
    for statement in task.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "metrics" for target in targets):
            value = getattr(statement, "value", None)
            if not isinstance(value, ast.Tuple | ast.List):
                raise TypeError
            return value.elts
    return []


def _create_measure(call: ast.expr) -> Measure:
    """Return the metric that `call`, an expression with literal arguments in a user's file, would create.

    Raises ValueError or TypeError for other calls.
    """
    if not isinstance(call, ast.Call):
        raise TypeError
    # The call may pass further fields by keyword, and leave out fields with a default.
    positional = dict(zip(Measure.__struct_fields__, map(ast.literal_eval, call.args), strict=False))
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return msgspec.convert(positional | named, Measure)


ANSWER_S = 2.0
"""Maximum time in seconds to wait for a server."""
REMEMBERED_S = 30.0
"""Seconds for which a server's answer is cached, since a job is checked several times in short succession."""

MODEL_FILE_BYTES = 16 << 20
"""Maximum size in bytes of a user's Python file. Larger files are not read."""

Kind = Literal["", "file", "folder", "other"]
"""Kind of the file at a path. It is "" if the file does not exist or can't be accessed."""


@dataclass(frozen=True)
class ModelFile:
    """Present state of a Python file.

    Attributes:
        sha256: Hash of the content, to which the user's consent to run it applies, or None if the file can't be read.
        measures: Metrics that the file defines.
        agreed: True if the user has allowed this content to run.
    """

    sha256: str | None
    measures: tuple[Measure, ...] = ()
    agreed: bool = False


class Disk(WeightsDisk, Protocol):
    """Interface for facts about files and servers that checks need.

    A fact that is unknown is None, and no check reports a problem then.
    """

    def kind(self, path: str) -> Kind | None:
        """Return the kind of the file at `path`, or None if it is unknown. See `Kind` for the values."""

    def model_file(self, path: str) -> ModelFile | None:
        """Return the hash and the metrics of the Python file at `path`, or None until it is read."""


class RealDisk:
    """Source of facts that reads the disk and contacts servers. Both may block."""

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(os.path.expanduser(path)).st_mode
        except (OSError, ValueError):  # ValueError for invalid characters in the user's input
            return ""
        if stat.S_ISDIR(mode):
            return "folder"
        return "file" if stat.S_ISREG(mode) else "other"

    def model_file(self, path: str) -> ModelFile:
        """Read and hash the file at `path`, which may block. See `ModelFile` for the result."""
        try:
            content = read_regular(os.path.expanduser(path), MODEL_FILE_BYTES)
        except (OSError, ValueError):
            return ModelFile(None)
        sha256 = hashlib.sha256(content).hexdigest()
        return ModelFile(sha256, parse_metrics(content), has_consent(path, sha256))

    def weights(self, weights: Weights) -> WeightsFile:
        return find_weights(weights)

    def can_reach(self, host: str) -> bool | None:
        """Return True if the server with the URL `host` answers within `ANSWER_S`, for which this may block."""
        return _get_or_start_probe(host).wait()


class BackgroundDisk(RealDisk):
    """Source of facts that contacts servers in the background. Until a server answers, facts about it are unknown."""

    def can_reach(self, host: str) -> bool | None:
        """Return True if the server with the URL `host` answers, False if it can't be reached, or None while unknown.

        The first call starts a request in the background.
        """
        return _get_or_start_probe(host).answer


class _ServerProbe:
    """Request to a server, made in a thread, with a result after at most `ANSWER_S`.

    A thread is needed because name servers and proxies may block longer than the timeout of the connection.
    """

    def __init__(self, host: str) -> None:
        """Start the thread that contacts the server `host`."""
        self.started_at = time.monotonic()
        self._answers: list[bool] = []  # only the first one counts; it is False if the server answers too late
        self._thread = threading.Thread(target=self._record_answer, args=(host,), name="probe", daemon=True)
        self._thread.start()

    def _record_answer(self, host: str) -> None:
        """Contact the server, and record if it has answered."""
        self._answers.append(_server_answers(host))

    @property
    def answer(self) -> bool | None:
        """True if the server has answered, False if it can't be reached, or None while that is unknown."""
        return self._answers[0] if self._answers else None

    def wait(self) -> bool:
        """Wait for the answer, and return it. Returns False if there is none within `ANSWER_S`."""
        self._thread.join(max(0.0, self.started_at + ANSWER_S - time.monotonic()))
        if not self._answers:
            self._answers.append(False)
        return self._answers[0]


_probes: dict[str, _ServerProbe] = {}
_probes_lock = threading.Lock()


def _get_or_start_probe(host: str) -> _ServerProbe:
    """Return the latest request to the server with the URL `host`, or start one if there is none or it is too old."""
    with _probes_lock:
        probe = _probes.get(host)
        if probe is None or time.monotonic() - probe.started_at > REMEMBERED_S:
            probe = _probes[host] = _ServerProbe(host)
        return probe


def _server_answers(host: str) -> bool:
    """Return True if the server with the URL `host` responds, through the user's proxy if there is one."""
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
    """Return the SHA-256 of a model file, or None if it can't be read.

    The user's consent to run the file is bound to this hash.
    """
    return RealDisk().model_file(path).sha256
