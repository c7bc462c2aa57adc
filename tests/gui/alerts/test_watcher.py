"""Alerts that are raised and cleared in simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.devices import Ecc, Gpu, RetiredMemory, Xid
from gui.alerts.rules import DEFAULTS, KINDS
from gui.alerts.watcher import CALM_S, CAPACITY, GAP_S, Alerts
from tests.gui.alerts.conftest import START, AlertsRecorder
from tests.gui.sources.devices.snapshots import UUIDS, gpu

CALM = int(CALM_S) + 2


def make_hot_gpu(temperature_c: float | None = 93.0, **changes: object) -> Gpu:
    """Return a GPU that slows down at 90 °C, by default with a temperature of 93 °C.

    `changes` override its other readings.
    """
    return gpu(0, temperature_c=temperature_c, slowdown_c=90.0, **changes)


def test_alert_ends_after_calm(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(), seconds=15)
    watched.feed(make_hot_gpu(60), seconds=int(CALM_S))
    assert watched.kinds == ["temperature"]
    watched.feed(make_hot_gpu(60))
    assert watched.kinds == []
    (alert,) = watched.cleared
    assert (alert.since, alert.ended) == (START + 1, START + 16)
    assert watched.alerts.history == (alert,)


def test_relapse_restarts_calm(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(), seconds=15)
    watched.feed(make_hot_gpu(60), seconds=int(CALM_S) // 2)
    watched.feed(make_hot_gpu())
    watched.feed(make_hot_gpu(60), seconds=int(CALM_S))
    assert watched.kinds == ["temperature"]
    watched.feed(make_hot_gpu(60))
    (alert,) = watched.cleared
    assert alert.ended == START + 15 + CALM_S // 2 + 2


def test_value_near_threshold_is_one_alert(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(91), seconds=15)
    for _ in range(40):
        watched.feed(make_hot_gpu(89), seconds=3)
        watched.feed(make_hot_gpu(91), seconds=1)
    watched.feed(make_hot_gpu(88), seconds=60)  # within the margin of three degrees
    assert [alert.text for alert in watched.alerts.history] == [alert.text for alert in watched.raised]
    assert len(watched.raised) == 1
    assert watched.cleared == []


def test_short_peak_raises_nothing(watched: AlertsRecorder) -> None:
    for _ in range(20):
        watched.feed(make_hot_gpu(), seconds=9)
        watched.feed(make_hot_gpu(85), seconds=1)
    assert watched.raised == []


@pytest.mark.parametrize(
    ("kind", "changes", "seconds", "text"),
    [
        ("temperature", {"temperature_c": 93.0, "slowdown_c": 90.0}, 11, "93 °C, at or above 90 °C for 10 s."),
        ("memory_temperature", {"memory_temperature_c": 96.0, "memory_max_c": 95.0}, 11, "96 °C, at or above 95 °C for 10 s."),
        (
            "memory",
            {"memory_total_bytes": 100 << 30, "memory_used_bytes": 96 << 30, "memory_reserved_bytes": 2 << 30},
            61, "98%, at or above 97% for 1 min.",
        ),
        ("throttled", {"throttled": ("power_cap", "thermal", "power_brake")}, 11, "Hot, power supply for 10 s."),
    ],
)  # fmt: skip
def test_alert_after_its_duration(
    watched: AlertsRecorder, kind: str, changes: dict[str, object], seconds: int, text: str
) -> None:
    watched.feed(gpu(0, **changes), seconds=seconds - 1)
    assert watched.kinds == []
    watched.feed(gpu(0, **changes))
    (alert,) = watched.raised
    assert (alert.kind, alert.text) == (kind, text)
    assert (alert.title, alert.device, alert.since) == ("GPU 1", UUIDS[0], START + 1)


def test_user_threshold_overrides_gpu_limit(watched: AlertsRecorder) -> None:
    watched.set("temperature", threshold=70.0, for_s=0.0)
    watched.feed(make_hot_gpu(71))
    assert watched.raised[0].text == "71 °C, at or above 70 °C."


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature_c": None},
        {"slowdown_c": None, "throttled": ("idle", "power_cap", "sync_boost", "clocks_setting")},
        {"temperature_c": 60.0, "memory_total_bytes": 100 << 30, "memory_used_bytes": 96 << 30},
        {"slowdown_c": None},
        {"asleep": True},
        {"temperature_c": 60.0, "utilization_percent": None},
    ],
)
def test_unknown_or_harmless_value_raises_nothing(watched: AlertsRecorder, changes: dict[str, object]) -> None:
    hot_gpu = {"temperature_c": 120.0, "slowdown_c": 90.0}
    watched.feed(gpu(0, **(hot_gpu | changes)), seconds=700, holding={UUIDS[0]: "flowers"})
    assert watched.raised == []


def test_power_alert_is_off_by_default(watched: AlertsRecorder) -> None:
    full = gpu(0, power_w=701.0, power_limit_w=700.0)
    watched.feed(full, seconds=120)
    assert watched.raised == []
    watched.set("power", on=True)
    watched.feed(full, seconds=61)
    assert watched.kinds == ["power"]


def test_idle_alert_needs_run(watched: AlertsRecorder) -> None:
    idle = gpu(0, utilization_percent=2.0)
    watched.feed(idle, seconds=700)
    watched.feed(idle, seconds=500, holding={UUIDS[0]: "flowers"})
    watched.feed(idle, seconds=1)
    watched.feed(idle, seconds=500, holding={UUIDS[0]: "flowers"})
    assert watched.raised == []
    watched.feed(idle, seconds=101, holding={UUIDS[0]: "flowers"})
    assert [alert.text for alert in watched.raised] == ["Held by flowers and only 2% utilized, below 5% for 10 min."]


def test_xid_alert_until_acknowledged(watched: AlertsRecorder) -> None:
    watched.feed(gpu(0, xids=(Xid(START, 79),)))
    watched.feed(gpu(0, xids=(Xid(START, 79),)), seconds=600)
    (alert,) = watched.raised
    assert (alert.text, alert.severity, alert.since) == ("Xid 79: the GPU has fallen off the bus.", "error", START)
    assert watched.kinds == ["xid"]
    watched.alerts.acknowledge(alert.number)
    assert watched.kinds == []
    watched.feed(gpu(0, xids=(Xid(START, 79), Xid(START + 9000, 79))))  # the clock of the driver is ahead
    watched.alerts.acknowledge_all()
    assert [(ended.number, ended.acknowledged, ended.ended) for ended in watched.cleared] == [
        (alert.number, True, START + 601),
        (alert.number + 1, True, START + 9000),
    ]


def test_repeated_xid_is_counted(watched: AlertsRecorder) -> None:
    first, second = Xid(START, 13), Xid(START + 5, 94)
    watched.feed(gpu(0, xids=(first,)))
    watched.feed(gpu(0, xids=(first, second)))
    assert [(alert.counted_title, alert.severity) for alert in watched.raised] == [
        ("Xid error", "warning"),
        ("Xid error, 2 times", "error"),
    ]
    assert [alert.text[:6] for alert in watched.reported_alerts] == ["Xid 94"]
    watched.feed(gpu(0, xids=(first, second, Xid(START + 6, 13))))
    assert watched.raised[-1].severity == "error"


def test_memory_errors_alert_on_increase(watched: AlertsRecorder) -> None:
    watched.feed(gpu(0, ecc=Ecc(uncorrected=4)), seconds=60)
    assert watched.raised == []
    watched.feed(gpu(0, ecc=Ecc(uncorrected=6)))
    assert watched.raised[0].text == "2 new errors ECC could not correct."
    watched.feed(gpu(0, ecc=Ecc(uncorrected=0)))  # the driver was reloaded
    watched.feed(gpu(0, ecc=Ecc(uncorrected=1)))
    assert watched.raised[1].text == "1 new error ECC could not correct."
    watched.alerts.acknowledge_all()
    watched.feed(gpu(0, retired=RetiredMemory(rows_failed=True)), seconds=5)
    assert [alert.kind for alert in watched.raised] == ["memory_errors"] * 3


def test_lost_gpu_alert_ends_on_return(watched: AlertsRecorder) -> None:
    watched.feed(gpu(0))
    watched.feed(make_hot_gpu(lost=True, lost_since=START), gpu(1), seconds=20)  # its last values are ignored
    assert [(alert.kind, alert.device) for alert in watched.alerts.active_alerts] == [("lost", UUIDS[0])]
    watched.feed(gpu(0), gpu(1), seconds=CALM)
    assert watched.kinds == []
    watched.feed(gpu(0), gpu(1, lost=True))
    assert ["can no longer" in alert.text for alert in watched.raised] == [True, False]


def test_silent_nvml_alert(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(), seconds=15)
    watched.feed(seconds=40, status="not_answering", message="NVML has not answered for 40 s.")
    assert watched.kinds == ["not_answering", "temperature"]
    assert watched.reported_alerts[0].text == "NVML has not answered for 40 s."
    watched.feed(status="not_answering", message="NVML has not answered for 41 s.")
    assert watched.reported_alerts[0].text == "NVML has not answered for 41 s."
    watched.feed(make_hot_gpu(60), seconds=CALM)
    assert watched.kinds == []


def test_missing_driver_alert_needs_earlier_gpu(watched: AlertsRecorder) -> None:
    watched.feed(seconds=60, status="no_library", message="No driver.")
    assert watched.raised == []
    watched.feed(gpu(0))
    watched.feed(seconds=20, status="version_mismatch", message="The driver was upgraded.")
    assert [alert.text for alert in watched.raised] == ["The driver was upgraded."]
    watched.feed(seconds=20, status="error", message="It failed.", host="box")
    assert [alert.host for alert in watched.raised] == ["", "box"]
    watched.set("not_answering", on=False)
    watched.feed(seconds=20, status="error", message="It failed.", host="tower")
    assert watched.kinds == []


def test_silent_host_alert(watched: AlertsRecorder) -> None:
    watched.feed(gpu(0), host="box")
    watched.alerts.set_connection_error("box", "The connection was refused.")
    assert watched.raised == []
    watched.now += DEFAULTS["not_answering"].for_s
    watched.alerts.set_connection_error("box", "The connection was refused.")
    assert [(alert.title, alert.text) for alert in watched.raised] == [("box", "The connection was refused.")]
    watched.alerts.set_connection_error("box", "")
    solved_at = watched.now
    watched.now += 5
    watched.feed(gpu(0), host="box", seconds=CALM)
    assert watched.kinds == []
    assert watched.cleared[0].ended == solved_at
    for host in ("box", "tower", "rack"):
        watched.alerts.set_connection_error(host, "The connection was refused.")
    watched.feed(gpu(0), host="box")
    watched.alerts.forget_host("tower")
    watched.set("not_answering", for_s=0.0)
    assert [alert.host for alert in watched.alerts.active_alerts] == ["rack"]


def test_silent_host_alert_by_timer(watched: AlertsRecorder, qtbot: QtBot) -> None:
    watched.set("not_answering", for_s=60.0)
    watched.alerts.set_connection_error("box", "The name is not known.")
    watched.now += 59.875
    watched.alerts.set_connection_error("tower", "The name is not known.")
    watched.now += 0.125
    with qtbot.waitSignal(watched.alerts.raised):
        pass  # a timer repeats the check


def test_hosts_are_evaluated_separately(watched: AlertsRecorder) -> None:
    idle = gpu(0, utilization_percent=0.0)
    watched.feed(idle, host="box", seconds=700, holding={UUIDS[0]: "flowers"})
    assert watched.raised == []
    watched.feed(make_hot_gpu(), host="box", seconds=11)
    assert [(alert.host, alert.device, alert.title) for alert in watched.raised] == [
        ("box", f"box:{UUIDS[0]}", "box: GPU 1")
    ]
    watched.feed(gpu(0), gpu(1, xids=(Xid(START, 79),)), host="box")
    watched.feed(gpu(0))
    changes: list[dict[str, str]] = []
    watched.alerts.changed.connect(lambda: changes.append({**watched.alerts.devices}))
    watched.alerts.forget_host("box")
    assert watched.kinds == []
    assert watched.alerts.devices == changes[-1] == {UUIDS[0]: "GPU 1"}
    watched.alerts.forget_host("")
    assert watched.alerts.devices == {UUIDS[0]: "GPU 1"}
    watched.feed(seconds=20, status="no_library", host="box")
    assert watched.kinds == []
    watched.feed(gpu(1, xids=(Xid(START, 79),)), host="box")
    assert watched.kinds == ["xid"]


def test_devices_follow_the_numbers_of_gpus(watched: AlertsRecorder) -> None:
    changes: list[dict[str, str]] = []
    watched.alerts.changed.connect(lambda: changes.append({**watched.alerts.devices}))
    for number in (1, 1, 0):
        watched.feed(gpu(0, cuda_index=number))
    assert changes == [{UUIDS[0]: "GPU 1"}, {UUIDS[0]: "GPU 0"}]


def test_rule_covers_chosen_devices(watched: AlertsRecorder) -> None:
    watched.set("temperature", devices=(UUIDS[1],))
    watched.feed(make_hot_gpu(), gpu(1, temperature_c=95.0, slowdown_c=90.0), seconds=11)
    assert [alert.device for alert in watched.raised] == [UUIDS[1]]


def test_changed_rule_is_evaluated_again(watched: AlertsRecorder) -> None:
    emitted: list[None] = []
    watched.alerts.rules_changed.connect(lambda: emitted.append(None))
    watched.feed(make_hot_gpu(), seconds=11)
    for _ in range(2):
        watched.set("temperature", threshold=95.0)
        assert (watched.kinds, len(emitted)) == ([], 1)
    watched.feed(make_hot_gpu(), seconds=30)
    assert len(watched.raised) == 1
    watched.set("temperature", threshold=None)
    watched.feed(make_hot_gpu(), seconds=11)
    watched.set("temperature", notify=False)  # which does not concern the condition
    assert watched.kinds == ["temperature"]
    watched.set("temperature", on=False)
    watched.feed(make_hot_gpu(), seconds=30)
    assert watched.kinds == []


def test_old_xid_is_ignored_by_new_rule(watched: AlertsRecorder) -> None:
    watched.set("xid", on=False)
    watched.feed(gpu(0, xids=(Xid(START, 79),)))
    watched.set("xid", on=True)
    watched.feed(gpu(0, xids=(Xid(START, 79),)), seconds=5)
    assert watched.raised == []


@pytest.mark.parametrize("jump_s", [GAP_S + 100, -3600.0])
def test_time_gap_restarts_condition(watched: AlertsRecorder, jump_s: float) -> None:
    watched.feed(make_hot_gpu(), seconds=3)
    watched.now += jump_s
    watched.feed(make_hot_gpu(), seconds=10)
    assert watched.raised == []
    watched.feed(make_hot_gpu())
    assert watched.kinds == ["temperature"]
    watched.feed(make_hot_gpu(60), seconds=5)
    watched.now += jump_s
    watched.feed(make_hot_gpu(60), seconds=int(CALM_S))
    assert watched.kinds == ["temperature"]


def test_longest_pause_restarts_no_condition(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(), seconds=3)
    watched.now += GAP_S - 1
    watched.feed(make_hot_gpu())
    assert watched.kinds == ["temperature"]


def test_gap_of_another_host_restarts_no_condition(watched: AlertsRecorder) -> None:
    watched.feed(gpu(0), host="box")
    watched.feed(gpu(0), seconds=int(GAP_S) + 1)
    watched.feed(make_hot_gpu(), seconds=5)
    watched.feed(gpu(0), host="box")
    watched.feed(make_hot_gpu(), seconds=6)
    assert watched.kinds == ["temperature"]


def test_acknowledged_alert_stays_active(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(), seconds=11)
    (alert,) = watched.raised
    changes: list[bool] = []
    watched.alerts.changed.connect(lambda: changes.append(watched.alerts.history[0].acknowledged))
    for number in (alert.number, alert.number, 999):
        watched.alerts.acknowledge(number)
    assert changes == [True]
    watched.feed(make_hot_gpu(), seconds=60)
    assert watched.kinds == ["temperature"]
    assert watched.alerts.unacknowledged == ()
    assert len(watched.raised) == 1
    watched.feed(make_hot_gpu(60), seconds=CALM)
    watched.feed(make_hot_gpu(), seconds=11)
    watched.feed(make_hot_gpu(60), seconds=CALM)
    watched.alerts.acknowledge(watched.raised[1].number)
    assert [ended.acknowledged for ended in watched.alerts.history] == [False, True]


def test_active_alerts_order(watched: AlertsRecorder) -> None:
    watched.feed(make_hot_gpu(xids=(Xid(START + 1, 79),)))
    watched.feed(make_hot_gpu(), gpu(1, temperature_c=95.0, slowdown_c=90.0, xids=(Xid(START + 50, 79),)), seconds=11)
    assert [alert.kind for alert in watched.alerts.active_alerts] == ["xid", "xid", "temperature", "temperature"]
    assert [alert.device for alert in watched.alerts.active_alerts[:2]] == [UUIDS[1], UUIDS[0]]


def test_history_is_limited(watched: AlertsRecorder) -> None:
    watched.feed(gpu(1, lost=True, lost_since=START))
    for n in range(CAPACITY + 20):
        watched.feed(gpu(0, xids=(Xid(START + 10 + n, 79),)), gpu(1, lost=True, lost_since=START))
        watched.alerts.acknowledge(watched.alerts.active_alerts[0].number)
    history = watched.alerts.history
    assert len(history) == CAPACITY
    assert [alert.since for alert in history[:2]] == [START + CAPACITY + 29, START + CAPACITY + 28]
    assert history[-1].kind == "lost"  # active alerts are never dropped


def test_rules_are_saved(watched: AlertsRecorder, tmp_path: Path) -> None:
    watched.set("temperature", threshold=77.0)
    again = Alerts(folder=tmp_path)
    assert again.rules["temperature"].threshold == 77.0
    assert again.problem == ""
    (tmp_path / "alerts.json").write_text("{")
    damaged = Alerts(folder=tmp_path)
    assert "damaged" in damaged.problem
    assert damaged.rules == DEFAULTS


def test_unsaved_rule_applies(qapp: QApplication, tmp_path: Path, qtbot: QtBot) -> None:
    (tmp_path / "file").write_text("")
    watched = AlertsRecorder(tmp_path)
    watched.alerts = Alerts(watched, folder=tmp_path / "file")
    with qtbot.waitSignal(watched.alerts.message) as message:
        watched.set("temperature", threshold=77.0)
    assert "can't be saved" in message.args[0]
    assert watched.alerts.rules["temperature"].threshold == 77.0
    (tmp_path / "file").unlink()
    with qtbot.waitSignal(watched.alerts.message) as message:
        watched.set("temperature", threshold=78.0)
    assert message.args == [""]


def test_hot_and_throttled_gpu_warns_twice_but_not_of_power(watched: AlertsRecorder) -> None:
    watched.set("power", on=True)
    watched.feed(
        make_hot_gpu(throttled=("thermal",), power_w=701.0, power_limit_w=700.0), seconds=70, holding={UUIDS[0]: "run"}
    )
    assert set(watched.kinds) == {"temperature", "throttled", "power"}
    assert [problem.remedy for problem in watched.alerts.device_warnings[UUIDS[0]]] == [
        KINDS["temperature"].remedy,
        KINDS["throttled"].remedy,
    ]


@pytest.mark.parametrize(("holding", "warned"), [({}, True), ({UUIDS[0]: "run"}, False)])
def test_full_gpu_warns_the_next_job_unless_a_run_fills_it(
    watched: AlertsRecorder, holding: dict[str, str], warned: bool
) -> None:
    watched.feed(
        gpu(0, memory_used_bytes=99, memory_total_bytes=100, memory_reserved_bytes=0), seconds=90, holding=holding
    )
    assert watched.kinds == ["memory"]
    assert [problem.severity for problem in watched.alerts.device_warnings.get(UUIDS[0], ())] == ["warning"] * warned
