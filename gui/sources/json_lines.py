"""Child processes of the engine that print JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from PySide6.QtCore import QObject, QProcess, Signal

from engine.contract.messages import Done, Progress, Refused
from engine.contract.protocol import FrameError, Frames
from engine.system import paths
from gui.sources.background import await_exit
from gui.translation import tr

LINE_LIMIT_BYTES = 1 << 20
"""Default maximum length of a line. A longer one is invalid output."""
GOODBYE_S = 3.0
"""Maximum seconds to wait for a process that was asked to end."""


class Answer(NamedTuple):
    """Final message of a process: its result, or the reasons why it refused the request."""

    value: object
    refused: bool = False


def find_answer(message: object) -> Answer | None:
    """Return the answer in a message of the process, or None for a progress message."""
    match message:
        case Done(answer=value):
            return Answer(value)
        case Refused(problems=problems):
            return Answer(problems, refused=True)
    return None


class JsonLinesProcess(QObject):
    """Child process ``python -m MODULE``, whose output lines are decoded.

    One process runs at a time. Subclasses call `run` to start it. The last answer is reported after the process has
    exited.

    Signals:
        progress(object): a decoded message that isn't an answer.
        done(object): the result.
        refused(object): the reasons why the process refused to work, as Problems if it is a `RequestProcess`.
        failed(str): a sentence about a process that exited without an answer.
    """

    progress = Signal(object)
    done = Signal(object)
    refused = Signal(object)
    failed = Signal(str)

    def __init__(
        self,
        module: str,
        activity: str,
        decode: Callable[[bytes], Any],
        parent: QObject | None = None,
        *,
        answer_of: Callable[[Any], Answer | None] = find_answer,
        cleans_up: bool = False,
        line_limit_bytes: int = LINE_LIMIT_BYTES,
    ) -> None:
        """Prepare the process without starting it.

        Args:
            module: Name of the module to run.
            activity: Start of sentences about failures, such as "Inspecting the folder".
            decode: Decodes one line. May raise msgspec.DecodeError.
            parent: Owner of the object.
            answer_of: Returns the answer in a message, or None for a progress message.
            cleans_up: Cancel with SIGTERM, because the module must end its workers and remove its files.
            line_limit_bytes: Maximum length of a line.
        """
        super().__init__(parent)
        self._module = module
        self._activity = activity
        self._decode = decode
        self._answer_of = answer_of
        self._cleans_up = cleans_up
        self._limit = line_limit_bytes
        self._process: QProcess | None = None
        self._cancelled: list[QProcess] = []  # earlier processes that have not exited yet
        self._frames = Frames(line_limit_bytes)
        self._answer: Answer | None = None  # answer of the current process

    @property
    def running(self) -> bool:
        return self._process is not None

    def run(self, arguments: Sequence[str] = (), stdin: bytes = b"", first: object = None) -> None:
        """Cancel a running process, start the module with the input `stdin`, and emit `first` as progress if given."""
        self.cancel()
        self._frames, self._answer = Frames(self._limit), None
        process = QProcess(self)
        process.setWorkingDirectory(str(paths.PACKAGES))
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)
        self._process = process
        process.start(*self.command(list(arguments)))
        if stdin:
            process.write(stdin)
        process.closeWriteChannel()
        if first is not None:
            self.progress.emit(first)

    def stop(self) -> None:
        """Ask a process that `cleans_up` to answer now with its results up to this point. Other processes are killed."""
        if self._process is not None:
            self._end(self._process)

    def cancel(self) -> None:
        """End the process without emitting its answer or an error."""
        process, self._process = self._process, None
        if process is None:
            return
        process.readyReadStandardOutput.disconnect(self._read)
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        self._cancelled.append(process)
        process.finished.connect(self._remove_exited)
        self._end(process)

    def close(self) -> None:
        """End the process and wait until all cancelled ones have exited."""
        self.cancel()
        for process in list(self._cancelled):  # an exiting process removes itself from the list
            await_exit(process, GOODBYE_S)

    def command(self, arguments: list[str]) -> tuple[str, list[str]]:
        """Return the program to start, and its arguments."""
        return sys.executable, ["-m", self._module, *arguments]

    def on_exit(self, code: int) -> Answer | None:
        """Handle the exit of the process with the exit code `code`.

        Return the answer to report, or None if the process failed.
        """
        return self._answer

    def _end(self, process: QProcess) -> None:
        """Terminate a process that cleans up, or kill it."""
        if self._cleans_up and sys.platform != "win32":
            process.terminate()
        else:
            process.kill()

    def _remove_exited(self) -> None:
        """Delete the cancelled processes that have exited."""
        for process in list(self._cancelled):
            if process.state() == QProcess.ProcessState.NotRunning:
                self._cancelled.remove(process)
                process.deleteLater()

    def _read(self) -> None:
        """Emit progress messages and store the final answer. Invalid output ends the process and is a failure."""
        process = self._process
        if process is None:
            return
        try:
            for line in self._frames.feed(bytes(process.readAllStandardOutput().data())):
                if self._process is not process:  # a receiver of `progress` has cancelled it
                    return
                message = self._decode(line)
                answer = self._answer_of(message)
                if answer is None:
                    self.progress.emit(message)
                else:
                    self._answer = answer
        except (FrameError, msgspec.DecodeError) as error:
            self.cancel()
            self.failed.emit(
                tr("{activity} returned invalid output: {error}.").format(activity=self._activity, error=error)
            )

    def _on_error(self, error: QProcess.ProcessError) -> None:
        """Emit `failed` if the process couldn't be started. A crash is handled by `_on_finished`."""
        if error == QProcess.ProcessError.FailedToStart:
            self.cancel()
            self.failed.emit(
                tr("{activity} could not start: {executable} failed to run.").format(
                    activity=self._activity, executable=sys.executable
                )
            )

    def _on_finished(self, code: int) -> None:
        """Emit the answer of an exited process or, if it gave none, its last error line."""
        process = self._process
        self._read()
        if process is None or self._process is not process:  # the output was invalid, or a receiver has cancelled it
            return
        self._process = None
        errors = bytes(process.readAllStandardError().data()).decode(errors="replace").strip()
        process.deleteLater()
        answer = self.on_exit(code)
        if answer is None:
            last = errors.splitlines()[-1] if errors else tr("exit code {code}").format(code=code)
            self.failed.emit(tr("{activity} ended early: {reason}").format(activity=self._activity, reason=last))
        else:
            (self.refused if answer.refused else self.done).emit(answer.value)


class RequestProcess(JsonLinesProcess):
    """Child process that executes one request (such as an `EvaluateRequest`) at a time, and sends `Progress`."""

    request: Any = None
    """Last request, or None before the first one."""

    def start(self, request: Any) -> None:
        """Execute `request`, after canceling a previous one."""
        self.request = request
        self.run(stdin=msgspec.json.encode(request), first=Progress(fraction=0.0, what=tr("Starting")))
