"""Child processes that execute a request and report the result."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from engine.processes.requests import INTERRUPTED
from tests.engine.supervisor.supervised import ROOT

SERVE = """
import sys, time
time.sleep(float(sys.argv[1]))  # its imports
from engine.processes.requests import serve_request
serve_request("test", str, lambda _request, _send: time.sleep(60))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="pipes can't be polled")
def test_child_whose_parent_ended_during_its_imports_exits() -> None:
    """Use a child that prints nothing, so that it can't notice its parent's exit by a closed pipe."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, "0.2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'"request"')
        process.stdin.close()
        process.stdout.close()
        try:
            assert process.wait(30) == INTERRUPTED
        finally:
            process.kill()


def test_invalid_request_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", SERVE, "0"], input=b"3", capture_output=True, cwd=ROOT, check=True)
    assert json.loads(done.stdout)["type"] == "refused"
