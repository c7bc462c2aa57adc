"""Banner that moves folders to the trash, with an Undo button."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Signal

from gui.sources.background import Background, describe_error, in_background
from gui.sources.trash import CannotTrash, Trashed, put_back
from gui.translation import tr
from gui.widgets.banner import QuestionBar

_Outcome = tuple[list[Any], list[str]]
"""Results of the successful moves, and error messages of the failed ones."""


class TrashBar(QuestionBar):
    """Banner that shows which items are being moved to the trash, and then an Undo button.

    Signals:
        changed(): folders have been moved to the trash or back.
    """

    changed = Signal()

    def __init__(self, name: str) -> None:
        """Create a bar with an accessible name."""
        super().__init__(name)
        self._trashed: list[Trashed] = []  # items that were moved last and can be put back
        self._title = ""  # their description, as in "2 runs"
        self._call: Background | None = None  # call that is in progress
        self.yes.clicked.connect(self.accept)
        self.no.clicked.connect(self.dismiss)

    @property
    def is_busy(self) -> bool:
        return self._call is not None

    @property
    def can_undo(self) -> bool:
        return bool(self._trashed)

    def start(self, title: str, trash: Callable[[Any], Trashed], items: Sequence[Any]) -> None:
        """Call `trash` for each of `items` on a worker thread, unless another call is in progress.

        `title` describes the items, as in "2 runs".
        """
        if self.is_busy:
            return
        self.show_note(tr("Moving {title} to the trash…").format(title=title))
        self.no.setFocus()
        self.call_in_background(partial(_call_for_each, trash, items), partial(self._on_moved, title, len(items)))

    def undo(self) -> None:
        """Move back the items that were moved last, even if the bar has been closed."""
        if not self.is_busy and self._trashed:
            self.show_note(tr("Putting back…"))
            self.call_in_background(partial(_call_for_each, put_back, self._trashed), self._on_restored)

    def accept(self) -> None:
        """Do what the left button offers, which is to undo the last move. Subclasses may offer other actions."""
        self.undo()

    def dismiss(self) -> None:
        """Close the bar, and emit `closed`."""
        self.hide()
        self.closed.emit()

    def close_work(self) -> None:
        """Wait for the running move when the window closes."""
        if self._call is not None:
            self._call.finish()

    def call_in_background(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call `function`, which moves items to or from the trash, on a worker thread, then `done` with its result.

        Until it ends, no other move can start. If it fails, the bar shows the error, which is raised again in the event
        loop.
        """

        def on_done(result: Any) -> None:
            self._call = None
            done(result)

        def on_failed(error: Exception) -> None:
            self._call = None
            self.show_note(tr("Couldn't finish: {error}").format(error=describe_error(error)), "warning")
            raise error

        self._call = in_background(function, self, on_done, on_failed)

    def _on_moved(self, title: str, requested: int, outcome: _Outcome) -> None:
        """Report how many of the `requested` folders were moved to the trash, and offer to undo it."""
        moved, problems = outcome
        is_complete = len(moved) == requested
        if not moved:
            self._report(problems, "", is_complete=is_complete)
            return
        self._trashed, self._title = (
            moved,
            title if is_complete else tr("{count} of {title}").format(count=len(moved), title=title),
        )
        trash = tr("the desktop's trash") if moved[0].desktop else str(moved[0].location.parent)
        text = tr("Moved {title} to {trash}. Emptying it frees the disk space.").format(title=self._title, trash=trash)
        self._report([text, *problems], tr("Undo"), is_complete=is_complete)

    def _on_restored(self, outcome: _Outcome) -> None:
        """Report which items were put back. Undo is no longer possible."""
        self._trashed = []
        restored, problems = outcome
        messages = [tr("Put {title} back.").format(title=self._title), *problems] if restored else problems
        self._report(messages, "", is_complete=not problems)

    def _report(self, messages: list[str], button: str, *, is_complete: bool) -> None:
        """Show the messages about a move, and emit `changed`.

        `button` is the text of the left button, or "" to hide it. `is_complete` is True if all items were moved.
        """
        self.show_message(" ".join(messages), "ok" if is_complete else "warning", button, tr("Close"))
        self.changed.emit()


def _call_for_each(function: Callable[[Any], Any], items: Sequence[Any]) -> _Outcome:
    """Call `function` for each item. Return the results, and the messages of the calls that raised CannotTrash."""
    results, problems = [], []
    for item in items:
        try:
            results.append(function(item))
        except CannotTrash as problem:
            problems.append(str(problem))
    return results, problems
