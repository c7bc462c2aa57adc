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


REFUSE = """
from engine.contract.problems import Problem
from engine.processes.requests import RequestError, serve_request

def refuse(request, send):
    print("output of a model file")
    send(request)
    raise RequestError(Problem("model", "A.", "B."), Problem("dataset", "C.", "D."))

serve_request("test", str, refuse)
"""


@pytest.mark.parametrize(
    ("program", "request_json", "fields"),
    [(SERVE, b"3", [[""]]), (REFUSE, b'"begun"', ["begun", ["model", "dataset"]])],
)
def test_answers_are_messages_and_all_problems(program: str, request_json: bytes, fields: list[object]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, "0"], input=request_json, capture_output=True, cwd=ROOT, check=True
    )
    *messages, refused = map(json.loads, done.stdout.splitlines())
    assert refused["type"] == "refused"
    assert [*messages, [problem["field"] for problem in refused["problems"]]] == fields
