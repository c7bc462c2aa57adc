"""Kinds of alerts, the rules that raise them, and the file that stores the rules."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from engine.contract.devices import Gpu
from engine.contract.problems import Problem, Severity
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import read_file
from engine.system.format import with_unit
from gui.format import counted, localized, significant
from gui.translation import tr

KindId = Literal[
    "temperature", "memory_temperature", "throttled", "memory", "power", "idle", "xid", "memory_errors", "lost",
    "not_answering",
]  # fmt: skip
LONGEST_S = 86_400.0
"""Maximum duration in a rule: one day, the length of the history."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """User's rule for a kind of alert.

    Attributes:
        threshold: Limit in the unit of the kind's `Threshold`. None means the limit of the GPU, or that the kind has no
            limit.
        for_s: Seconds that the condition must last.
        devices: Keys of the devices for which the rule applies (see `device_key`), or None for all.
    """

    kind: KindId
    on: bool = True
    threshold: float | None = None
    for_s: float = 0.0
    notify: bool = True
    devices: tuple[str, ...] | None = None

    def covers(self, device: str) -> bool:
        return self.on and (self.devices is None or device in self.devices)


@dataclass(frozen=True)
class Threshold:
    """Measured value that a rule limits.

    Attributes:
        read: Returns the value of a GPU in `unit`.
        lowest: Lowest limit that a rule may set.
        highest: Highest limit that a rule may set.
        margin: Distance that the value must move back across the limit to end an alert, so that alerts don't flicker.
        below: True if values below the limit raise an alert, False if values at or above it do.
        device_limit: Returns the limit that the GPU reports, or None if it reports none.
        device_limit_name: Name of that limit.
    """

    unit: str
    read: Callable[[Gpu], float | None]
    lowest: float
    highest: float
    margin: float
    below: bool = False
    device_limit: Callable[[Gpu], float | None] | None = None
    device_limit_name: str = ""

    def write(self, value: float) -> str:
        return with_unit(f"{value:.0f}", self.unit)


@dataclass(frozen=True)
class Kind:
    """Kind of alert.

    Attributes:
        meaning: Explanation of the condition for the user.
        default: Rule that applies until the user changes it.
        threshold: Measured value and its limits, or None if the condition isn't about a number.
        event: True for events, such as errors, which have no duration. Their alerts remain active until they are
            acknowledged.
    """

    id: KindId
    title: str
    meaning: str
    remedy: str
    severity: Severity
    default: Rule
    threshold: Threshold | None = None
    event: bool = False

    @property
    def has_devices(self) -> bool:
        """True for a rule about GPUs, which can cover some of them, and False for the rule about hosts."""
        return self.id != "not_answering"


def compute_memory_percent(gpu: Gpu) -> float | None:
    """Return the used memory in percent, including the driver's reserve, or None if unknown."""
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return 100 * (gpu.memory_used_bytes + (gpu.memory_reserved_bytes or 0)) / gpu.memory_total_bytes


_COOLING = tr("Check for dust, a blocked fan or warm intake air; a lower power limit (nvidia-smi -pl) also helps.")

KINDS: dict[KindId, Kind] = {
    kind.id: kind
    for kind in (
        Kind(
            "temperature", tr("Temperature"),
            tr("The core is hot. At its slowdown temperature, the GPU lowers its clocks."),
            _COOLING, "warning", Rule(kind="temperature", for_s=10),
            Threshold(
                "°C", lambda gpu: gpu.temperature_c, 20, 130, 3,
                device_limit=lambda gpu: gpu.slowdown_c, device_limit_name=tr("the GPU's slowdown temperature"),
            ),
        ),
        Kind(
            "memory_temperature", tr("Memory temperature"),
            tr("The memory is hot (on GPUs that report its temperature)."),
            _COOLING, "warning", Rule(kind="memory_temperature", for_s=10),
            Threshold(
                "°C", lambda gpu: gpu.memory_temperature_c, 20, 130, 3,
                device_limit=lambda gpu: gpu.memory_max_c, device_limit_name=tr("the GPU's highest temperature"),
            ),
        ),
        Kind(
            "throttled", tr("Throttling"),
            tr("The GPU lowers its clocks because of heat or its power supply. Reaching the power limit is normal and "
            "does not count."),
            _COOLING, "warning", Rule(kind="throttled", for_s=10),
        ),
        Kind(
            "memory", tr("Memory nearly full"),
            tr("A program that allocates more memory than is free fails."),
            tr("Use a smaller batch size or image size, or check Processes for other programs on the GPU."),
            "warning", Rule(kind="memory", threshold=97, for_s=60, notify=False),
            Threshold("%", compute_memory_percent, 1, 100, 2),
        ),
        Kind(
            "power", tr("Power"),
            tr("The GPU draws a lot of power. At its limit it lowers its clocks, which is normal under full load."),
            tr("Set a lower power limit (nvidia-smi -pl)."),
            "warning", Rule(kind="power", on=False, for_s=60, notify=False),
            Threshold(
                "W", lambda gpu: gpu.power_w, 1, 5000, 5,
                device_limit=lambda gpu: gpu.power_limit_w, device_limit_name=tr("the GPU's power limit"),
            ),
        ),
        Kind(
            "idle", tr("Idle during a run"),
            tr("A run on this machine holds the GPU but hardly uses it."),
            tr("The run may be stuck or waiting for data: check its page, or stop it to free the GPU."),
            "warning", Rule(kind="idle", threshold=5, for_s=600),
            Threshold("%", lambda gpu: gpu.utilization_percent, 1, 100, 5, below=True),
        ),
        Kind(
            "xid", tr("Xid error"),
            tr("The driver reported an error of the GPU or of a program on it, as a numbered Xid."),
            tr("See what the number means and what to do: docs.nvidia.com/deploy/xid-errors."),
            "error", Rule(kind="xid"), event=True,
        ),
        Kind(
            "memory_errors", tr("Memory errors"),
            tr("ECC could not correct a memory error, or a faulty memory row could not be remapped."),
            tr("Restart the affected program. If it happens again, reset the GPU; replace a GPU that can no longer remap "
            "rows (nvidia-smi -q -d ECC,ROW_REMAPPER)."),
            "error", Rule(kind="memory_errors"), event=True,
        ),
        Kind(
            "lost", tr("GPU lost"),
            tr("The driver can no longer reach the GPU."),
            tr("Check the kernel log (sudo dmesg) for the cause; usually only a reboot brings the GPU back."),
            "error", Rule(kind="lost"),
        ),
        Kind(
            "not_answering", tr("Not responding"),
            tr("NVML or a watched host does not respond."),
            tr("Footplate keeps retrying; if it stays silent, check that machine."),
            "error", Rule(kind="not_answering", for_s=15),
        ),
    )
}  # fmt: skip
"""All kinds of alerts in display order."""

DEFAULTS: dict[KindId, Rule] = {id_: kind.default for id_, kind in KINDS.items()}


def find_problems(rule: Rule) -> tuple[Problem, ...]:
    """Validate a rule. Each problem is about the field `threshold`, `for_s` or `devices`."""
    found = []
    threshold = KINDS[rule.kind].threshold
    if threshold is not None and not _is_valid_limit(rule.threshold, threshold):
        remedy = (
            tr("Enter a number from {lowest} to {highest}, or nothing for {device_limit}.")
            if threshold.device_limit_name
            else tr("Enter a number from {lowest} to {highest}.")
        ).format(
            lowest=significant(threshold.lowest),
            highest=with_unit(localized(threshold.highest), threshold.unit),
            device_limit=threshold.device_limit_name,
        )
        found.append(Problem("threshold", tr("Invalid threshold."), remedy))
    if not (math.isfinite(rule.for_s) and 0 <= rule.for_s <= LONGEST_S):
        found.append(Problem("for_s", tr("Invalid duration."), tr("Enter a duration from 0 to one day.")))
    if rule.devices is not None and not rule.devices:
        found.append(
            Problem("devices", tr("The rule covers no device."), tr("Choose at least one, or turn the rule off."))
        )
    return tuple(found)


def _is_valid_limit(limit: float | None, threshold: Threshold) -> bool:
    """Return True if a limit is in the range of `threshold`, or is None and the GPU reports a limit instead."""
    if limit is None:
        return threshold.device_limit is not None
    return threshold.lowest <= limit <= threshold.highest


def format_duration(seconds: float) -> str:
    """Format a duration, as in "10 s" or "10 min"."""
    is_in_minutes = seconds >= 60 and seconds % 60 == 0
    return f"{significant(seconds / 60)} min" if is_in_minutes else f"{significant(seconds)} s"


def describe_rule(rule: Rule) -> str:
    """Describe a rule, as in "at or above 90 °C for 10 s · no notification"."""
    kind = KINDS[rule.kind]
    parts = []
    if kind.threshold is not None:
        comparison = tr("below {limit}") if kind.threshold.below else tr("at or above {limit}")
        limit = kind.threshold.device_limit_name if rule.threshold is None else kind.threshold.write(rule.threshold)
        parts.append(comparison.format(limit=limit))
    if rule.for_s > 0:
        parts.append(tr("for {time}").format(time=format_duration(rule.for_s)))
    text = " ".join(parts) or tr("as soon as it happens")
    if rule.devices is not None and kind.has_devices:
        text += " · " + tr("{devices} only").format(devices=counted(len(rule.devices), "device"))
    if rule.on and not rule.notify:
        text += " · " + tr("no notification")
    return text


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of `alerts.json`."""

    rules: tuple[Rule, ...]


class RuleStore:
    """Storage of the alert rules in the file `alerts.json` of `folder`, by default the Footplate home."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or paths.home()) / "alerts.json"

    def load(self) -> tuple[dict[KindId, Rule], str]:
        """Return the stored rules and "". Without a file, return the default rules and "".

        If the file can't be read, return the default rules and an error message. A damaged file is renamed to
        `alerts.json.damaged`, so that its contents aren't lost.
        """
        rules = dict(DEFAULTS)
        try:
            saved = msgspec.json.decode(read_file(self.path), type=_File).rules
        except FileNotFoundError:
            return rules, ""
        except OSError as error:
            return rules, tr("Can't read the alert rules ({strerror}: {path}). The defaults apply.").format(
                strerror=error.strerror, path=self.path
            )
        except NOT_DECODED as error:
            return rules, self._move_damaged(str(error))
        messages = [str(problem) for rule in saved for problem in find_problems(rule)]
        if messages:
            return rules, self._move_damaged(messages[0])
        rules |= {rule.kind: rule for rule in saved}
        return rules, ""

    def save(self, rules: dict[KindId, Rule]) -> str:
        """Save the alert rules atomically. Return an error message, or "" for success."""
        text = msgspec.json.format(msgspec.json.encode(_File(tuple(rules[kind] for kind in KINDS))))
        try:
            paths.make_folder(self.path.parent)
            paths.write_atomically(self.path, text + b"\n")
        except OSError as error:
            return tr("The alert rules apply until the window closes, but can't be saved: {strerror} ({path}).").format(
                strerror=error.strerror, path=self.path
            )
        return ""

    def _move_damaged(self, reason: str) -> str:
        """Rename the damaged rules file, and return a message that contains `reason`."""
        damaged = self.path.with_name(self.path.name + ".damaged")
        try:
            os.replace(self.path, damaged)
        except OSError as error:
            return tr(
                "The alert rules are corrupted ({why}) and the file can't be moved aside ({strerror}: {path})."
            ).format(why=reason, strerror=error.strerror, path=self.path)
        return tr(
            "The alert rules were corrupted ({rstrip}). The defaults apply; the file was moved to {damaged}."
        ).format(rstrip=reason.rstrip("."), damaged=damaged)
