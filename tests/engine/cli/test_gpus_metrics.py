"""``footplate gpus --prometheus``, read over HTTP."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.error import HTTPError

import psutil
import pytest

from engine.cli import children
from engine.cli.gpus import metrics
from engine.cli.gpus.metrics import MetricsServer
from engine.cli.gpus.prometheus import format_exposition
from engine.contract.devices import Nvml, Snapshot, SnapshotRequest
from tests.engine.cli.machines import busy_gpu, machine
from tests.engine.cli.terminal import command, run_in_this_process
from tests.support.clock import Clock
from tests.support.nvml_stub import NvmlStub, make_gpu_profile, uuid_of


@contextmanager
def exporter(stub: NvmlStub) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start ``footplate gpus --prometheus`` and yield its process and its address."""
    sent = command("gpus", "--prometheus", "0", "--interval", "0.1")
    with subprocess.Popen(sent, stderr=subprocess.PIPE, text=True, env=os.environ | stub.environment) as process:
        assert process.stderr is not None
        expected = process.stderr.readline()
        try:
            yield process, next(address for address in expected.split() if address.startswith("http"))
        except BaseException:
            process.kill()
            raise
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr.read() == ""


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""URL opener without proxies. Python's default opener remembers the proxies of its first request."""


def scrape(url: str) -> tuple[int, str, str]:
    """Request a URL. Return status, content type and text."""
    try:
        with _DIRECT.open(url, timeout=120) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_scrape_returns_gpus_until_ctrl_c(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0, utilization=87), make_gpu_profile(1)])
    with exporter(nvml_stub) as (_, url):
        text = ""
        while uuid_of(1) not in text:
            status, kind, text = scrape(url)
            assert status == HTTPStatus.OK
            assert kind == "text/plain; version=0.0.4; charset=utf-8"
        (line,) = [
            line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{") and uuid_of(0) in line
        ]
        assert line.endswith("} 87")


def test_metrics_listen_only_on_loopback(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    with exporter(nvml_stub) as (process, _):
        listening = [
            c.laddr.ip for c in psutil.Process(process.pid).net_connections() if c.status == psutil.CONN_LISTEN
        ]
        assert listening == ["127.0.0.1"]


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics2", "/etc/passwd", "/../metrics"])
def test_scrape_of_other_paths_returns_404(path: str) -> None:
    with MetricsServer(0, 1.0) as server:
        server.set_snapshot(machine(busy_gpu(0)))
        status, _, text = scrape(server.url.replace("/metrics", path))
        assert status == HTTPStatus.NOT_FOUND
        assert "The metrics are at /metrics." in text
        assert scrape(f"{server.url}?name=x")[0] == HTTPStatus.OK


def test_scrape_returns_the_latest_snapshot() -> None:
    with MetricsServer(0, 1.0) as server:
        for load in (10.0, 20.0):
            snapshot = machine(busy_gpu(0, utilization_percent=load, name="Größte"))
            server.set_snapshot(snapshot)
            assert scrape(server.url)[2] == format_exposition(snapshot)


def test_scrape_of_a_missing_or_old_snapshot_returns_503(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr(metrics, "time", clock)
    monkeypatch.setattr(metrics, "FIRST_TIMEOUT_S", 0.0)
    with MetricsServer(0, 2.0) as server:
        status, _, text = scrape(server.url)
        assert (status, text) == (HTTPStatus.SERVICE_UNAVAILABLE, "The devices have not answered yet.\n")
        server.set_snapshot(machine(busy_gpu(0)))
        clock.now = 106.0
        assert scrape(server.url)[0] == HTTPStatus.OK
        clock.now = 106.5
        status, kind, text = scrape(server.url)
        assert (status, text) == (HTTPStatus.SERVICE_UNAVAILABLE, "The devices have not answered for 6 s.\n")
        assert "version=0.0.4" not in kind


def test_metrics_survive_disconnecting_clients(capsys: pytest.CaptureFixture[str]) -> None:
    with MetricsServer(0, 1.0) as server:
        server.set_snapshot(machine(*(busy_gpu(index) for index in range(8))))
        for sent in (b"", b"GET /met", b"GET /metrics HTTP/1.0\r\n\r\n", b"\x00\xff nonsense\r\n\r\n"):
            with socket.create_connection(server.server_address) as client:
                # Closing resets the connection.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                client.sendall(sent)
        assert scrape(server.url)[0] == HTTPStatus.OK
    assert capsys.readouterr().err == ""


def test_metrics_report_a_used_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = run_in_this_process("gpus", "--prometheus", str(port))
    assert answer.code == 2
    assert f"port {port} is used by another program: choose another one" in answer.err


def test_metrics_report_missing_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[object] = []

    def read_snapshots(*, interval_s: float, request: SnapshotRequest) -> Iterator[Snapshot]:
        requested.append((interval_s, request))
        yield machine(nvml=Nvml("no_driver", "The driver is not loaded."))

    monkeypatch.setattr(children, "read_snapshots", read_snapshots)
    answer = run_in_this_process("gpus", "--prometheus", "0", "--interval", "0.5")
    metrics_line, reason = answer.err.splitlines()
    assert (answer.code, metrics_line.startswith("Metrics at http://127.0.0.1:")) == (0, True)
    assert reason == "footplate: The driver is not loaded."
    assert requested == [(0.5, SnapshotRequest(processes=False))]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "port 1 is not open to this user: choose one above 1023."),
        (errno.EADDRNOTAVAIL, "port 1 could not be used (Cannot assign requested address): choose another one."),
    ],
)
def test_metrics_report_an_unusable_port(number: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_port: int, _interval_s: float) -> MetricsServer:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(metrics, "MetricsServer", refuse)
    answer = run_in_this_process("gpus", "--prometheus", "1")
    assert (answer.code, answer.err) == (2, f"footplate: {message}\n")
