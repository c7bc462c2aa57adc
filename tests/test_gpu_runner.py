"""Runner of the GPU tests: time budget, continuation, and the report after each part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.runner import LEFT_OUT, PARTS, ROOT, Part, Runner, main
from tests.support.nvml_stub import NvmlStub, make_gpu_profile

MODULE = """
import json, pathlib, sys
print(json.dumps({{"checks": {{"one": 20}}}}))
print(json.dumps({{"begin": "one"}}))
print(json.dumps({{"name": "claim", "outcome": "{outcome}"}}))
print(json.dumps({{"end": "one"}}), flush=True)
pathlib.Path({calls!r}).open("a").write("{name} ")
{ending}
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs three parts, whose expected durations are 10, 20 and 30 s."""

    def run_parts(seconds: float = 100.0, before: Any = None, ending: str = "", outcome: str = "ok") -> dict[str, Any]:
        parts = []
        for name, expected_s in (("first", 10), ("second", 20), ("third", 30)):
            text = MODULE.format(name=name, calls=str(tmp_path / "calls"), ending=ending, outcome=outcome)
            (tmp_path / f"part_{name}.py").write_text(text)
            parts.append(Part(name, f"The {name} part", 60, expected_s, f"part_{name}"))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        Runner(
            parts, tmp_path / "out", seconds=seconds, rehearse=True, environment=environment, before=before
        ).run()  # fmt: skip
        content: dict[str, Any] = json.loads((tmp_path / "out/report.json").read_text())
        return content

    return run_parts


def outcomes(content: dict[str, Any]) -> dict[str, list[str]]:
    return {part["name"]: [result["outcome"] for result in part["results"]] for part in content["parts"]}


def test_runner_skips_parts_that_exceed_the_budget(run: Run, tmp_path: Path) -> None:
    content = run(seconds=25.0)
    assert outcomes(content) == {"first": ["ok"], "second": ["ok"], "third": ["skipped"]}
    assert content["parts"][2]["results"][0]["text"].startswith(LEFT_OUT)
    assert (tmp_path / "calls").read_text() == "first second "
    assert "third" in (tmp_path / "out/report.md").read_text()


def test_runner_continues_with_unfinished_parts(run: Run, tmp_path: Path) -> None:
    before = run(seconds=25.0)
    content = run(before=before)
    assert outcomes(content) == {"first": ["ok"], "second": ["ok"], "third": ["ok"]}
    assert (tmp_path / "calls").read_text() == "first second third "


def test_runner_uses_measured_durations(run: Run) -> None:
    before = run(seconds=25.0)
    before["parts"][0]["seconds"] = None
    before["parts"][2] |= {"seconds": 1.0}
    content = run(seconds=15.0, before=before)
    assert outcomes(content)["third"] == ["ok"]


def test_runner_continues_after_reported_failures(run: Run) -> None:
    content = run(ending="sys.exit(1)", outcome="failed")
    assert outcomes(content) == {"first": ["failed"], "second": ["failed"], "third": ["failed"]}
    assert content["status"] == "finished"


def test_runner_refuses_to_mix_rehearsals_with_proofs(run: Run) -> None:
    before = run() | {"rehearsal": False}
    with pytest.raises(ValueError, match="rehearsal"):
        run(before=before)


@pytest.mark.parametrize("budget", ["8x", "m", "soon"])
def test_invalid_budget_is_refused(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--budget", budget])
    assert budget in capsys.readouterr().err


def test_eight_minutes_hold_the_most_important_parts() -> None:
    names, total = [], 0.0
    for part in PARTS:
        total += part.expected_s
        if total <= 480:
            names.append(part.name)
    assert names[:5] == ["machine", "speed", "outcome", "nccl", "using"]


WATCH = """
import json, time
from tests.support.gpu_watch import GpuWatch

start = time.monotonic()
with GpuWatch() as watch:
    time.sleep(0.6)
print(json.dumps(watch.measure((start, time.monotonic()))))
"""


def test_watch_reads_use_of_gpu(compiled_stub: NvmlStub, tmp_path: Path) -> None:
    stub = NvmlStub(compiled_stub.folder, tmp_path / "profile")
    stub.write([make_gpu_profile(0, utilization=80, sm_active=62, used=3 << 30)])
    environment = {**os.environ, **stub.environment, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run([sys.executable, "-c", WATCH], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == [pytest.approx(0.8), pytest.approx(0.62), 3 << 30]
