"""Evaluation of alert rules on a snapshot of a GPU. Only `EventTracker` has state."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract.devices import Gpu, Xid
from engine.contract.problems import Severity
from engine.gpus.quantities import ALARMING, PROGRAM_XIDS, THROTTLE_TEXTS, describe_xid
from gui.alerts.rules import KINDS, Rule, Threshold, format_duration
from gui.translation import tr


@dataclass(frozen=True)
class Finding:
    """Condition of a GPU or host that an alert rule has found.

    `can_raise` is False for a value that has returned to the safe side of the limit, but by less than the `margin` of
    its `Threshold`. Such a finding keeps an active alert active, but raises no new one.
    """

    text: str
    can_raise: bool = True


@dataclass(frozen=True)
class Event:
    """Event on a GPU, such as an Xid error, that raises an alert at `time` in seconds since the epoch."""

    text: str
    time: float
    severity: Severity


def _create_lost_finding(gpu: Gpu) -> Finding:
    """Describe a lost GPU.

    If `lost_since` is None, the driver has never reached the GPU. Otherwise, its last values are still shown.
    """
    if gpu.lost_since is None:
        return Finding(tr("The driver can't reach it. Restart the computer."))
    return Finding(tr("The driver can no longer reach it; the values shown are its last."))


def evaluate_rule(rule: Rule, gpu: Gpu, run: str | None) -> Finding | None:
    """Evaluate a rule on `gpu`. `run` is the name of the run that uses the GPU, or None.

    Returns None if the condition isn't met or the value is unknown. The last values of a lost or sleeping GPU don't
    count. A GPU is only idle while a run uses it.
    """
    if rule.kind == "lost":
        return _create_lost_finding(gpu) if gpu.lost else None
    if gpu.lost or gpu.asleep:
        return None
    if rule.kind == "throttled":
        reasons = [THROTTLE_TEXTS[reason] for reason in gpu.throttled or () if reason in ALARMING]
        # The title of the kind says "Throttling".
        text = ", ".join(reason.removeprefix("throttling: ") for reason in reasons)
        return Finding(_append_duration(text, rule)) if reasons else None
    if rule.kind == "idle" and run is None:
        return None
    threshold = KINDS[rule.kind].threshold
    return _compare_with_limit(rule, threshold, gpu, run) if threshold is not None else None


def _compare_with_limit(rule: Rule, threshold: Threshold, gpu: Gpu, run: str | None) -> Finding | None:
    """Compare a value of `gpu` with the rule's limit or, if the rule has none, with the limit that the GPU reports.

    Returns None if the value or the limit is unknown, or if the value is on the safe side of the limit by at least
    `threshold.margin`. On the safe side within the margin, the finding can't raise an alert. `run` is the name of the
    run that uses the GPU, or None.
    """
    value = threshold.read(gpu)
    limit = rule.threshold
    if limit is None and threshold.device_limit is not None:
        limit = threshold.device_limit(gpu)
    if value is None or limit is None:
        return None
    excess = limit - value if threshold.below else value - limit
    if excess <= -threshold.margin:
        return None
    # Otherwise, the value is within the margin. The limit itself counts as above it, see "at or above".
    can_raise = excess > 0 if threshold.below else excess >= 0
    if rule.kind == "idle":
        text = tr("held by {run} and only {value} utilized, below {limit}").format(
            run=run, value=threshold.write(value), limit=threshold.write(limit)
        )
    else:
        text = tr("{value}, at or above {limit}").format(value=threshold.write(value), limit=threshold.write(limit))
    return Finding(_append_duration(text, rule), can_raise)


def _append_duration(text: str, rule: Rule) -> str:
    """Append the rule's duration to a clause and make it a sentence, as in "92 °C, at or above 90 °C for 10 s."."""
    clause = f"{text[0].upper()}{text[1:]}"
    if rule.for_s > 0:
        return tr("{clause} for {time}.").format(clause=clause, time=format_duration(rule.for_s))
    return f"{clause}."


class EventTracker:
    """Detector of new events on a GPU.

    Xid errors and a failed row remapping are reported when they are first seen. Memory errors are only reported when
    their number rises. Each method stores the state of the GPU for its next call.
    """

    def __init__(self) -> None:
        self._xids: tuple[Xid, ...] = ()
        self._uncorrected: int | None = None
        self._has_failed_remapping = False

    def find_new_xids(self, gpu: Gpu) -> list[Event]:
        """Return events for the Xid errors that the previous call didn't report."""
        new_xids = [xid for xid in gpu.xids if xid not in self._xids]
        self._xids = gpu.xids
        return [
            Event(f"{describe_xid(xid.number)}.", xid.time, "warning" if xid.number in PROGRAM_XIDS else "error")
            for xid in new_xids
        ]

    def find_new_memory_errors(self, gpu: Gpu, time: float) -> list[Event]:
        """Return events at `time` for new uncorrected memory errors, and for a failed row remapping."""
        if gpu.lost:
            return []
        events = []
        previous, current = self._uncorrected, gpu.ecc.uncorrected
        if current is not None:
            if previous is not None and current > previous:
                count = current - previous
                text = (
                    tr("{count} new error ECC could not correct.")
                    if count == 1
                    else tr("{count} new errors ECC could not correct.")
                )
                events.append(Event(text.format(count=count), time, "error"))
            self._uncorrected = current
        has_failed = gpu.retired.rows_failed is True
        if has_failed and not self._has_failed_remapping:
            events.append(Event(tr("A faulty memory row could not be remapped."), time, "error"))
        self._has_failed_remapping = has_failed
        return events
