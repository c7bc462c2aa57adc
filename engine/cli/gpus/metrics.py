"""HTTP server that offers the latest snapshot to Prometheus, on the loopback address only."""

from __future__ import annotations

import os
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from engine.cli.gpus.prometheus import CONTENT_TYPE, format_exposition
from engine.contract.devices import Snapshot

ADDRESS = "127.0.0.1"
HOSTS = {ADDRESS, "localhost"}
"""Accepted host names in requests.

Other names are refused, since an attacker may let them resolve to this address (DNS rebinding).
"""
PATH = "/metrics"
MAX_AGE_INTERVALS = 3
"""Maximum age of a snapshot that is served, as a multiple of the interval between snapshots."""
FIRST_TIMEOUT_S = 5.0
"""Maximum time in seconds that a scrape waits for the first snapshot."""
CLIENT_TIMEOUT_S = 10.0


class MetricsServer(socketserver.ThreadingTCPServer):
    """HTTP server that answers GET /metrics with the latest snapshot inside its context.

    `port` 0 selects a free port, which is part of `url`. `interval_s` is the time between snapshots. Raises OSError if
    the port is in use or not allowed.
    """

    daemon_threads = True  # an open connection doesn't delay the exit
    allow_reuse_address = os.name != "nt"  # Windows would share the port

    def __init__(self, port: int, interval_s: float) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self._max_age_s = MAX_AGE_INTERVALS * interval_s
        self._has_snapshot = threading.Event()
        self._latest: tuple[Snapshot, float] | None = None  # latest snapshot, and the time of its arrival
        self.url = f"http://{ADDRESS}:{self.server_address[1]}{PATH}"
        self._thread = threading.Thread(target=self.serve_forever, name="metrics")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Store the snapshot whose metrics are returned from now on."""
        self._latest = (snapshot, time.monotonic())
        self._has_snapshot.set()

    def create_response(self) -> tuple[HTTPStatus, str]:
        """Return the HTTP status and the text with the metrics, or the reason why there are none.

        This waits up to `FIRST_TIMEOUT_S` for the first snapshot.
        """
        if not self._has_snapshot.wait(FIRST_TIMEOUT_S) or self._latest is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, "The devices have not answered yet.\n"
        snapshot, received_at = self._latest
        age_s = time.monotonic() - received_at
        if age_s > self._max_age_s:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"The devices have not answered for {age_s:.0f} s.\n"
        return HTTPStatus.OK, format_exposition(snapshot)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect before they get an answer, and print other errors."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "footplate"
    sys_version = ""
    timeout = CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with the metrics, or with an error for another path or a foreign host name."""
        hosts = {host.strip().lower().partition(":")[0] for host in self.headers.get_all("Host", [])}
        if not hosts <= HOSTS:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, f"The metrics are at {self.server.url}.\n")
        elif self.path.partition("?")[0] == PATH:
            self._send(*self.server.create_response())
        else:
            self._send(HTTPStatus.NOT_FOUND, f"The metrics are at {PATH}.\n")

    def _send(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE if status is HTTPStatus.OK else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Suppress the log line for each request, since scrapes are frequent."""
