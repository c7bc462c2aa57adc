"""Real window in a separate process, offscreen: ``python -m tests.faults.window [train]``.

With "train", it presses Train as soon as possible and starts a run on the CPU. It prints a line whenever the user sees
something new: "opened RUN_ID" or "status TEXT".
"""

from __future__ import annotations

import sys

from PySide6.QtCore import QTimer

from gui import app, main_window
from gui.main_window import MainWindow

TICK_MS = 20


class WindowObserver:
    """Observer that prints the run and the status that the window shows, whenever they change.

    If `train`, it starts a training as soon as that is possible.
    """

    def __init__(self, window: MainWindow, *, train: bool) -> None:
        self._window = window
        self._train = train
        self._printed: set[str] = set()
        self._clock = QTimer(window)
        self._clock.timeout.connect(self._poll)
        self._clock.start(TICK_MS)

    def _poll(self) -> None:
        workspace = self._window.workspace
        assert workspace is not None
        if self._train and self._window.form.train.isEnabled():
            self._train = False
            self._window.form.train.click()
        if workspace.session.run is not None:
            self._print(f"opened {workspace.session.run.run_id}")
            self._print(f"status {self._window.status.status.text()}")

    def _print(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            print(text, flush=True)


def main() -> int:
    add_pages = MainWindow.add_pages

    def add_pages_and_report(window: MainWindow) -> None:
        first = window.workspace is None
        add_pages(window)
        if first:
            window.onlooker = WindowObserver(window, train="train" in sys.argv)  # type: ignore[attr-defined]

    main_window.MainWindow.add_pages = add_pages_and_report  # type: ignore[assignment, method-assign]
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
