"""Last known state of a run's SLURM job, stored in slurm.json in the run folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.system import paths
from engine.system.decode_errors import decode_file

FILE, SCRIPT = "slurm.json", "slurm.sh"
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")


class SlurmJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """SLURM job of a run, as last reported by SLURM.

    `state` is SLURM's name of the state (squeue(1), JOB STATE CODES), or "" if SLURM no longer lists the job. For a
    pending job, `reason` is why it waits, `place` is its position in the partition's queue, from 1 on, and `start` is
    the expected start in the cluster's time zone. `query_error` is why SLURM could not be queried, or "". `host` is as
    in `SlurmOptions`.
    """

    job_id: int
    host: str = ""
    state: str = "PENDING"
    reason: str = ""
    place: int | None = None
    start: str = ""
    query_error: str = ""

    @property
    def is_pending(self) -> bool:
        return self.state in _PENDING

    @property
    def is_active(self) -> bool:
        return self.is_pending or self.state in _RUNNING

    @property
    def text(self) -> str:
        """Description of the SLURM job's state, e.g. "job 12 is pending: Resources, place 3"."""
        text = f"job {self.job_id} is {self.state.lower().replace('_', ' ') or 'no longer known'}"
        if not self.is_active:
            return text
        start_minute = self.start[:16].replace("T", " ")
        details = (
            self.reason,
            f"place {self.place}" if self.place else "",
            self.query_error.rstrip("."),
            f"expected to start {start_minute}" if self.start else "",
        )
        given_details = ", ".join(filter(None, details))
        return f"{text}: {given_details}" if given_details else text


_SLURM_JOB = msgspec.json.Decoder(SlurmJob)


def read_slurm(folder: Path) -> SlurmJob | None:
    """Read slurm.json in a run folder. Returns None if the run has no SLURM job or the file is invalid."""
    return decode_file(folder / FILE, _SLURM_JOB)


def write_slurm(folder: Path, job: SlurmJob) -> None:
    """Write the SLURM job of a run to slurm.json in its folder. Raises OSError."""
    paths.write_atomically(folder / FILE, msgspec.json.encode(job))
