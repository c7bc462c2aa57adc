"""The pretrained weights that a run starts from: they are fetched before it takes its place in line, by a process of their
own."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.events import EVENT, Failed, Fetching, PhaseChanged
from engine.contract.going_on import checkpoint_of
from engine.contract.job import Job
from engine.contract.protocol import FrameError, Frames
from engine.contract.runs import RunFolder
from engine.contract.weights import Weights, find, weights_of
from engine.supervisor.sampling import carry_over

STOP_S = 2.0
"""How long the process may take to remove what it has fetched in part."""
_PACKAGES = Path(__file__).resolve().parents[2]
_CHUNK = 1 << 16


class WeightsFetch:
    """Has the weights of `job` fetched, or looked at where they are on this machine already.

    It is `done` once the workers find them, which it is from the beginning where the run needs none; `fault` says why it
    cannot start, "" where it can. `news` holds what is to be told, for the caller to take. `close` ends it at once.
    """

    def __init__(self, run: RunFolder, job: Job, selector: selectors.BaseSelector) -> None:
        self.fault = ""
        self.news: list[PhaseChanged | Fetching] = []
        self._selector = selector
        self._frames = Frames()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: socket.socket | None = None
        goes_on = job.resume_from or checkpoint_of(run)
        wanted = job.pretrained and not job.weights_file and not goes_on
        weights = weights_of(job, load_catalogue()) if wanted else None
        self.done = weights is None  # where none are known, the worker says so
        if weights is not None:
            self._start(weights)

    def close(self) -> None:
        if self._output is not None:
            self._selector.unregister(self._output)
            self._output.close()
            self._output = None
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _start(self, weights: Weights) -> None:
        self._fetches = not find(weights).path
        if self._fetches:
            name = weights.repository or weights.files[0]
            detail = f"the pretrained weights {name} from {urlparse(weights.host).netloc}"
            self.news.append(PhaseChanged(phase="fetching", detail=detail))
        command = [sys.executable, "-m", "engine.models.fetch", msgspec.json.encode(weights).decode()]
        self._output, theirs = socket.socketpair()
        windows = sys.platform == "win32"
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if windows else theirs.fileno(),
                cwd=_PACKAGES,
            )
            if self._process.stdout is not None:
                carry_over(self._process.stdout, theirs.dup())
        self._output.setblocking(False)
        self._selector.register(self._output, selectors.EVENT_READ, self._hear)

    def _hear(self, _mask: int) -> None:
        assert self._output is not None
        try:
            data = self._output.recv(_CHUNK)
            for line in self._frames.feed(data):
                self._take(EVENT.decode(line))
        except BlockingIOError:
            return
        except (OSError, FrameError, msgspec.DecodeError) as error:
            self.fault = self.fault or f"What fetches the pretrained weights cannot be understood: {error}."
            data = b""
        if not data:
            self._ended()

    def _take(self, event: object) -> None:
        if isinstance(event, Failed):
            self.fault = event.cause
        elif isinstance(event, Fetching):
            self.news.append(event)

    def _ended(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        if code and not self.fault:
            self.fault = f"The process that fetches the pretrained weights ended with {code}; see supervisor.log."
        self.done = not self.fault
        if self.done and self._fetches:
            self.news.append(PhaseChanged(phase="starting"))
        self.close()
