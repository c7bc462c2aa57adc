"""The disk and the network as the form last saw them: what its checks ask is answered at once, and looked at on
threads.

A disk may take for ever, as that of a network that is gone does; the window must not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from PySide6.QtCore import QObject, QTimer, Signal

from engine.checks.disk import Kind, ModelFile, RealDisk
from engine.contract.weights import OnDisk, Weights, cached_path
from gui.sources.background import Background

if TYPE_CHECKING:
    from engine.runs.folder import RunFolder
    from engine.runs.resume import Standing

GRACE_S = 0.02
"""A disk that answers, does so sooner; then all of a change can be shown at once."""
_SLOW_S = 0.2
"""A look that takes longer has met a disk that may never answer."""
_TYPING_MS = 250
"""After such a look others wait until nothing has been asked for so long, so that not every letter of a path takes a
thread."""

_NETWORK = "host"
"""The questions that are not about the disk, and wait for a server's answer as a matter of course."""

_Question = tuple[str, Hashable]


class _Look(NamedTuple):
    work: Background
    number: int
    begun: float


class CachedDisk(QObject):
    """Whoever asks begins with `begin` and ends with `look`; in between, None is the answer to what is not known yet.

    Signals: changed() - something that was asked for is known now, or is otherwise than it was.
    """

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._disk = RealDisk()
        self._asked: dict[_Question, Callable[[], Any]] = {}
        self._answers: dict[_Question, Any] = {}
        self._looks: dict[_Question, _Look] = {}
        self._again: set[_Question] = set()
        self._count = 0
        self._later = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._later.timeout.connect(self._look_at_all)

    @property
    def unanswered(self) -> list[str]:
        """The paths that were asked about and are not known yet; no run waits for what the network says."""
        asked = (question for question in self._asked if question not in self._answers)
        return [_in_words(question) for question in asked if question[0] != _NETWORK]

    def kind(self, path: str) -> Kind | None:
        return cast("Kind | None", self._ask(("kind", path), lambda: self._disk.kind(path)))

    def model_file(self, path: str) -> ModelFile | None:
        return cast("ModelFile | None", self._ask(("model file", path), lambda: self._disk.model_file(path)))

    def weights(self, weights: Weights) -> OnDisk | None:
        return cast("OnDisk | None", self._ask(("weights", weights), lambda: self._disk.weights(weights)))

    def reaches(self, host: str) -> bool | None:
        return cast("bool | None", self._ask((_NETWORK, host), lambda: self._disk.reaches(host)))

    def standing(self, run: RunFolder) -> Standing | None:
        """How a run stands."""
        from engine.runs.resume import standing

        return cast("Standing | None", self._ask(("run", str(run.path)), lambda: standing(run)))

    def begin(self, *, afresh: bool = False) -> None:
        """Start a round of questions, and forget what the disk has answered to others, or with `afresh` to all.

        The network's answers stay until there are newer ones, since no run waits for those.
        """
        if afresh:
            for question in [question for question in self._looks if question[0] != _NETWORK]:
                del self._looks[question]
            self._again.clear()
        self._answers = {
            question: answer
            for question, answer in self._answers.items()
            if question[0] == _NETWORK or (question in self._asked and not afresh)
        }
        self._asked = {}

    def look(self) -> bool:
        """Looks at all that was asked for since `begin`, and waits a moment for what is not known. Whether more is
        known then than before.
        """
        now = time.monotonic()
        disk = (look for question, look in self._looks.items() if question[0] != _NETWORK)
        if any(look.work.running and now - look.begun > _SLOW_S for look in disk):
            self._later.start()
            return False
        self._look_at_all()
        unknown = [question for question in self._asked if question not in self._answers]
        until = now + GRACE_S
        for question in unknown:
            if question in self._looks:  # `changed` may have had others look meanwhile
                self._looks[question].work.finish(max(0.0, until - time.monotonic()))
        return any(question in self._answers for question in unknown)

    def _ask(self, question: _Question, look: Callable[[], Any]) -> Any:
        self._asked[question] = look
        return self._answers.get(question)

    def _look_at_all(self) -> None:
        for question in self._asked:
            if question not in self._looks:
                self._look_at(question)
            elif question[0] != _NETWORK:  # the look under way may have begun before what is to be seen
                self._again.add(question)

    def _look_at(self, question: _Question) -> None:
        self._count += 1
        work = Background(partial(_looked, question, self._count, self._asked[question]), self)
        self._looks[question] = _Look(work, self._count, time.monotonic())
        work.done.connect(self._answered)
        work.start()

    def _answered(self, found: tuple[_Question, int, Any]) -> None:
        question, number, answer = found
        look = self._looks.get(question)
        if look is None or look.number != number:
            return  # a fresher one has been asked for since
        del self._looks[question]
        if question in self._again:
            self._again.remove(question)
            if question in self._asked:
                self._look_at(question)
        if isinstance(answer, Exception):
            raise answer
        known = self._answers.get(question)
        self._answers[question] = answer
        if answer != known:
            self.changed.emit()


def _in_words(question: _Question) -> str:
    about = question[1]
    return str(cached_path(about) if isinstance(about, Weights) else about)


def _looked(question: _Question, number: int, look: Callable[[], Any]) -> tuple[_Question, int, Any]:
    try:
        return question, number, look()
    except Exception as error:  # to be raised on the window's thread
        return question, number, error
