"""The pretrained weights that a run starts from: they are fetched before it takes its place in line, by a process of
their own.
"""

from __future__ import annotations

import selectors
from urllib.parse import urlparse

import msgspec

from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.events import EVENT, Failed, Fetching, PhaseChanged
from engine.contract.job import Job
from engine.contract.weights import Weights, find
from engine.processes.line_child import LineChild
from engine.runs.folder import RunFolder
from engine.runs.resume import checkpoint_of
from engine.system.format import exit_words


class WeightsFetch:
    """Has the weights of `job` fetched, or looked at where they are on this machine already.

    It is `done` once the workers find them, which it is from the beginning where the run needs none; `fault` says why
    it cannot start, "" where it can. `news` holds what is to be told, for the caller to take. `close` ends it at
    once.
    """

    def __init__(self, run: RunFolder, job: Job, selector: selectors.BaseSelector) -> None:
        self.fault = ""
        self.news: list[PhaseChanged | Fetching] = []
        self._selector = selector
        self._child: LineChild | None = None
        goes_on = job.resume_from or checkpoint_of(run)
        wanted = job.pretrained and not job.weights_file and not goes_on
        weights = weights_of(job, load_catalogue()) if wanted else None
        self.done = weights is None  # where none are known, the worker says so
        if weights is not None:
            self._start(weights)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()  # within which it removes what it has fetched in part
            self._child = None

    def _start(self, weights: Weights) -> None:
        self._fetches = not find(weights).path
        if self._fetches:
            name = weights.repository or weights.files[0]
            detail = f"the pretrained weights {name} from {urlparse(weights.host).netloc}"
            self.news.append(PhaseChanged(phase="fetching", detail=detail))
        arguments = ("engine.models.fetch", msgspec.json.encode(weights).decode())
        self._child = LineChild(self._selector, arguments, self._take, self._ended)

    def _take(self, line: bytes) -> None:
        event = EVENT.decode(line)
        if isinstance(event, Failed):
            self.fault = event.cause
        elif isinstance(event, Fetching):
            self.news.append(event)

    def _ended(self, why: str) -> None:
        assert self._child is not None
        if why and not self.fault:
            self.fault = f"The process that downloads the pretrained weights sent an invalid message: {why}."
        code = self._child.process.wait()
        if code and not self.fault:
            self.fault = f"The process that downloads the pretrained weights {exit_words(code)}. See supervisor.log."
        self.done = not self.fault
        if self.done and self._fetches:
            self.news.append(PhaseChanged(phase="starting"))
        self.close()
