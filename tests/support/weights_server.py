"""HTTP server on the loopback interface that replaces servers of pretrained weights."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Literal

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Fault = Literal["", "truncated", "damaged", "html", "gated", "missing", "broken", "held"]


class WeightsServer:
    """HTTP server that offers `files` by name in every repository.

    `requests` lists the method and path of each request. `fault` selects a misbehavior, or none if it is "". With the
    fault "held", the server sends half of a file, sets `holding`, and waits for `release`.
    """

    def __init__(self, files: dict[str, bytes], fault: Fault = "") -> None:
        self.files = files
        self.fault = fault
        self.requests: list[str] = []
        self.release = threading.Event()
        self.holding = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: object) -> None:
                """Suppress the request log."""

            def do_HEAD(self) -> None:
                server._answer(self, body=False)

            def do_GET(self) -> None:
                server._answer(self, body=True)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False
        self.address = f"http://127.0.0.1:{self._http.server_port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            self.release.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def _answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        self.requests.append(f"{request.command} {request.path}")
        content = self.files.get(PurePosixPath(request.path.partition("?")[0]).name)
        if self.fault == "html":
            self._send(request, 200, b"<html>Please log in.</html>", {"Content-Type": "text/html"}, body)
        elif self.fault in ("gated", "missing"):
            code = "GatedRepo" if self.fault == "gated" else "RepoNotFound"
            self._send(request, 403 if self.fault == "gated" else 404, b"", {"X-Error-Code": code}, body)
        elif self.fault == "broken":
            self._send(request, 500, b"", {}, body)
        elif content is None:
            self._send(request, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, body)
        else:
            etag = hashlib.sha256(content).hexdigest()
            sent = content[:-1] + bytes([content[-1] ^ 1]) if self.fault == "damaged" else content
            self._send(request, 200, sent, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body)

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str], body: bool
    ) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content)), "Connection": "close"}.items():
            request.send_header(name, value)
        request.end_headers()
        request.close_connection = True
        if not body:
            return
        half = len(content) // 2
        try:
            request.wfile.write(content[:half])
            if self.fault == "held":
                request.wfile.flush()
                self.holding.set()
                self.release.wait()
            if self.fault != "truncated":
                request.wfile.write(content[half:])
        except OSError:
            return  # the client has disconnected
