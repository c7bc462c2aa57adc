"""A run's job in SLURM, as it was seen last: slurm.json in the run's folder, beside slurm.sh and slurm.log."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

FILE, SCRIPT = "slurm.json", "slurm.sh"
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")


class SlurmJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """`state` is SLURM's own word (squeue(1), JOB STATE CODES), "" for a job that it no longer knows. Of one that is
    pending, `reason` is why, `place` counts from 1 through its partition's queue, and `start` is when SLURM expects
    it to start, in the cluster's time. `trouble` is why SLURM could not be asked of late. `host` is as in
    `SlurmOptions`.
    """

    job_id: int
    host: str = ""
    state: str = "PENDING"
    reason: str = ""
    place: int | None = None
    start: str = ""
    trouble: str = ""

    @property
    def pending(self) -> bool:
        return self.state in _PENDING

    @property
    def goes_on(self) -> bool:
        return self.pending or self.state in _RUNNING

    @property
    def words(self) -> str:
        """ "job 12 is pending: Resources, place 3, expected to start 2026-11-24 14:05"; how a job has ended
        otherwise.
        """
        if not self.goes_on:
            return f"job {self.job_id} is {self.state.lower().replace('_', ' ') or 'no longer known'}"
        parts = [self.reason, f"place {self.place}" if self.place else "", self.trouble.rstrip(".")]
        parts.append(f"expected to start {self.start[:16].replace('T', ' ')}" if self.start else "")
        told = ", ".join(filter(None, parts))
        return f"job {self.job_id} is {self.state.lower().replace('_', ' ')}{f': {told}' if told else ''}"


def read_slurm(folder: Path) -> SlurmJob | None:
    """None for a run that SLURM does not have, or whose file can't be understood."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=SlurmJob)
    except (OSError, *NOT_DECODED):
        return None


def write_slurm(folder: Path, job: SlurmJob) -> None:
    """Raises OSError."""
    paths.write_atomically(folder / FILE, msgspec.json.encode(job))
