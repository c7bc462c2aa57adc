"""Serves the latest snapshot to Prometheus, on the loopback address alone."""

from __future__ import annotations

import os
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from engine.cli.gpus.prometheus import CONTENT_TYPE, exposition
from engine.contract.devices import Snapshot

ADDRESS = "127.0.0.1"
HOSTS = {ADDRESS, "localhost"}
"""What this address is called. A page of somebody else's whose name has been pointed here is asked for by that name."""
PATH = "/metrics"
MAX_AGE_INTERVALS = 3
"""Values older than so many intervals are not told as if they were of now."""
FIRST_S = 5.0
"""How long a scrape waits for the first snapshot of all."""
SILENT_CLIENT_S = 10.0


class MetricsServer(socketserver.ThreadingTCPServer):
    """Within its `with` block, answers GET /metrics with what was `put` last.

    `port` 0 takes any that is free; `url` says which. Raises OSError where the port is taken or not allowed.
    """

    daemon_threads = True  # a client that keeps its connection open keeps nothing else
    allow_reuse_address = os.name != "nt"  # where it would let two programs share the port

    def __init__(self, port: int, interval_s: float) -> None:
        self._max_age_s = MAX_AGE_INTERVALS * interval_s
        self._first = threading.Event()
        self._latest: tuple[Snapshot, float] | None = None
        super().__init__((ADDRESS, port), _Handler)
        self.url = f"http://{ADDRESS}:{self.server_address[1]}{PATH}"
        self._thread = threading.Thread(target=self.serve_forever, name="metrics")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def put(self, snapshot: Snapshot) -> None:
        """Tells this one from now on."""
        self._latest = (snapshot, time.monotonic())
        self._first.set()

    def answer(self) -> tuple[HTTPStatus, str]:
        """What a scrape gets now: the metrics, or why there are none."""
        if not self._first.wait(FIRST_S) or self._latest is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, "The devices have not answered yet.\n"
        snapshot, came = self._latest
        age_s = time.monotonic() - came
        if age_s > self._max_age_s:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"The devices have not answered for {age_s:.0f} s.\n"
        return HTTPStatus.OK, exposition(snapshot)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes before its answer is no fault of ours; anything else is told on standard error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "footplate"
    sys_version = ""
    timeout = SILENT_CLIENT_S

    def do_GET(self) -> None:
        asked_for = {host.strip().lower().partition(":")[0] for host in self.headers.get_all("Host", [])}
        if not asked_for <= HOSTS:
            self._say(HTTPStatus.MISDIRECTED_REQUEST, f"The metrics are those of {self.server.url}.\n")
        elif self.path.partition("?")[0] == PATH:
            self._say(*self.server.answer())
        else:
            self._say(HTTPStatus.NOT_FOUND, f"The metrics are at {PATH}.\n")

    def _say(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE if status is HTTPStatus.OK else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is not worth a line."""
