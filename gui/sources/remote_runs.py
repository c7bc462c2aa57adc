"""Runs on other machines: their list, the followed run, and file transfers."""

from __future__ import annotations

import subprocess
import sys
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from engine.contract.hosts import Host, host
from engine.contract.nodes import FetchProgress, FollowResult, RunFile
from engine.runs.folder import RunFolder, RunSummary
from engine.system import paths
from engine.system.children import OutputTooLong, run_child
from engine.system.decode_errors import NOT_DECODED
from engine.system.ssh import create_english_environment, explain_ssh_exit, ssh_command
from gui.sources.background import await_exit
from gui.sources.json_lines import GOODBYE_S, Answer, JsonLinesProcess
from gui.translation import tr

_ANSWER_S = 60.0
"""Maximum seconds to wait for the answer of another machine."""
_Line = TypeVar("_Line")


class QueryFailed(OSError):  # noqa: N818  (a state of things more than an error)
    """Raised when querying another machine fails. The message is written for the user."""


def list_remote_runs(name: str) -> list[RunSummary]:
    """Return the runs on the host `name`, newest first. Blocks, so call it on a worker thread. Raises QueryFailed."""
    return _query(name, RunSummary, "runs", "--json")


def list_remote_files(name: str, run_id: str) -> list[RunFile]:
    """Return the transferable files of a run on the host `name`. Blocks, so call it on a worker thread. Raises QueryFailed."""
    return _query(name, RunFile, "node", "--files", run_id)


def _query(name: str, kind: type[_Line], *arguments: str) -> list[_Line]:
    """Run a Footplate command on the host `name` and decode each line of its output as a `kind`. Raises QueryFailed."""
    host_entry = host(name) or Host(name=name)
    try:
        command = ssh_command(host_entry.ssh_destination, host_entry.command(*arguments))
        result = run_child(command, timeout_s=_ANSWER_S, env=create_english_environment())
        if result.returncode:
            raise QueryFailed(explain_ssh_exit(name, result.returncode, result.stderr.decode(errors="replace")))
        return [msgspec.json.decode(line, type=kind) for line in result.stdout.splitlines()]
    except subprocess.TimeoutExpired:
        raise QueryFailed(
            tr("{name} has not answered within {seconds:.0f} s.").format(name=name, seconds=_ANSWER_S)
        ) from None
    except (OutputTooLong, *NOT_DECODED):
        raise QueryFailed(
            tr("{name} sent output that this window can't read. Update Footplate there, or here.").format(name=name)
        ) from None
    except FileNotFoundError:
        raise QueryFailed(tr("ssh was not found on this machine.")) from None


class RunFollower(QObject):
    """Child process that mirrors a run on another machine to a local folder, one run at a time.

    Signals:
        followed(RunFolder): this local folder contains the log of the run.
        failed(str): the reason why the run can't be followed.
    """

    followed = Signal(object)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.run: RunFolder | None = None
        self._problem = ""
        self._process: QProcess | None = None

    def follow(self, name: str, run_id: str) -> None:
        """Mirror the run `run_id` of the host `name`."""
        self.close(wait=False)
        process = QProcess(self)
        process.setWorkingDirectory(str(paths.PACKAGES))
        process.setStandardErrorFile(QProcess.nullDevice())
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._on_exit)
        self._problem = tr("{name}: {run_id} can't be followed.").format(name=name, run_id=run_id)
        self._process = process
        process.start(sys.executable, ["-m", "engine.machines.follower", name, run_id])

    def close(self, *, wait: bool = True) -> None:
        """Stop mirroring. The run itself continues.

        If `wait` is True, wait a few seconds until the process has exited. This is necessary when the program exits.
        """
        process, self._process, self.run = self._process, None, None
        if process is None:
            return
        process.readyReadStandardOutput.disconnect(self._read)
        process.finished.disconnect(self._on_exit)
        process.closeWriteChannel()  # ends the process
        if not wait:
            process.finished.connect(process.deleteLater)
            QTimer.singleShot(int(1000 * GOODBYE_S), process, process.kill)
            return
        await_exit(process, GOODBYE_S)
        process.deleteLater()

    def _read(self) -> None:
        """Emit the local folder of the run, or keep the reason for `failed`, which is emitted when the process exits."""
        if self._process is None or not self._process.canReadLine():  # the rest of the line has not arrived
            return
        try:
            answer = msgspec.json.decode(bytes(self._process.readLine().data()), type=FollowResult)
        except NOT_DECODED:
            return
        self._problem = answer.problem
        if not answer.problem:
            self.run = RunFolder(answer.folder)
            self.followed.emit(self.run)

    def _on_exit(self) -> None:
        """Report why the process that mirrors the run has ended."""
        process, self._process = self._process, None
        assert process is not None  # `close` disconnects the signal
        process.deleteLater()
        self.failed.emit(self._problem or tr("Following the run has ended unexpectedly. Open it again."))


class FileFetch(JsonLinesProcess):
    """Child process that transfers a file of a run from another machine, one file at a time.

    Its progress is a FetchProgress, its result the local path, and its refusal an error message.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        decode = msgspec.json.Decoder(FetchProgress).decode
        super().__init__("engine.machines.fetch", tr("Fetching the file"), decode, parent, answer_of=_answer_in)

    def start(self, name: str, run_id: str, path: str) -> None:
        """Transfer the bytes of a file that are missing locally. `path` is relative to the run folder."""
        self.run([name, run_id, path])


def _answer_in(message: FetchProgress) -> Answer | None:
    """Return the local path, or the problem as a refusal, in the last message. Return None for earlier messages."""
    if message.path:
        return Answer(message.path)
    return Answer(message.problem, refused=True) if message.problem else None
