"""States of a run session, and facts about the run that aren't in its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from engine.contract.job import Job
from engine.runs.folder import ENDED, State
from engine.runs.slurm_job import SlurmJob
from gui.sources.run_data import EndRequest, RunData
from gui.sources.run_queue import describe_queue_position
from gui.sources.run_reader import FolderVersion
from gui.sources.run_status import RunStatus, derive_status
from gui.translation import tr


class SessionStage(Enum):
    """Stage of a `RunSession`: how it learns of new events of its run."""

    CLOSED = auto()
    READING = auto()
    """The log is read to its end."""
    RETRYING = auto()
    """The log is read repeatedly until the run's supervisor accepts a connection."""
    LIVE = auto()
    """The supervisor sends events."""
    ENDED = auto()
    """The run has ended. Its files are watched, because it may be resumed."""


NEXT_STAGES: dict[SessionStage, set[SessionStage]] = {
    SessionStage.CLOSED: {SessionStage.READING},
    SessionStage.READING: {
        SessionStage.READING,
        SessionStage.RETRYING,
        SessionStage.LIVE,
        SessionStage.ENDED,
        SessionStage.CLOSED,
    },
    SessionStage.RETRYING: {
        SessionStage.READING,
        SessionStage.RETRYING,
        SessionStage.LIVE,
        SessionStage.ENDED,
        SessionStage.CLOSED,
    },
    SessionStage.LIVE: {SessionStage.READING, SessionStage.RETRYING, SessionStage.ENDED, SessionStage.CLOSED},
    SessionStage.ENDED: {SessionStage.READING, SessionStage.CLOSED},
}
"""Permitted transitions between stages."""


@dataclass
class RunFacts:
    """Facts about a run from its folder, its supervisor and the queue.

    Attributes:
        state: State of the run, or None until it has been read.
        job: Job in the run's folder, or None until it has been read.
        version: Value that changes when the run is resumed, or None until it has been read after the run's end.
        is_remote: True if the supervisor runs under SLURM on another machine.
        interruption: Explanation of an interrupted run.
        rejection: Reason why the supervisor doesn't accept this client.
        users: Texts about the runs that use the devices that this run waits for, by run id.
    """

    state: State | None = None
    job: Job | None = None
    version: FolderVersion | None = None
    slurm: SlurmJob | None = None
    is_remote: bool = False
    interruption: str = ""
    rejection: str = ""
    users: Mapping[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def status(self, data: RunData, requested_end: EndRequest, gpu_titles: Mapping[str, str]) -> RunStatus:
        """Return the run's status, given a pause or stop that the user has requested. `gpu_titles` are by UUID.

        If the supervisor of an active run rejects this client, the text adds that its log is followed instead.
        """
        state, waiting, started = self.state or "starting", data.waiting, data.started
        explanations = {"interrupted": self.interruption} if self.interruption else {}  # arguments of `derive_status`
        if waiting is not None and started is not None:
            explanations["queued"] = describe_queue_position(
                waiting, started.job.parallel.devices, gpu_titles, self.users
            )
        elif state == "waiting" and self.slurm is not None:
            explanations["queued"] = tr("SLURM {words}").format(words=self.slurm.text)
        status = derive_status(data, state, requested_end, **explanations)
        if not self.rejection or self.ended:  # the log of an ended run isn't followed
            return status
        return replace(
            status, text=tr("{status} · following its log ({reason})").format(status=status.text, reason=self.rejection)
        )
