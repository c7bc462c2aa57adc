"""Cached answers from the disk and the network, which are queried on worker threads.

A network disk may never answer, but the window must not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from PySide6.QtCore import QObject, QTimer, Signal

from engine.checks.disk import Kind, ModelFile, RealDisk
from engine.contract.weights import Weights, WeightsFile, cached_path
from gui.sources.background import Background

if TYPE_CHECKING:
    from engine.runs.folder import RunFolder
    from engine.runs.resume import ResumableRun

GRACE_S = 0.02
"""Seconds to wait for answers, so that a change and its problems usually appear at the same time."""
_SLOW_S = 0.2
"""Seconds without an answer after which a disk counts as slow. It may never answer."""
_TYPING_MS = 250
"""Milliseconds without typing until a slow disk is queried again. Each letter would otherwise need a thread."""

_NETWORK = "host"
"""Kind of the queries that a server answers. The start of a run doesn't wait for them."""


class _Question(NamedTuple):
    """Question about the disk or a server: its kind, and its subject, such as a path."""

    kind: str
    subject: Hashable

    @property
    def is_for_server(self) -> bool:
        return self.kind == _NETWORK

    @property
    def subject_text(self) -> str:
        """Path or host that the question is about."""
        return str(cached_path(self.subject) if isinstance(self.subject, Weights) else self.subject)


class _Query(NamedTuple):
    """Running query on a worker thread, its number, and its start in seconds of the monotonic clock."""

    work: Background
    number: int
    started: float


class CachedDisk(QObject):
    """Cache of facts about the disk and servers, which are None until they have been read.

    A question identifies a fact: its kind, and the path, weights or host that it is about. A pass is one validation of
    the form: it starts with `start_pass`, and each getter that is called adds its question to the pass. `refresh` then
    starts a query for each question on a worker thread. The next pass deletes the answers to questions that the last
    one didn't contain.

    Signals:
        changed(): an answer has arrived or changed.
    """

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._disk = RealDisk()
        self._questions: dict[_Question, Callable[[], Any]] = {}  # questions since the last `start_pass`
        self._answers: dict[_Question, Any] = {}
        self._queries: dict[_Question, _Query] = {}  # by question, until they are answered
        self._retry: set[_Question] = set()  # questions to repeat once their query has returned
        self._query_count = 0  # numbers the queries
        self._timer = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._timer.timeout.connect(self._start_queries)

    @property
    def unanswered(self) -> list[str]:
        """Paths whose facts are unknown, because a disk hasn't responded yet.

        Servers are left out, because the start of a run doesn't wait for the network.
        """
        unanswered = (question for question in self._questions if question not in self._answers)
        return [question.subject_text for question in unanswered if not question.is_for_server]

    def kind(self, path: str) -> Kind | None:
        """Return what is at `path`, such as a folder, or None until `refresh` has read it."""
        return cast("Kind | None", self._ask(_Question("kind", path), lambda: self._disk.kind(path)))

    def model_file(self, path: str) -> ModelFile | None:
        """Return the facts about the model file at `path`, or None until `refresh` has read them."""
        return cast("ModelFile | None", self._ask(_Question("model file", path), lambda: self._disk.model_file(path)))

    def weights(self, weights: Weights) -> WeightsFile | None:
        """Return where pretrained weights are on the disk, or None until `refresh` has found out."""
        return cast("WeightsFile | None", self._ask(_Question("weights", weights), lambda: self._disk.weights(weights)))

    def can_reach(self, host: str) -> bool | None:
        """Return True if the server `host` can be reached, or None until `refresh` has found out."""
        return cast("bool | None", self._ask(_Question(_NETWORK, host), lambda: self._disk.can_reach(host)))

    def resumable_run(self, run: RunFolder) -> ResumableRun | None:
        """Return the state of a run that determines whether it can be resumed, or None until `refresh` has read it."""
        from engine.runs.resume import read_resumable

        return cast("ResumableRun | None", self._ask(_Question("run", str(run.path)), lambda: read_resumable(run)))

    def start_pass(self, *, forget: bool = False) -> None:
        """Start to collect questions for `refresh`.

        Deletes the answers to questions that the last pass didn't contain, or all answers if `forget` is True. Answers
        from the network remain until newer ones arrive.
        """
        if forget:
            # `_on_answer` ignores the answers to queries that are removed here.
            self._queries = {question: query for question, query in self._queries.items() if question.is_for_server}
            self._retry.clear()
        self._answers = {
            question: answer
            for question, answer in self._answers.items()
            if question.is_for_server or (question in self._questions and not forget)
        }
        self._questions = {}

    def refresh(self) -> bool:
        """Start queries for the questions of this pass, and wait for at most `GRACE_S` seconds.

        Return True if an answer to a new question has arrived. If a query of the disk has already been running for
        `_SLOW_S` seconds, don't wait, and start the queries after a pause of `_TYPING_MS` without further calls.
        """
        now = time.monotonic()
        disk_queries = (query for question, query in self._queries.items() if not question.is_for_server)
        # Don't block the window by waiting for a slow disk.
        if any(query.work.running and now - query.started > _SLOW_S for query in disk_queries):
            self._timer.start()
            return False
        self._start_queries()
        unknown = [question for question in self._questions if question not in self._answers]
        deadline = now + GRACE_S
        for question in unknown:
            if question in self._queries:  # receivers of `changed` may have started other queries
                self._queries[question].work.finish(max(0.0, deadline - time.monotonic()))
        return any(question in self._answers for question in unknown)

    def _ask(self, question: _Question, query: Callable[[], Any]) -> Any:
        """Add a question to the pass, and return its cached answer or None. `query` reads the answer."""
        self._questions[question] = query
        return self._answers.get(question)

    def _start_queries(self) -> None:
        """Start a query for each question of the pass. If a query is running, schedule another one after it."""
        for question in self._questions:
            if question not in self._queries:
                self._start_query(question)
            elif not question.is_for_server:  # the running query may have missed a later change
                self._retry.add(question)

    def _start_query(self, question: _Question) -> None:
        """Start the query for a question on a worker thread."""
        self._query_count += 1
        work = Background(partial(_run_query, question, self._query_count, self._questions[question]), self)
        self._queries[question] = _Query(work, self._query_count, time.monotonic())
        work.done.connect(self._on_answer)
        work.start()

    def _on_answer(self, result: tuple[_Question, int, Any]) -> None:
        """Cache the answer to a query. If its question was asked again in the meantime, repeat the query.

        Until the repeated query is answered, this answer is used. Answers to discarded queries are ignored. Emits
        `changed` for a new answer, or raises the exception if the query failed.
        """
        question, number, answer = result
        query = self._queries.get(question)
        if query is None or query.number != number:
            return  # the query was discarded, or replaced by a newer one
        del self._queries[question]
        if question in self._retry:
            self._retry.remove(question)
            if question in self._questions:  # the latest pass still contains it
                self._start_query(question)
        if isinstance(answer, Exception):
            raise answer
        previous = self._answers.get(question)
        self._answers[question] = answer
        if answer != previous:
            self.changed.emit()


def _run_query(question: _Question, number: int, query: Callable[[], Any]) -> tuple[_Question, int, Any]:
    """Call `query` on a worker thread. Return the question, the query's number, and the answer or the exception."""
    try:
        return question, number, query()
    except Exception as error:  # raised on the GUI thread
        return question, number, error
