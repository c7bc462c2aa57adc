"""State of the advisor's work on a request, and its conversion to rows of the answer's table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.advisor.advice.contenders import Contender, rank
from engine.advisor.advice.estimates import UNCALIBRATED, Calibration, Costs
from engine.advisor.advice.machines import BACKWARD, Step
from engine.advisor.advice.setups import Setup
from engine.advisor.advice.trial_files import Footprint, LinkSpeed, Rehearsal
from engine.contract.advice import AdviceRequest, Candidate, JobTime, SkippedCandidates
from engine.contract.catalogue import Catalogue

Kind = Literal["rules", "memory", "cost", "time"]

_SUPERVISOR_START_S = 0.2
"""Time that a run's supervisor needs to write a log and open a socket, in seconds, without imports and workers."""

_PARTS = ("start", "step", "data", "validation")
"""Names of the parts that the time for a job consists of."""


@dataclass
class AdviceState:
    """State of the advisor's work on one request for the fastest setup of a job."""

    request: AdviceRequest
    catalogue: Catalogue
    footprint: Footprint | None = None
    calibration: Calibration = UNCALIBRATED
    memory_by: Literal["one_device", "fake_tensors", "none"] = "none"
    considered: int = 0
    queue: list[Contender] = field(default_factory=list)
    """Contenders that wait for a trial."""
    contenders: list[Contender] = field(default_factory=list)
    """Contenders in a trial or after it."""
    left_out: list[tuple[Kind, str, str]] = field(default_factory=list)
    """Setups that are not tried. Each has the kind of the reason, the name of the setup, and the reason."""
    link: LinkSpeed | None = None
    import_s: float = 0.0
    """Seconds that importing torch takes."""
    startup_s: float = 0.0
    """Time that the workers of the rehearsal needed to start, prepare and end, in seconds."""
    rehearsal: Rehearsal | None = None
    rehearsed: Contender | None = None
    ended_by: Literal["settled", "time", "stopped"] = "time"
    took_s: float = 0.0

    def leave_out(self, kind: Kind, setup: Setup, reason: str) -> None:
        """Record that `setup` is not tried, for a reason of this kind."""
        self.left_out.append((kind, setup.name, reason))

    def record_stop(self) -> None:
        """Record that the user stopped the trials.

        The contender in a trial becomes "measured" if earlier trials have measured it. Otherwise it returns to the
        queue.
        """
        self.ended_by = "stopped"
        untried = [each for each in self.contenders if each.state in ("waiting", "trying")]
        for each in untried:
            if each.steps:
                each.state = "measured"
            else:
                each.state = "waiting"
                self.contenders.remove(each)
                self.queue.append(each)

    def group_left_out(self) -> tuple[SkippedCandidates, ...]:
        """Group the setups that were not tried by reason.

        The result includes the setups in the queue, with the reason that the time was over.
        """
        left_out = [*self.left_out, *(("time", each.setup.name, "The time was up.") for each in self.queue)]
        reasons = dict.fromkeys((kind, reason) for kind, _, reason in left_out)
        return tuple(
            SkippedCandidates(kind, tuple(name for k, name, r in left_out if (k, r) == (kind, reason)), reason)
            for kind, reason in reasons
        )

    @property
    def fastest_on_one_device(self) -> Contender | None:
        """Fastest contender measured on one device, or None if none was."""
        return next(filter(_is_measured_on_one_device, rank(self.contenders)), None)

    @property
    def costs(self) -> Costs | None:
        """Time and memory of a training step in the first trial on one device, or None before such a trial."""
        first = next(filter(_is_measured_on_one_device, self.contenders), None)
        if first is None or first.measured is None or self.footprint is None:
            return None
        fixed, measured = 0.0, first.measured
        step, batch = first.step_s, first.setup.job.training.batch_size
        if measured.smaller_step_s is not None:
            computing = step - first.wait_s
            # A line through the step times of the two batch sizes gives the time per image and the fixed time.
            per_image = (computing - measured.smaller_step_s) / (batch - measured.smaller_batch)
            fixed = max(0.0, computing - max(0.0, per_image) * batch)
        footprint = self.footprint
        return Costs(
            step_s=step,
            min_s=min(first.steps),
            fixed_s=fixed,
            link=self.link,
            parameter_bytes=footprint.parameter_bytes,
            trained_bytes=footprint.trained_bytes,
        )

    @property
    def machine_step(self) -> Step | None:
        """Step of the fastest contender, for predictions about several machines. None if no step was measured."""
        best = next((each for each in rank(self.contenders) if each.steps), None)
        if best is None or self.footprint is None:
            return None
        fixed = min(self.costs.fixed_s, best.step_s) if self.costs is not None else 0.0
        alone = self.fastest_on_one_device.measured if self.fastest_on_one_device is not None else None
        backward = alone.backward_share if alone is not None else None
        return Step(
            seconds=best.step_s,
            fixed_s=fixed,
            sent_bytes=self.footprint.trained_bytes,
            last_bytes=self.footprint.last_bytes,
            backward_share=backward or BACKWARD,
        )

    def create_row(self, contender: Contender) -> Candidate:
        """Convert a contender to a row of the answer's table."""
        speed, measured, alone = contender.speed, contender.measured, self.fastest_on_one_device
        row: dict[str, object] = {
            "state": contender.state, "estimated_bytes": contender.estimated, "why": contender.why
        }  # fmt: skip
        if self.footprint is not None:
            row["limit_bytes"] = min(self.footprint.limits)
        if contender.steps:
            row |= {"images_per_second": speed.median, "low": speed.low, "high": speed.high}
            row |= {"timed_steps": len(contender.steps), "data_wait_share": contender.wait_s / contender.step_s}
            row["time"] = self.predict_job_time(contender)
            if alone is not None:
                row["efficiency"] = speed.median / len(contender.setup.job.parallel.devices) / alone.speed.median
        if contender.memory is not None:
            row["memory_bytes"], row["limit_bytes"] = contender.memory
        if measured is not None and measured.joules_per_image is not None:
            row["joules_per_thousand_images"] = 1000 * measured.joules_per_image
        return contender.setup.create_candidate(self.request.job, **row)

    def predict_job_time(self, contender: Contender) -> JobTime | None:
        """Predict the time that the complete job takes with the settings of a contender.

        Return None if the contender wasn't measured. The durations in the rehearsal are scaled by the ratio of step
        times. Without a rehearsal, the validation of a batch is assumed to take a third of a training step, the time of
        its forward pass.
        """
        footprint, rehearsal, rehearsed = self.footprint, self.rehearsal, self.rehearsed
        if footprint is None or contender.measured is None:
            return None
        job, step = contender.setup.job, contender.step_s
        steps = max(1, footprint.train_images // job.training.batch_size)
        startup = self.startup_s if rehearsed is not None else contender.startup_s
        start = _SUPERVISOR_START_S + self.import_s + startup
        measured = {"start", "step"}
        if rehearsal is None or rehearsed is None:
            validation = footprint.val_images / job.training.batch_size * step / 3  # only the forward pass of a step
        else:
            ratio = step / rehearsed.step_s
            step = rehearsal.warm_step_s * ratio + rehearsal.start_s / steps
            start += steps * max(0.0, rehearsal.cold_step_s - rehearsal.warm_step_s)
            validation = rehearsal.validation_s * ratio + rehearsal.save_s
            if contender is rehearsed:
                measured |= {"data"} if rehearsal.validated < 1 else {"data", "validation"}
        return JobTime(
            total_s=start + job.training.epochs * (steps * step + validation),
            start_s=start,
            epochs=job.training.epochs,
            steps=steps,
            step_s=step,
            validation_s=validation,
            measured=tuple(name for name in _PARTS if name in measured),
            estimated=tuple(name for name in _PARTS if name not in measured),
        )


def _is_measured_on_one_device(contender: Contender) -> bool:
    return bool(contender.steps) and len(contender.setup.job.parallel.devices) == 1
