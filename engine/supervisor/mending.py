"""Puts back what somebody removes under a run: its folder with the log in it, and the socket where clients find it."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.contract.events import Warned
from engine.contract.job import Job, save_job
from engine.runs.folder import RunFolder
from engine.supervisor.endpoint import open_endpoint
from engine.supervisor.event_log import EventLog
from engine.supervisor.server import Server

RETRY_S = 1.0

_FOLDER_GONE = (
    "The run folder was deleted during training. It has been created again with the log and the job, and a "
    "checkpoint is being saved now; earlier checkpoints, the best one and the output of the processes are "
    "gone. Stop the run if you no longer want it."
)
_LOG_GONE = "The run's log was deleted or replaced during training. It has been rewritten in full."


class Mending:
    """Looks after a run's folder, in which there is to be its `job` at the time, and after the place where `server`
    listens, which `announce` writes there.
    """

    def __init__(
        self, run: RunFolder, job: Callable[[], Job], log: EventLog, server: Server, announce: Callable[[], None]
    ) -> None:
        self._run = run
        self._job = job
        self._log = log
        self._server = server
        self._announce = announce
        self._retry_at = 0.0

    def look(self, *, at_once: bool = False) -> bool:
        """Mends what is to be mended, often called; looks for it once a second, or `at_once`. True where the
        checkpoints are gone, so that one is to be saved.
        """
        gone = self._log.make_again(at_once=at_once) and self._fill_folder()
        if not self._server.endpoint.stands and time.monotonic() >= self._retry_at:
            self._listen_again()
        return gone

    def _fill_folder(self) -> bool:
        gone = not self._run.job_file.exists()  # a worker may have made the folder again for its checkpoint by now
        try:
            self._run.checkpoints.mkdir(mode=0o700, exist_ok=True)
            save_job(self._job(), self._run.job_file)
            self._announce()
        except OSError as error:
            print(f"The run folder could not be restored: {error}", flush=True)
        if gone:
            self._log.append(Warned(code="folder_deleted", message=_FOLDER_GONE))
        else:
            self._log.append(Warned(code="log_deleted", message=_LOG_GONE))
        return gone

    def _listen_again(self) -> None:
        """In the runtime folder as it is now, which is another once its user has logged out."""
        try:
            self._server.listen(open_endpoint(self._run.path))
            self._announce()
        except OSError as error:
            self._retry_at = time.monotonic() + RETRY_S
            print(f"Clients can't find this run: {error}", flush=True)
