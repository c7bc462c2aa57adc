"""``footplate node --relay RUN``: send the log of a local run to a follower on another machine.

The commands of the follower are forwarded to the run. The relay reads the log file, which contains all events. It exits
with its follower. The run continues.
"""

from __future__ import annotations

import hashlib
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import IO

import msgspec

from engine.contract.nodes import LogChunk, LogRequest, NodeFailed, RunCommand, RunFound, RunLiveness
from engine.contract.protocol import MAX_FRAME_BYTES, FrameError
from engine.machines.link import SupervisorLink
from engine.runs.connection import NotAnswering, NotRunning, send
from engine.runs.folder import RunFolder
from engine.runs.index import find_run
from engine.system import linux
from engine.system.files import open_file, read_file

_LOG_POLL_S = 0.02
_STATE_POLL_S = 0.5
_CHUNK_BYTES = 1 << 16


def relay(name: str) -> int:
    """Send the log of run `name` over standard output to the follower that has started this process through ssh.

    If there is no such run, reports this and returns the exit code 1. Otherwise, the process exits when the follower
    disconnects.
    """
    link = SupervisorLink()
    linux.name_process("footplate-relay")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input is the signal to end
    run = find_run(name)
    try:
        if run is None:
            raise FileNotFoundError(f"there is no run “{name}”")
        job = read_file(run.job_file, MAX_FRAME_BYTES // 2)  # base64 makes it a third longer in the frame
        found = RunFound(run_id=run.run_id, job=job, written=run.job_file.stat().st_mtime)
    except OSError as error:
        link.send(NodeFailed(cause=str(error)))
        return 1
    link.start_heartbeats()
    link.send(found)
    _Relay(link, run).serve()
    return 0


class _Relay:
    """Relay that sends the log of a local run to one follower."""

    def __init__(self, link: SupervisorLink, run: RunFolder) -> None:
        self._link = link
        self._run = run
        self._requests: queue.SimpleQueue[LogRequest] = queue.SimpleQueue()
        self._log: IO[bytes] | None = None
        self._offset = 0  # number of bytes of the log that the follower has

    def serve(self) -> None:
        """Wait for the follower's request, then send new lines of the log and changes of the run's state forever."""
        threading.Thread(target=self._receive, name="frames", daemon=True).start()
        self._open_log(self._requests.get())
        state = sent_state = None
        poll_at = 0.0
        while True:
            if time.monotonic() > poll_at:
                # Before the log is read, so that the log of an ended run is complete before its state is sent.
                state, poll_at = self._read_liveness(), time.monotonic() + _STATE_POLL_S
            with suppress(OSError):  # the folder was removed, perhaps to be recreated
                self._send_log()
            if state is not None and state != sent_state:
                self._link.send(state)
                sent_state = state
            time.sleep(_LOG_POLL_S)

    def _receive(self) -> None:
        """Handle messages of the follower, in a thread. When the follower disconnects, exit the process."""
        try:
            for message in self._link.messages():
                match message:
                    case LogRequest():
                        self._requests.put(message)
                    case RunCommand():
                        with suppress(NotRunning, NotAnswering):  # the follower sees it in the run's state
                            send(self._run, message.command)
        except (FrameError, msgspec.DecodeError) as error:
            print(f"An invalid message came: {error}", file=sys.stderr, flush=True)
        os._exit(0)

    def _open_log(self, request: LogRequest) -> None:
        """Open the log at the end of the follower's copy, or at the start if the copy belongs to another log."""
        with suppress(OSError):  # `_send_log` opens a log that is missing now
            self._log = open_file(self._run.events_file)
            digest = hashlib.sha256(self._log.read(request.offset))
            is_same = self._log.tell() == request.offset and digest.hexdigest() == request.sha256
            self._offset = request.offset if is_same else 0
            self._log.seek(self._offset)

    def _send_log(self) -> None:
        """Send the lines that were added to the log. If a new log has replaced it, send the new one. Raises OSError."""
        info = self._run.events_file.stat()
        if self._log is None or info.st_size < self._offset or not os.path.samestat(info, os.fstat(self._log.fileno())):
            self._log, self._offset = open_file(self._run.events_file), 0
        while data := self._log.read(_CHUNK_BYTES):
            self._link.send(LogChunk(offset=self._offset, data=data))
            self._offset += len(data)

    def _read_liveness(self) -> RunLiveness:
        """Read from the run folder whether the run's supervisor is alive, and which execution it supervises."""
        supervisor = self._run.supervisor()
        is_alive = supervisor is not None and supervisor.alive()
        return RunLiveness(execution=supervisor.execution if supervisor is not None else 0, alive=is_alive)
