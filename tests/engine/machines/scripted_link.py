"""Connection to a machine whose messages a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from selectors import BaseSelector

from engine.contract.nodes import FromNode, ToNode


class ScriptedLink:
    """Replacement for `NodeLink`. A test calls `receive` with the machine's messages, and `end` to end the connection.

    Attributes:
        sent: Messages to the machine.
        calls: Names of the methods that have been called to end the connection, with the time limit of `finish`.
        silence: Reason that `silence_reason` returns.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        selector: BaseSelector,
        on_message: Callable[[FromNode], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.command, self.log = list(command), log
        self._on_message, self._on_end = on_message, on_end
        self.sent: list[ToNode] = []
        self.calls: list[str] = []
        self.silence = ""
        self.silent_s = 0.0
        self.status = (255, "")
        self.has_answered = self.has_ended = False

    def receive(self, *messages: FromNode) -> None:
        self.has_answered = True
        for message in messages:
            self._on_message(message)

    def end(self, reason: str = "") -> None:
        self.has_ended = True
        self._on_end(reason)

    def silence_reason(self, title: str) -> str:
        return self.silence and f"{title} {self.silence}"

    def exit_status(self) -> tuple[int, str]:
        return self.status

    def send(self, message: ToNode) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.calls.append("close")

    def kill(self) -> None:
        self.has_ended = True
        self.calls.append("kill")

    def finish(self, timeout_s: float) -> None:
        self.has_ended = True
        self.calls.append(f"finish {timeout_s:g}")
