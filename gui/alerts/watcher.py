"""Evaluation of the alert rules on snapshots from all hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.devices import Gpu, Snapshot, device_key, gpu_title, host_of
from engine.contract.problems import Problem, Severity
from gui.alerts.detectors import Event, EventTracker, Finding, evaluate_rule
from gui.alerts.rules import KINDS, KindId, Rule, RuleStore
from gui.translation import tr

CALM_S = 10.0
"""Seconds without a finding after which an alert ends. The delay prevents flickering."""
GAP_S = 60.0
"""Maximum seconds between two snapshots for counting the duration of conditions.

After a longer gap, such as a suspend, durations restart from 0.
"""
_CONCERN_RUNS: set[KindId] = {"temperature", "memory_temperature", "throttled", "memory", "xid", "memory_errors"}
"""Kinds of alerts that become warnings for a job on the device. A lost GPU is reported as an error elsewhere."""
CAPACITY = 200
"""Maximum number of alerts in the history."""


@dataclass(frozen=True)
class Alert:
    """Alert about a device, or about a host if `device` is "".

    Attributes:
        since: Start, in seconds since the epoch by the host's clock.
        ended: End, or None while the alert is active.
        times: Number of events since the last acknowledgement.
    """

    number: int
    kind: KindId
    host: str
    device: str
    title: str
    text: str
    severity: Severity
    since: float
    ended: float | None = None
    acknowledged: bool = False
    times: int = 1

    @property
    def counted_title(self) -> str:
        """Title of the kind, with the number of events, as in "Xid error, 3 times"."""
        title = KINDS[self.kind].title
        return tr("{title}, {count} times").format(title=title, count=self.times) if self.times > 1 else title

    @property
    def sentence(self) -> str:
        return f"{self.title} – {self.counted_title}: {self.text}"


@dataclass(frozen=True)
class _Subject:
    """Device or host that an alert is about.

    `source` is the origin of the alert: "device", "nvml" for the GPU driver of a host, or "connection".
    """

    host: str
    device: str
    title: str
    source: str


@dataclass
class _Watch:
    """State of an alert rule for one device or host.

    Attributes:
        since: Time when the condition began, or None for events.
        calm_since: Time when the condition ended, or None while it is present.
        alert: Number of the active alert, or None if there is none.
    """

    since: float | None = None
    calm_since: float | None = None
    alert: int | None = None


class _Key(NamedTuple):
    """Key of a `_Watch`: kind of alert, and the host, device and source of its `_Subject`."""

    kind: KindId
    host: str
    device: str
    source: str


class _Observation(NamedTuple):
    """Finding about a device or host."""

    subject: _Subject
    finding: Finding


class Alerts(QObject):
    """Active alerts, their history, and the rules.

    Times are those of the snapshots, so that a blocked window doesn't cause false alerts. An acknowledged alert remains
    active while its cause exists. The alert of an event ends when it is acknowledged.

    Signals:
        raised(Alert): an alert has been raised, or its event has occurred again.
        cleared(Alert): an alert has ended.
        changed(): `active_alerts`, `history` or `devices` has changed.
        rules_changed(): `rules` has changed.
        message(str): an error in the file of the rules, or "" once it is solved.
        test_requested(object): the user wants a test notification. The argument is called with a message about the
            result.
    """

    raised = Signal(object)
    cleared = Signal(object)
    changed = Signal()
    rules_changed = Signal()
    message = Signal(str)
    test_requested = Signal(object)

    def __init__(
        self, parent: QObject | None = None, *, folder: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Load the rules from `folder`, by default the Footplate home. `clock` returns seconds since the epoch."""
        super().__init__(parent)
        self._store = RuleStore(folder)
        self._clock = clock
        self._rules, self.problem = self._store.load()
        self._numbers = count(1)
        self._alerts: dict[int, Alert] = {}  # by number
        self._watches: dict[_Key, _Watch] = {}  # conditions that are present or have an active alert
        self._trackers: dict[str, EventTracker] = {}  # by device
        self._snapshot_times: dict[str, float] = {}  # time of the last snapshot, by host
        self._responsive_hosts: set[str] = set()  # hosts whose driver has responded
        self._run_names: Mapping[str, str] = {}  # names of runs by GPU
        self._connection_errors: dict[str, str] = {}  # by host
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._evaluate_connections)
        self.devices: dict[str, str] = {}
        """Titles of all devices that rules can cover, by key."""

    # Alerts and rules

    @property
    def active_alerts(self) -> tuple[Alert, ...]:
        """Active alerts: errors first, then the newest ones."""
        active = [alert for alert in self._alerts.values() if alert.ended is None]
        return tuple(sorted(active, key=lambda alert: (alert.severity != "error", -alert.since, -alert.number)))

    @property
    def unacknowledged(self) -> tuple[Alert, ...]:
        """Active alerts that haven't been acknowledged."""
        return tuple(alert for alert in self.active_alerts if not alert.acknowledged)

    @property
    def device_warnings(self) -> dict[str, tuple[Problem, ...]]:
        """Active alerts that matter to the next run on a device, as warnings about the job, by device id.

        Full memory doesn't count if a local run uses it, because the next run would wait for that run.
        """
        warnings: dict[str, tuple[Problem, ...]] = {}
        for alert in self.active_alerts:
            if alert.kind in _CONCERN_RUNS and not (alert.kind == "memory" and alert.device in self._run_names):
                problem = Problem("devices", alert.sentence, KINDS[alert.kind].remedy, "warning")
                warnings[alert.device] = (*warnings.get(alert.device, ()), problem)
        return warnings

    @property
    def history(self) -> tuple[Alert, ...]:
        """Most recent alerts, newest first, including active ones."""
        return tuple(reversed(self._alerts.values()))

    @property
    def rules(self) -> Mapping[KindId, Rule]:
        return self._rules

    def set_rule(self, rule: Rule) -> None:
        """Set and save the rule for its kind of alert, and emit `rules_changed` if it differs. `rule` must be valid.

        If anything except the notification has changed, active alerts of this kind end.
        """
        previous_rule = self._rules[rule.kind]
        if rule == previous_rule:
            return
        self._rules[rule.kind] = rule
        # Alerts of a rule stay if only its notification has changed. Otherwise, the rule is evaluated from the start.
        if msgspec.structs.replace(previous_rule, notify=rule.notify) != rule:
            self._remove_watches(lambda key: key.kind == rule.kind)
        self._set_problem(self._store.save(self._rules))
        self.rules_changed.emit()
        self._evaluate_connections()  # other rules are evaluated with the next snapshots

    def acknowledge(self, number: int) -> None:
        """Acknowledge the alert with this number, unless it has ended. An alert for an event ends then."""
        alert = self._alerts.get(number)
        if alert is None or alert.ended is not None or alert.acknowledged:
            return
        self._alerts[number] = replace(alert, acknowledged=True)
        if KINDS[alert.kind].event:
            key = next(key for key, watch in self._watches.items() if watch.alert == number)
            last_snapshot_time = self._snapshot_times.get(alert.host, alert.since)
            self._end_alert(key, max(alert.since, last_snapshot_time))
        else:
            self.changed.emit()

    def acknowledge_all(self) -> None:
        for alert in self.unacknowledged:
            self.acknowledge(alert.number)

    # Snapshots and errors

    def evaluate(self, host: str, snapshot: Snapshot, run_names: Mapping[str, str]) -> None:
        """Evaluate a snapshot of `host` ("" for this machine). Alerts are raised, updated and ended accordingly.

        `run_names` contains the names of the runs on GPUs, by `device_key`.
        """
        now, self._run_names = snapshot.time, run_names
        self._connection_errors.pop(host, None)
        self._reset_after_gap(host, now)
        observations = self._evaluate_nvml(host, snapshot)
        if snapshot.nvml.status == "ok":
            for gpu in snapshot.gpus:
                observations |= self._evaluate_gpu(host, gpu, now)
        previous_keys = [key for key in self._watches if key.host == host and key not in observations]
        for key in (*observations, *previous_keys):
            # While NVML is silent, its last values neither sustain nor end an alert.
            if key.source != "device" or snapshot.nvml.status == "ok":
                self._update_watch(key, observations.get(key), now)

    def set_connection_error(self, host: str, message: str) -> None:
        """Set the error of the connection to `host`, or "" if it is solved."""
        if message:
            self._connection_errors[host] = message
        elif self._connection_errors.pop(host, None):
            self._update_watch(_make_key("not_answering", _make_connection_subject(host)), None, self._clock())
        self._evaluate_connections()

    def forget_host(self, host: str) -> None:
        """Remove readings, alert conditions and devices of a host. The devices of this machine ("") remain."""
        self._connection_errors.pop(host, None)
        self._snapshot_times.pop(host, None)
        self._responsive_hosts.discard(host)
        self._remove_watches(lambda key: key.host == host)
        if host:
            removed = [key for key in self.devices if host_of(key) == host]
            for key in removed:
                del self.devices[key], self._trackers[key]
        self.changed.emit()

    def _evaluate_gpu(self, host: str, gpu: Gpu, now: float) -> dict[_Key, _Observation]:
        """Evaluate all rules for a GPU, and return the findings about it.

        Also adds the GPU to `devices`, and raises alerts for new events. `now` is the time of the snapshot.
        """
        device = device_key(host, gpu.uuid)
        title = f"{host}: {gpu_title(gpu)}" if host else gpu_title(gpu)
        subject = _Subject(host, device, title, "device")
        if self.devices.get(device) != title:
            self.devices[device] = title
            self.changed.emit()
        observations = {}
        for rule in self._rules.values():
            if rule.covers(device):
                finding = evaluate_rule(rule, gpu, self._run_names.get(device))
                if finding is not None:
                    observations[_make_key(rule.kind, subject)] = _Observation(subject, finding)
        tracker = self._trackers.setdefault(device, EventTracker())
        for event in tracker.find_new_xids(gpu):
            self._add_event("xid", subject, event)
        for event in tracker.find_new_memory_errors(gpu, now):
            self._add_event("memory_errors", subject, event)
        return observations

    def _evaluate_nvml(self, host: str, snapshot: Snapshot) -> dict[_Key, _Observation]:
        """Return a finding if the GPU driver of `host` doesn't respond, otherwise {}.

        A machine without GPU or driver gets none unless it had one before.
        """
        nvml = snapshot.nvml
        if nvml.status == "ok":
            self._responsive_hosts.add(host)
        elif host in self._responsive_hosts or nvml.status in ("not_answering", "error"):
            subject = _Subject(host, "", _format_host_title(host), "nvml")
            if self._rules["not_answering"].on:
                return {_make_key("not_answering", subject): _Observation(subject, Finding(nvml.message))}
        return {}

    def _evaluate_connections(self) -> None:
        """Evaluate the rule about hosts that don't respond.

        If a host hasn't been silent for the duration of the rule, schedule the next evaluation for the end of it.
        """
        rule = self._rules["not_answering"]
        if not rule.on:
            return
        now = self._clock()
        for host, message in self._connection_errors.items():
            subject = _make_connection_subject(host)
            self._update_watch(_make_key("not_answering", subject), _Observation(subject, Finding(message)), now)
        remaining_s = [  # of conditions that haven't been present for the duration of the rule
            watch.since + rule.for_s - now
            for key, watch in self._watches.items()
            if key.host in self._connection_errors
            and key.source == "connection"
            and watch.alert is None
            and watch.since is not None
        ]
        if remaining_s:
            self._timer.start(max(1, int(1000 * min(remaining_s)) + 1))  # rounded up, so that the duration has passed

    # State of each rule

    def _update_watch(self, key: _Key, observation: _Observation | None, now: float) -> None:
        """Update the state of an alert rule for a device or host: raise, update or end its alert.

        `observation` is None if the condition of the rule isn't met.
        """
        watch = self._watches.get(key)
        if watch is not None and watch.alert is not None:
            if KINDS[key.kind].event:
                return  # it ends when it is acknowledged
            if observation is not None:
                watch.calm_since = None
                self._update_text(watch.alert, *observation)
            elif watch.calm_since is None:
                watch.calm_since = now
            elif now - watch.calm_since >= CALM_S:
                self._end_alert(key, watch.calm_since)
        elif observation is not None and observation.finding.can_raise:
            watch = self._watches.setdefault(key, _Watch(since=now))
            if watch.since is not None and now - watch.since >= self._rules[key.kind].for_s:
                subject, finding = observation
                self._raise(watch, key.kind, subject, Event(finding.text, watch.since, KINDS[key.kind].severity))
        elif watch is not None:  # the condition has ended before the duration of the rule
            del self._watches[key]

    def _add_event(self, kind: KindId, subject: _Subject, event: Event) -> None:
        """Raise an alert for an event, or count the event in the active alert."""
        if not self._rules[kind].covers(subject.device):
            return
        watch = self._watches.setdefault(_make_key(kind, subject), _Watch())
        if watch.alert is None:
            self._raise(watch, kind, subject, event)
            return
        previous = self._alerts[watch.alert]
        severity: Severity = "error" if "error" in (previous.severity, event.severity) else "warning"
        repeated = replace(previous, text=event.text, severity=severity, times=previous.times + 1)
        self._alerts[watch.alert] = repeated
        self.raised.emit(repeated)
        self.changed.emit()

    def _raise(self, watch: _Watch, kind: KindId, subject: _Subject, event: Event) -> None:
        """Add an alert for `watch` and emit it. Of more than `CAPACITY` alerts, remove the oldest ended ones."""
        number = watch.alert = next(self._numbers)
        alert = Alert(number, kind, subject.host, subject.device, subject.title, event.text, event.severity, event.time)
        self._alerts[number] = alert
        ended_numbers = [ended_number for ended_number, old in self._alerts.items() if old.ended is not None]
        for ended_number in ended_numbers[: max(0, len(self._alerts) - CAPACITY)]:
            del self._alerts[ended_number]
        self.raised.emit(alert)
        self.changed.emit()

    def _update_text(self, number: int, subject: _Subject, finding: Finding) -> None:
        """Update the text of an alert about a host that doesn't respond. Alerts about GPUs keep their first text."""
        alert = self._alerts[number]
        if subject.source != "device" and alert.text != finding.text:
            self._alerts[number] = replace(alert, text=finding.text)
            self.changed.emit()

    def _end_alert(self, key: _Key, end_time: float) -> None:
        """Forget the state of an alert rule for a device or host, and mark its alert, if any, as ended."""
        watch = self._watches.pop(key)
        if watch.alert is not None:
            ended = replace(self._alerts[watch.alert], ended=end_time)
            self._alerts[watch.alert] = ended
            self.cleared.emit(ended)
            self.changed.emit()

    def _remove_watches(self, matches: Callable[[_Key], bool]) -> None:
        """Forget the rule states whose keys pass `matches`, and end their alerts."""
        for key in [key for key in self._watches if matches(key)]:
            self._end_alert(key, self._snapshot_times.get(key.host, self._clock()))

    def _reset_after_gap(self, host: str, now: float) -> None:
        """Restart the durations of a host's conditions if its snapshots were interrupted before the one at `now`.

        Active alerts stay active. The time `now` is stored for the next call.
        """
        previous_time = self._snapshot_times.get(host)
        self._snapshot_times[host] = now
        if previous_time is None or 0 <= now - previous_time <= GAP_S:
            return
        for key, watch in list(self._watches.items()):
            if key.host != host:
                continue
            watch.calm_since = None
            if watch.alert is None:
                del self._watches[key]

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.message.emit(problem)


def _make_key(kind: KindId, subject: _Subject) -> _Key:
    return _Key(kind, subject.host, subject.device, subject.source)


def _make_connection_subject(host: str) -> _Subject:
    return _Subject(host, "", _format_host_title(host), "connection")


def _format_host_title(host: str) -> str:
    return host or tr("This machine")
