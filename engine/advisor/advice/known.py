"""What is known while the advisor works, and how the contract tells of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.advisor.advice.candidates import Way
from engine.advisor.advice.estimates import UNMEASURED, Correction, Costs
from engine.advisor.advice.machines import BACKWARD, Step
from engine.advisor.advice.measured import Footprint, Link, Rehearsal
from engine.advisor.advice.ranking import Tried, ranked
from engine.contract.advice import AdviceOrder, Candidate, JobTime, LeftOut
from engine.contract.catalogue import Catalogue

Kind = Literal["rules", "memory", "cost", "time"]

_MAKE_READY_S = 0.2
"""What a run's supervisor takes besides its imports and its workers: it writes a log and opens a socket."""


@dataclass
class Known:
    """All that is known of one order. `correction` is what one device says of the estimates; `rehearsed` was trained
    as its run would be, which is the `rehearsal`. `import_s` is what importing torch took, `started_s` what the
    rehearsal's workers took to start, to build what is trained, and to end.
    """

    order: AdviceOrder
    catalogue: Catalogue
    footprint: Footprint | None = None
    correction: Correction = UNMEASURED
    memory_by: Literal["one_device", "fake_tensors", "none"] = "none"
    considered: int = 0
    waiting: list[Tried] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    left: list[tuple[Kind, str, str]] = field(default_factory=list)
    link: Link | None = None
    import_s: float = 0.0
    started_s: float = 0.0
    rehearsal: Rehearsal | None = None
    rehearsed: Tried | None = None
    ended_by: Literal["settled", "time", "stopped"] = "time"
    took_s: float = 0.0

    def leave_out(self, kind: Kind, way: Way, why: str) -> None:
        self.left.append((kind, way.name, why))

    def stop(self) -> None:
        """Ends the work early: what was being tried is as it was before."""
        self.ended_by = "stopped"
        for each in [each for each in self.tried if each.state in ("waiting", "trying")]:
            if each.steps:
                each.state = "measured"
            else:
                each.state = "waiting"
                self.tried.remove(each)
                self.waiting.append(each)

    def left_out(self) -> tuple[LeftOut, ...]:
        """Those that were not tried, by reason; those that still wait had no time."""
        left = [*self.left, *(("time", each.way.name, "The time was up.") for each in self.waiting)]
        reasons = dict.fromkeys((kind, why) for kind, _, why in left)
        return tuple(
            LeftOut(kind, tuple(name for other, name, because in left if (other, because) == (kind, why)), why)
            for kind, why in reasons
        )

    @property
    def alone(self) -> Tried | None:
        """The fastest that was measured on one device."""
        return next((each for each in ranked(self.tried) if each.steps and len(each.way.job.devices) == 1), None)

    @property
    def costs(self) -> Costs | None:
        """The parts of one device's step, where that was measured."""
        alone = next((each for each in self.tried if each.steps and len(each.way.job.devices) == 1), None)
        if alone is None or alone.measured is None or self.footprint is None:
            return None
        fixed, measured = 0.0, alone.measured
        step, job = alone.step_s, alone.way.job
        if measured.smaller_step_s is not None:
            per_image = (step - alone.wait_s - measured.smaller_step_s) / (job.batch_size - measured.smaller_batch)
            fixed = max(0.0, step - alone.wait_s - max(0.0, per_image) * job.batch_size)
        return Costs(
            step, min(alone.steps), fixed, self.link, self.footprint.parameter_bytes, self.footprint.trained_bytes
        )

    @property
    def machine_step(self) -> Step | None:
        """The fastest's step, for what several machines would bring; None where it is not known."""
        best = next((each for each in ranked(self.tried) if each.steps), None)
        if best is None or self.footprint is None:
            return None
        fixed = min(self.costs.fixed_s, best.step_s) if self.costs is not None else 0.0
        alone = self.alone.measured if self.alone is not None else None
        share = alone.backward_share if alone is not None else None
        return Step(best.step_s, fixed, self.footprint.trained_bytes, self.footprint.last_bytes, share or BACKWARD)

    def row(self, tried: Tried) -> Candidate:
        speed, measured, alone = tried.speed, tried.measured, self.alone
        known: dict[str, object] = {"state": tried.state, "estimated_bytes": tried.estimated, "why": tried.why}
        if self.footprint is not None:
            known["limit_bytes"] = min(self.footprint.limits)
        if tried.steps:
            known |= {"images_per_second": speed.median, "low": speed.low, "high": speed.high}
            known |= {"timed_steps": len(tried.steps), "data_wait_share": tried.wait_s / tried.step_s}
            known["time"] = self.time(tried)
            if alone is not None:
                known["efficiency"] = speed.median / len(tried.way.job.devices) / alone.speed.median
        if tried.memory is not None:
            known["memory_bytes"], known["limit_bytes"] = tried.memory
        if measured is not None and measured.joules_per_image is not None:
            known["joules_per_thousand_images"] = 1000 * measured.joules_per_image
        return tried.way.candidate(self.order.job, **known)

    def time(self, tried: Tried) -> JobTime | None:
        """What the whole job would take: by the rehearsal, or as much longer than what was rehearsed as its steps
        are.
        """
        footprint, rehearsal, rehearsed = self.footprint, self.rehearsal, self.rehearsed
        if footprint is None or tried.measured is None:
            return None
        job, images = tried.way.job, footprint.train_images
        steps = max(1, images // job.batch_size)
        ratio = tried.step_s / rehearsed.step_s if rehearsed is not None else 1.0
        started = self.started_s if rehearsed is not None else tried.started_s
        start, step, measured, estimated = _MAKE_READY_S + self.import_s + started, tried.step_s, ["start"], []
        if rehearsal is None:
            # A validation goes forward alone, a third of a step's compute.
            validation = footprint.val_images / job.batch_size * step / 3
            measured, estimated = [*measured, "step"], ["data", "validation"]
        else:
            step = rehearsal.warm_step_s * ratio + rehearsal.begin_s / steps
            start += steps * max(0.0, rehearsal.cold_step_s - rehearsal.warm_step_s)
            validation = rehearsal.validation_s * ratio + rehearsal.save_s
            told = measured if tried is rehearsed else estimated
            told += ["step", "data"] if tried is rehearsed else ["data"]
            measured += [] if tried is rehearsed else ["step"]
            (measured if tried is rehearsed and rehearsal.validated == 1 else estimated).append("validation")
        return JobTime(
            total_s=start + job.epochs * (steps * step + validation),
            start_s=start,
            epochs=job.epochs,
            steps=steps,
            step_s=step,
            validation_s=validation,
            measured=tuple(measured),
            estimated=tuple(estimated),
        )
