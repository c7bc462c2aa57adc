"""Runs of other machines: which there are, one that is followed, and files of it."""

from __future__ import annotations

import subprocess
import sys
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject, QProcess, Signal

from engine.contract.hosts import Host, host
from engine.contract.nodes import FetchProgress, Followed, RunFile
from engine.runs.folder import RunFolder, RunSummary
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.ssh import english_environment, ssh_command, ssh_exit_reason
from gui.sources.json_lines import Answer, JsonLinesProcess

_ANSWER_S = 60.0
_GOODBYE_MS = 3000
_Line = TypeVar("_Line")


class NotTold(OSError):  # noqa: N818  (a state of things more than an error)
    """A machine has not told what it was asked; the text says why, in words for the user."""


def runs_of(name: str) -> list[RunSummary]:
    """The runs of a host, newest first. To be called away from the window's thread. Raises NotTold."""
    return _asked(name, RunSummary, "runs", "--json")


def files_of(name: str, run_id: str) -> list[RunFile]:
    """What can be fetched of a run. To be called away from the window's thread. Raises NotTold."""
    return _asked(name, RunFile, "node", "--files", run_id)


def _asked(name: str, kind: type[_Line], *words: str) -> list[_Line]:
    where = host(name) or Host(name=name)
    try:
        done = subprocess.run(
            ssh_command(where.reached_by, where.command(*words)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_ANSWER_S,
            env=english_environment(),
        )
        if done.returncode:
            raise NotTold(ssh_exit_reason(name, done.returncode, done.stderr.decode(errors="replace")))
        return [msgspec.json.decode(line, type=kind) for line in done.stdout.splitlines()]
    except subprocess.TimeoutExpired:
        raise NotTold(f"{name} has not answered within {_ANSWER_S:.0f} s.") from None
    except NOT_DECODED:
        raise NotTold(f"{name} sent output that this window can't read. Update Footplate there, or here.") from None
    except FileNotFoundError:
        raise NotTold("ssh was not found on this machine.") from None


class FollowedRun(QObject):
    """Owns the process that follows a run of another machine for this window; one at a time.

    Signals: followed(RunFolder) - what the run says is in this folder from now on; failed(str) - why it can't be
    followed.
    """

    followed = Signal(object)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.run: RunFolder | None = None
        self._problem = ""
        self._process: QProcess | None = None

    def follow(self, name: str, run_id: str) -> None:
        """Begins to follow a run of the host of that name; the answer comes as a signal."""
        self.close()
        process = QProcess(self)
        process.setWorkingDirectory(str(paths.PACKAGES))
        process.setStandardErrorFile(QProcess.nullDevice())
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._ended)
        self._problem = f"{name}: {run_id} can't be followed."
        self._process = process
        process.start(sys.executable, ["-m", "engine.machines.follower", name, run_id])

    def close(self) -> None:
        """Follows no longer, and returns once the process is gone. The run goes on."""
        process, self._process, self.run = self._process, None, None
        if process is not None:
            process.closeWriteChannel()  # which ends it
            if not process.waitForFinished(_GOODBYE_MS):
                process.kill()
                process.waitForFinished(_GOODBYE_MS)
            process.deleteLater()

    def _read(self) -> None:
        if self._process is None or not self._process.canReadLine():
            return
        try:
            said = msgspec.json.decode(bytes(self._process.readLine().data()), type=Followed)
        except NOT_DECODED:
            return
        self._problem = said.problem
        if not said.problem:
            self.run = RunFolder(said.folder)
            self.followed.emit(self.run)

    def _ended(self) -> None:
        """By itself, after it has said why."""
        process, self._process = self._process, None
        if process is not None:
            process.deleteLater()
            self.failed.emit(self._problem or "Following the run has ended unexpectedly. Open it again.")


class FileFetch(JsonLinesProcess):
    """Transfer of one file of a run from another machine at a time.

    Its progress is a FetchProgress, its result the local path, and its refusal an error message.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        decode = msgspec.json.Decoder(FetchProgress).decode
        super().__init__("engine.machines.fetch", "Fetching the file", decode, _answer_in, parent)

    def start(self, name: str, run_id: str, path: str) -> None:
        """Transfer the missing bytes of the file at `path` in the run's folder."""
        self.run([name, run_id, path])


def _answer_in(message: FetchProgress) -> Answer | None:
    if message.path:
        return Answer(message.path)
    return Answer(message.problem, refused=True) if message.problem else None
