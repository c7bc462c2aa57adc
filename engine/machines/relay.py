"""``footplate node --relay RUN``: tells another machine of a run of this one, and hands its commands on.

The log's file is what is read, since it holds all that a run has to say. It ends with whoever follows the run, which
goes on.
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

from engine.contract.nodes import LogPart, LogWanted, NodeFailed, RunFound, RunStands, ToRun
from engine.contract.protocol import FrameError
from engine.machines.frontend import Frontend
from engine.runs.connection import NotAnswering, NotRunning, send
from engine.runs.folder import RunFolder
from engine.runs.index import find_run
from engine.system import linux

_LOOK_S = 0.02
"""How often it is looked whether the log has grown."""
_STANDS_S = 0.5
"""How often it is looked whether somebody runs the run."""
_PART_BYTES = 1 << 16


def relay(name: str) -> int:
    """Serves one who follows the run of that name; returns the exit code."""
    frontend = Frontend()
    linux.name_process("footplate-relay")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input says it all
    run = find_run(name)
    try:
        if run is None:
            raise FileNotFoundError(f"there is no run “{name}”")
        found = RunFound(run_id=run.run_id, job=run.job_file.read_bytes(), written=run.job_file.stat().st_mtime)
    except OSError as error:
        frontend.say(NodeFailed(cause=str(error)))
        return 1
    frontend.start_beating(lambda: os._exit(1))
    frontend.say(found)
    _Relay(frontend, run).serve()
    return 0


class _Relay:
    def __init__(self, frontend: Frontend, run: RunFolder) -> None:
        self._frontend = frontend
        self._run = run
        self._wanted: queue.SimpleQueue[LogWanted] = queue.SimpleQueue()
        self._log: IO[bytes] | None = None
        self._offset = 0

    def serve(self) -> None:
        threading.Thread(target=self._hear, name="frames", daemon=True).start()
        self._take_up(self._wanted.get())
        told, look_at = None, 0.0
        while True:
            stands = told
            if time.monotonic() > look_at:
                stands, look_at = self._stands(), time.monotonic() + _STANDS_S
            with suppress(OSError):  # the folder is gone, or comes again
                self._tell_more()
            if stands is not None and stands != told:
                self._frontend.say(stands)
                told = stands
            time.sleep(_LOOK_S)

    def _hear(self) -> None:
        """In a thread of its own; the process ends with what it hears."""
        try:
            for message in self._frontend.messages():
                match message:
                    case LogWanted():
                        self._wanted.put(message)
                    case ToRun():
                        with suppress(NotRunning, NotAnswering):  # which shows in how the run stands
                            send(self._run, message.command)
        except (FrameError, msgspec.DecodeError) as error:
            print(f"An invalid message came: {error}", file=sys.stderr, flush=True)
        os._exit(0)

    def _take_up(self, wanted: LogWanted) -> None:
        """Begins behind what is there already, where that is what the log begins with."""
        with suppress(OSError):
            self._log = self._run.events_file.open("rb")
            digest = hashlib.sha256(self._log.read(wanted.offset))
            same = self._log.tell() == wanted.offset and digest.hexdigest() == wanted.sha256
            self._offset = wanted.offset if same else 0
            self._log.seek(self._offset)

    def _tell_more(self) -> None:
        """Raises OSError."""
        info = self._run.events_file.stat()
        if self._log is None or info.st_size < self._offset or not os.path.samestat(info, os.fstat(self._log.fileno())):
            self._log, self._offset = self._run.events_file.open("rb"), 0
        while data := self._log.read(_PART_BYTES):
            self._frontend.say(LogPart(offset=self._offset, data=data))
            self._offset += len(data)

    def _stands(self) -> RunStands:
        supervisor = self._run.supervisor()
        alive = supervisor is not None and supervisor.alive()
        return RunStands(execution=supervisor.execution if supervisor is not None else 0, alive=alive)
