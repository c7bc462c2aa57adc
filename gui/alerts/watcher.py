"""Watches what comes from the hosts by the user's rules, and says what is to be known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.devices import Gpu, Snapshot, device_key, gpu_title, host_of
from engine.contract.problems import Severity
from gui.alerts.detectors import Event, Finding, News, find
from gui.alerts.rule_store import RuleStore
from gui.alerts.rules import KINDS, KindId, Rule

CALM_S = 10.0
"""An active alert ends after this time without a finding, so that it does not flicker."""
GAP_S = 60.0
"""After a gap of this length (a suspended laptop, a changed clock), conditions count as new."""
KEPT = 200
"""Capacity of the alert history."""


@dataclass(frozen=True)
class Alert:
    """Something that a rule found on a device, or on a host where `device` is "".

    `since` is when it began, `ended` when it was over (seconds since the epoch, by the host's clock); `times` counts
    how often an event has happened since it was last acknowledged.
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
    def what(self) -> str:
        """ "Temperature", or "Xid error, 3 times"."""
        return KINDS[self.kind].title + (f", {self.times} times" if self.times > 1 else "")

    @property
    def sentence(self) -> str:
        return f"{self.title} – {self.what}: {self.text}"


@dataclass(frozen=True)
class _Subject:
    """What an alert is about. `source` tells apart what is told of one thing in different ways."""

    host: str
    device: str
    title: str
    source: str = ""


@dataclass
class _Watch:
    """One rule on one subject: since when something is found there, and since when nothing any more."""

    began: float | None = None
    calm: float | None = None
    alert: int | None = None


_Key = tuple[KindId, str, str, str]


class Alerts(QObject):
    """What is in force now, what was, and the rules.

    Time is the snapshots' own, so that a slow or stopped window invents nothing. An alert that has been acknowledged
    stays in force while its cause lasts; one of an event ends with that.

    Signals:
        raised(Alert): something is to be known.
        cleared(Alert): it is over.
        changed(): `in_force`, `history` or `devices` has changed.
        rules_changed(): `rules` has.
        message(str): what went wrong with the file of the rules; "" once it is well.
        test_wanted(object): the user wants to see a notification; the function that comes with it is to be called with
            how that went, in words.
    """

    raised = Signal(object)
    cleared = Signal(object)
    changed = Signal()
    rules_changed = Signal()
    message = Signal(str)
    test_wanted = Signal(object)

    def __init__(
        self, parent: QObject | None = None, *, folder: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`folder` is where the rules are kept, Footplate's home by default. `clock` tells when a host fell silent."""
        super().__init__(parent)
        self._store = RuleStore(folder)
        self._clock = clock
        self._rules, self.problem = self._store.load()
        self._numbers = count(1)
        self._alerts: dict[int, Alert] = {}
        self._watches: dict[_Key, _Watch] = {}
        self._news: dict[str, News] = {}
        self._last: dict[str, float] = {}
        self._answered: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._look_at_troubles)
        self.devices: dict[str, str] = {}
        """The devices that rules can be for: their titles by their keys."""

    # What there is

    @property
    def in_force(self) -> tuple[Alert, ...]:
        """Errors before warnings, then the newest first."""
        now = [alert for alert in self._alerts.values() if alert.ended is None]
        return tuple(sorted(now, key=lambda alert: (alert.severity != "error", -alert.since, -alert.number)))

    @property
    def unseen(self) -> tuple[Alert, ...]:
        """Those in force that have not been acknowledged."""
        return tuple(alert for alert in self.in_force if not alert.acknowledged)

    @property
    def history(self) -> tuple[Alert, ...]:
        """The last alerts, those in force among them, the newest first."""
        return tuple(reversed(self._alerts.values()))

    @property
    def rules(self) -> Mapping[KindId, Rule]:
        return self._rules

    def set_rule(self, rule: Rule) -> None:
        """Puts `rule`, which has no problems, in the place of the one of its kind, and keeps it."""
        before = self._rules[rule.kind]
        if rule == before:
            return
        self._rules[rule.kind] = rule
        if msgspec.structs.replace(before, notify=rule.notify) != rule:
            self._forget(lambda key: key[0] == rule.kind)
        self._say(self._store.save(self._rules))
        self.rules_changed.emit()
        self._look_at_troubles()

    def acknowledge(self, number: int) -> None:
        """The user has seen that alert."""
        alert = self._alerts.get(number)
        if alert is None or alert.ended is not None or alert.acknowledged:
            return
        self._alerts[number] = replace(alert, acknowledged=True)
        if KINDS[alert.kind].event:
            key = next(key for key, watch in self._watches.items() if watch.alert == number)
            self._clear(key, max(alert.since, self._last.get(alert.host, alert.since)))
        else:
            self.changed.emit()

    def acknowledge_all(self) -> None:
        for alert in self.unseen:
            self.acknowledge(alert.number)

    # What comes in

    def consider(self, host: str, snapshot: Snapshot, holding: Mapping[str, str]) -> None:
        """Looks at what `host` ("" for this machine) saw; `holding` names the run that holds each GPU, by
        `device_key`.
        """
        now = snapshot.time
        self._troubles.pop(host, None)
        self._notice_gap(host, now)
        found: dict[_Key, tuple[_Subject, Finding]] = {}
        self._look_at_nvml(host, snapshot, found)
        if snapshot.nvml.status == "ok":
            for gpu in snapshot.gpus:
                self._look_at_gpu(host, gpu, now, holding, found)
        for key in dict.fromkeys((*found, *(key for key in self._watches if key[1] == host))):
            # While NVML is silent, what it last said of the GPUs neither holds nor ends.
            if key[3] != "device" or snapshot.nvml.status == "ok":
                self._step(key, found.get(key), now)

    def trouble(self, host: str, words: str) -> None:
        """What is wrong with the connection to `host`, in words; "" once all is well."""
        if words:
            self._troubles[host] = words
        elif self._troubles.pop(host, None):
            self._step(_key("not_answering", _connection(host)), None, self._clock())
        self._look_at_troubles()

    def forget_host(self, host: str) -> None:
        """`host` is not watched any more."""
        self._troubles.pop(host, None)
        self._last.pop(host, None)
        self._answered.discard(host)
        self._forget(lambda key: key[1] == host)
        if host:
            gone = [key for key in self.devices if host_of(key) == host]
            for key in gone:
                del self.devices[key], self._news[key]
        self.changed.emit()

    def _look_at_gpu(
        self, host: str, gpu: Gpu, now: float, holding: Mapping[str, str], found: dict[_Key, tuple[_Subject, Finding]]
    ) -> None:
        device = device_key(host, gpu.uuid)
        title = f"{host}: {gpu_title(gpu)}" if host else gpu_title(gpu)
        subject = _Subject(host, device, title, "device")
        if self.devices.get(device) != title:
            self.devices[device] = title
            self.changed.emit()
        for rule in self._rules.values():
            if rule.covers(device):
                finding = find(rule, gpu, holding.get(device))
                if finding is not None:
                    found[_key(rule.kind, subject)] = subject, finding
        news = self._news.setdefault(device, News())
        for event in news.xids(gpu):
            self._happened("xid", subject, event)
        for event in news.memory_errors(gpu, now):
            self._happened("memory_errors", subject, event)

    def _look_at_nvml(self, host: str, snapshot: Snapshot, found: dict[_Key, tuple[_Subject, Finding]]) -> None:
        nvml = snapshot.nvml
        if nvml.status == "ok":
            self._answered.add(host)
        # A machine without a GPU or a driver is no fault, until it had one.
        elif host in self._answered or nvml.status in ("not_answering", "error"):
            subject = _Subject(host, "", _host_title(host), "nvml")
            if self._rules["not_answering"].on:
                found[_key("not_answering", subject)] = subject, Finding(nvml.message)

    def _look_at_troubles(self) -> None:
        rule = self._rules["not_answering"]
        if not rule.on:
            return
        now = self._clock()
        for host, words in self._troubles.items():
            subject = _connection(host)
            self._step(_key("not_answering", subject), (subject, Finding(words)), now)
        waiting = [
            watch.began + rule.for_s - now
            for key, watch in self._watches.items()
            if key[1] in self._troubles and key[3] == "connection" and watch.alert is None and watch.began is not None
        ]
        if waiting:
            self._timer.start(max(1, int(1000 * min(waiting)) + 1))

    # What becomes of it

    def _step(self, key: _Key, found: tuple[_Subject, Finding] | None, now: float) -> None:
        watch = self._watches.get(key)
        if watch is not None and watch.alert is not None:
            if KINDS[key[0]].event:
                return
            if found is not None:
                watch.calm = None
                self._tell_on(watch.alert, *found)
            elif watch.calm is None:
                watch.calm = now
            elif now - watch.calm >= CALM_S:
                self._clear(key, watch.calm)
        elif found is not None and found[1].full:
            watch = self._watches.setdefault(key, _Watch(began=now))
            if watch.began is not None and now - watch.began >= self._rules[key[0]].for_s:
                subject, finding = found
                self._raise(watch, key[0], subject, Event(finding.text, watch.began, KINDS[key[0]].severity))
        elif watch is not None:
            del self._watches[key]

    def _happened(self, kind: KindId, subject: _Subject, event: Event) -> None:
        """An event: a new alert, or one more of the kind that is in force."""
        if not self._rules[kind].covers(subject.device):
            return
        watch = self._watches.setdefault(_key(kind, subject), _Watch())
        if watch.alert is None:
            self._raise(watch, kind, subject, event)
            return
        before = self._alerts[watch.alert]
        severity: Severity = "error" if "error" in (before.severity, event.severity) else "warning"
        again = replace(before, text=event.text, severity=severity, times=before.times + 1, acknowledged=False)
        self._alerts[watch.alert] = again
        self.raised.emit(again)
        self.changed.emit()

    def _raise(self, watch: _Watch, kind: KindId, subject: _Subject, event: Event) -> None:
        number = watch.alert = next(self._numbers)
        alert = Alert(number, kind, subject.host, subject.device, subject.title, event.text, event.severity, event.time)
        self._alerts[number] = alert
        over = [number for number, old in self._alerts.items() if old.ended is not None]
        for old in over[: max(0, len(self._alerts) - KEPT)]:
            del self._alerts[old]
        self.raised.emit(alert)
        self.changed.emit()

    def _tell_on(self, number: int, subject: _Subject, finding: Finding) -> None:
        """Why a host does not answer may change; what a GPU did when its alert was raised is history."""
        alert = self._alerts[number]
        if subject.source != "device" and alert.text != finding.text:
            self._alerts[number] = replace(alert, text=finding.text)
            self.changed.emit()

    def _clear(self, key: _Key, when: float) -> None:
        watch = self._watches.pop(key)
        if watch.alert is not None:
            ended = replace(self._alerts[watch.alert], ended=when)
            self._alerts[watch.alert] = ended
            self.cleared.emit(ended)
            self.changed.emit()

    def _forget(self, concerned: Callable[[_Key], bool]) -> None:
        for key in [key for key in self._watches if concerned(key)]:
            self._clear(key, self._last.get(key[1], self._clock()))

    def _notice_gap(self, host: str, now: float) -> None:
        before = self._last.get(host)
        self._last[host] = now
        if before is None or 0 <= now - before <= GAP_S:
            return
        for key, watch in list(self._watches.items()):
            if key[1] != host:
                continue
            watch.calm = None
            if watch.alert is None:
                del self._watches[key]

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.message.emit(problem)


def _key(kind: KindId, subject: _Subject) -> _Key:
    return kind, subject.host, subject.device, subject.source


def _connection(host: str) -> _Subject:
    return _Subject(host, "", _host_title(host), "connection")


def _host_title(host: str) -> str:
    return host or "This machine"
