"""State of the advisor's work on a request, and its conversion to rows of the answer's table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.advisor.advice.contenders import Contender, rank
from engine.advisor.advice.estimates import UNCALIBRATED, Calibration, Costs
from engine.advisor.advice.machines import BACKWARD, Step
from engine.advisor.advice.setups import Setup
from engine.advisor.advice.trial_files import Footprint, LinkSpeed, Rehearsal
from engine.contract.advice import AdviceRequest, Candidate, JobTime, SkippedCandidates
from engine.contract.catalogue import Catalogue

SkipReason = Literal["rules", "memory", "cost", "time"]
"""Kind of reason for which a setup is not tried, as in `SkippedCandidates.kind`."""

_SUPERVISOR_START_S = 0.2
"""Time that a run's supervisor needs to write a log and open a socket, in seconds, without imports and workers."""

_PARTS = ("start", "step", "data", "validation")
"""Names of the parts that the time for a job consists of."""


class LeftOutSetup(NamedTuple):
    """Setup that is not tried, with the kind of the reason, and the reason in a sentence."""

    kind: SkipReason
    setup: Setup
    why: str


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
    left_out: list[LeftOutSetup] = field(default_factory=list)
    link: LinkSpeed | None = None
    import_s: float = 0.0
    """Seconds that importing torch takes."""
    startup_s: float = 0.0
    """Time that the workers of the rehearsal needed to start, prepare and end, in seconds."""
    rehearsal: Rehearsal | None = None
    rehearsed: Contender | None = None
    ended_by: Literal["settled", "time", "stopped"] = "time"
    took_s: float = 0.0

    def leave_out(self, kind: SkipReason, setup: Setup, why: str) -> None:
        """Record that `setup` is not tried. `kind` is the kind of the reason, and `why` states it in a sentence."""
        self.left_out.append(LeftOutSetup(kind, setup, why))

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
        in_queue = [LeftOutSetup("time", each.setup, "The time was up.") for each in self.queue]
        names_by_reason: dict[tuple[SkipReason, str], list[str]] = {}
        for kind, setup, why in (*self.left_out, *in_queue):
            names_by_reason.setdefault((kind, why), []).append(setup.name)
        return tuple(SkippedCandidates(kind, tuple(names), why) for (kind, why), names in names_by_reason.items())

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
        fixed_s, measured = 0.0, first.measured
        batch = first.setup.job.training.batch_size
        if measured.smaller_step_s is not None:
            computing_s = first.step_s - first.wait_s
            # A line through the step times of the two batch sizes gives the time per image and the fixed time.
            per_image_s = (computing_s - measured.smaller_step_s) / (batch - measured.smaller_batch)
            fixed_s = max(0.0, computing_s - max(0.0, per_image_s) * batch)
        return Costs(
            step_s=first.step_s,
            min_s=min(first.steps),
            fixed_s=fixed_s,
            link=self.link,
            parameter_bytes=self.footprint.parameter_bytes,
            trained_bytes=self.footprint.trained_bytes,
        )

    @property
    def machine_step(self) -> Step | None:
        """Step of the fastest contender, for predictions about several machines. None if no step was measured."""
        best = next((each for each in rank(self.contenders) if each.steps), None)
        if best is None or self.footprint is None:
            return None
        costs, alone = self.costs, self.fastest_on_one_device
        backward_share = alone.measured.backward_share if alone is not None and alone.measured is not None else None
        return Step(
            seconds=best.step_s,
            fixed_s=min(costs.fixed_s, best.step_s) if costs is not None else 0.0,
            sent_bytes=self.footprint.trained_bytes,
            last_bytes=self.footprint.last_bytes,
            backward_share=backward_share or BACKWARD,
        )

    def create_row(self, contender: Contender) -> Candidate:
        """Convert a contender to a row of the answer's table. Values that were not measured are left out."""
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
        job, step_s = contender.setup.job, contender.step_s
        steps = max(1, footprint.train_images // job.training.batch_size)
        startup_s = self.startup_s if rehearsed is not None else contender.startup_s
        start_s = _SUPERVISOR_START_S + self.import_s + startup_s
        measured = {"start", "step"}
        if rehearsal is None or rehearsed is None:
            batches = footprint.val_images / job.training.batch_size
            validation_s = batches * step_s / 3  # only the forward pass of a step
        else:
            ratio = step_s / rehearsed.step_s
            step_s = rehearsal.warm_step_s * ratio + rehearsal.start_s / steps
            start_s += steps * max(0.0, rehearsal.cold_step_s - rehearsal.warm_step_s)  # in the first epoch
            validation_s = rehearsal.validation_s * ratio + rehearsal.save_s
            if contender is rehearsed:
                measured.add("data")
                if rehearsal.validated == 1:  # not extrapolated
                    measured.add("validation")
        return JobTime(
            total_s=start_s + job.training.epochs * (steps * step_s + validation_s),
            start_s=start_s,
            epochs=job.training.epochs,
            steps=steps,
            step_s=step_s,
            validation_s=validation_s,
            measured=tuple(name for name in _PARTS if name in measured),
            estimated=tuple(name for name in _PARTS if name not in measured),
        )


def _is_measured_on_one_device(contender: Contender) -> bool:
    return bool(contender.steps) and len(contender.setup.job.parallel.devices) == 1
