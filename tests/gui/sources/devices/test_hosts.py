"""Hosts (the local machine and others over ssh) with real samplers that read the NVML stub."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from engine.contract.device_history import HistoryWriter, history_file, read_history
from engine.contract.devices import SnapshotRequest
from engine.contract.hosts import Host, put_host
from engine.system import paths
from gui.sources.devices.hosts import Hosts
from gui.sources.devices.sampler import SamplerProcess
from tests.gui.conftest import FakeSsh
from tests.gui.sources.devices.snapshots import snapshot
from tests.support.nvml_stub import NvmlStub, make_gpu_profile, uuid_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in for ssh is a shell script")

Open = Callable[[], Hosts]


@pytest.fixture
def open_hosts(qtbot: QtBot) -> Iterator[Open]:
    """Return a function that creates a `Hosts` object. All such objects share the same settings."""
    created: list[Hosts] = []

    def make() -> Hosts:
        hosts = Hosts()
        created.append(hosts)
        return hosts

    yield make
    for hosts in created:
        hosts.stop()


def test_entry_of_this_machine_is_not_watched_a_second_time(open_hosts: Open) -> None:
    put_host(Host(name="", address="10.0.0.7"))
    put_host(Host(name="ws2"))
    hosts = open_hosts()
    assert hosts.names == ("ws2",)
    assert len(hosts.findChildren(SamplerProcess)) == 2
    assert {timer.interval() for timer in hosts.findChildren(QTimer)} == {0, 10_000, 40_000}


def test_hosts_add_watches_host(open_hosts: Open, ssh: FakeSsh, nvml_stub: NvmlStub, qtbot: QtBot) -> None:
    nvml_stub.write([make_gpu_profile(0, utilization=33, process=[f"{os.getpid()}:{1 << 30}"])])
    hosts = open_hosts()
    reported: set[str] = set()
    hosts.snapshot.connect(lambda host, _snapshot: reported.add(host))
    hosts.start()
    with qtbot.waitSignal(hosts.changed):
        hosts.add("anna@ws2")
    for host in ("", "anna@ws2"):
        qtbot.waitUntil(lambda host=host: host in hosts.latest and bool(hosts.latest[host].gpus))  # type: ignore[misc]
        assert hosts.latest[host].gpus[0].uuid == uuid_of(0)
        assert hosts.latest[host].gpus[0].utilization_percent == 33
    assert reported == {"", "anna@ws2"}
    assert hosts.errors == {}
    qtbot.waitUntil(lambda: bool(hosts.latest[""].gpus[0].processes))
    hosts.set_request(SnapshotRequest(processes=False))
    qtbot.waitUntil(lambda: not hosts.latest[""].gpus[0].processes)
    assert ssh.calls == [
        "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=2 -- "
        "anna@ws2 footplate gpus --json --watch"
    ]


def test_hosts_restore_history_of_last_start(open_hosts: Open, nvml_stub: NvmlStub, qtbot: QtBot) -> None:
    nvml_stub.write([make_gpu_profile(0, utilization=33)])
    paths.make_private_folder(paths.home())
    writer = HistoryWriter(history_file())
    before = time.time() - 600
    for number in range(3):
        writer.add(
            before + 30 * number, {uuid_of(0): {"utilization_percent": 10.0 * number}, "GPU-gone": {"power_w": 1}}
        )
    hosts = open_hosts()
    hosts.set_history(True)
    hosts.add_snapshot("ws2", snapshot(time=before))
    hosts.add_snapshot("", snapshot(time=time.time(), status="not_answering"))  # its GPUs are unknown
    hosts.start()
    history = hosts.history
    qtbot.waitUntil(lambda: uuid_of(0) in history.devices and history.times(uuid_of(0))[0] < before + 1)
    values = history.values(uuid_of(0), "utilization_percent")
    assert values[:3].tolist() == [0.0, 10.0, 20.0]
    assert values[-1] == 33
    assert "GPU-gone" not in history.devices
    qtbot.waitUntil(lambda: len(list(read_history(history_file()))) == 4)


@pytest.mark.parametrize("is_kept", [False, None])
def test_hosts_save_no_history_by_default(
    open_hosts: Open, nvml_stub: NvmlStub, qtbot: QtBot, is_kept: bool | None
) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    hosts = open_hosts()
    if is_kept is not None:
        hosts.set_history(True)
        hosts.set_history(is_kept)
    hosts.start()
    qtbot.waitUntil(lambda: "" in hosts.latest and bool(hosts.latest[""].gpus))
    assert not history_file().exists()


def test_hosts_report_and_recover_broken_connection(
    open_hosts: Open, ssh: FakeSsh, nvml_stub: NvmlStub, qtbot: QtBot
) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    hosts = open_hosts()
    errors: list[tuple[str, str]] = []
    hosts.error_changed.connect(lambda host, error: errors.append((host, error)))
    hosts.add("ws2")
    hosts.start()
    qtbot.waitUntil(lambda: "ws2" in hosts.latest)
    ssh.fail("ws2", "ssh: connect to host ws2 port 22: No route to host")
    os.kill(ssh.pid("ws2"), signal.SIGKILL)
    qtbot.waitUntil(lambda: "no route" in hosts.errors.get("ws2", ""))
    assert "" not in hosts.errors
    ssh.recovers("ws2")
    qtbot.waitUntil(lambda: hosts.errors == {})
    assert errors[-1] == ("ws2", "")
    assert errors[0][1] == "The sampler on ws2 has exited. Retrying in 0.5 s."
    assert "in 1 s" in errors[1][1]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (("ssh: Could not resolve hostname ws2: Name or service not known", 255), "ws2 can't be resolved"),
        (("anna@ws2: Permission denied (publickey).", 255), "ssh-copy-id"),
        (("bash: line 1: footplate: command not found", 127), "Install it there"),
        (None, "“ssh” was not found"),
    ],
)
def test_hosts_report_unwatchable_host(
    open_hosts: Open, ssh: FakeSsh, qtbot: QtBot, end: tuple[str, int] | None, error: str
) -> None:
    hosts = open_hosts()
    hosts.add("ws2")
    with pytest.MonkeyPatch.context() as patch:
        if end is None:
            patch.setenv("PATH", "")
        else:
            ssh.fail("ws2", *end)
        hosts.start()
        qtbot.waitUntil(lambda: error in hosts.errors.get("ws2", ""))
    assert "ws2" not in hosts.latest
    hosts.remove("ws2")
    assert hosts.errors == {}


def test_hosts_are_saved_until_removed(open_hosts: Open, ssh: FakeSsh, qtbot: QtBot) -> None:
    first = open_hosts()
    for name in ("ws2", "anna@ws3", "2001:db8::7"):
        first.add(name)
    put_host(Host(name="2001:db8::7", destination="ws7"))
    again = open_hosts()
    assert again.names == ("ws2", "anna@ws3", "2001:db8::7")
    with qtbot.waitSignal(again.removed) as removed:
        again.remove("anna@ws3")
    assert removed.args == ["anna@ws3"]
    last = open_hosts()
    assert last.names == ("ws2", "2001:db8::7")
    last.start()
    qtbot.waitUntil(lambda: (ssh.folder / "calls").exists() and len(ssh.calls) == 2)
    commands = {call.partition(" -- ")[2] for call in ssh.calls}
    assert commands == {f"{host} footplate gpus --json --watch" for host in ("ws2", "ws7")}


def test_hosts_remove_ends_sampler(open_hosts: Open, ssh: FakeSsh, nvml_stub: NvmlStub, qtbot: QtBot) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    hosts = open_hosts()
    hosts.start()
    hosts.add("ws2")
    qtbot.waitUntil(lambda: "ws2" in hosts.latest)
    pid = ssh.pid("ws2")
    (paths.home() / "hosts.toml").write_text("damaged")  # the saved list can't be changed
    with qtbot.waitSignal(hosts.changed):
        hosts.remove("ws2")
    qtbot.waitUntil(lambda: not psutil.pid_exists(pid))
    assert hosts.names == ()
    assert "ws2" not in hosts.latest
    assert "ws2" not in {hosts.history.host(device) for device in hosts.history.devices}
    hosts.add("ws3")
    assert hosts.names == ("ws3",)
    qtbot.waitUntil(lambda: "" in hosts.latest)


def test_hosts_add_validates_name(open_hosts: Open) -> None:
    hosts = open_hosts()
    hosts.add("ws2")
    assert hosts.problem("ws2") == "ws2 is already being watched."
    assert hosts.problem("ws3") == ""
    with pytest.raises(ValueError, match="start with a dash"):
        hosts.add("-oProxyCommand=reboot")
    with pytest.raises(KeyError):
        hosts.remove("ws3")
    assert hosts.names == ("ws2",)
