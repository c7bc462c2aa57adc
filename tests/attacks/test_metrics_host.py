"""DNS rebinding: a web page requests the GPU metrics through a name that resolves to this machine."""

from __future__ import annotations

import http.client
from http import HTTPStatus

import pytest

from engine.cli.gpus.metrics import ADDRESS, PATH, MetricsServer
from tests.engine.cli.machines import busy_gpu, machine

pytestmark = pytest.mark.attacks

HERE = ["127.0.0.1", "localhost", "LOCALHOST", ""]
ELSEWHERE = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.7", "[::1]", "metrics"]


@pytest.mark.parametrize("host", [*HERE, *ELSEWHERE])
def test_metrics_server_accepts_only_loopback_names(host: str) -> None:
    with MetricsServer(0, 60.0) as server:
        server.set_snapshot(machine(busy_gpu(0)))
        connection = http.client.HTTPConnection(ADDRESS, server.server_address[1], timeout=20)
        connection.putrequest("GET", PATH, skip_host=True)
        if host:
            connection.putheader("Host", f"{host}:9400")
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
    assert answer.status == (HTTPStatus.OK if host in HERE else HTTPStatus.MISDIRECTED_REQUEST)
    assert ("GPU-0" in text) == (host in HERE)
