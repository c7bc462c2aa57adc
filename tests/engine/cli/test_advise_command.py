"""`footplate advise`, run in a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.cli import children, train
from engine.contract.job import Job, load_job
from engine.runs.folder import list_runs
from engine.system import paths
from tests.engine.cli.prepared_commands import ADVICE
from tests.engine.cli.terminal import footplate, run_in_this_process

SMALL = (str(paths.sample_dataset()), "--model", "mnist_cnn", "--image-size", "28", "--devices", "cpu,cpu")


def test_advise_reports_all_problems_but_the_strategy() -> None:
    answer = run_in_this_process(
        "advise", *SMALL, "--batch-size", "0", "--seconds", "1", "--machines", "0", "--network", "fast"
    )
    assert answer.code == 2
    for flag in ("--batch-size", "--seconds", "--machines", "--network: “fast” is not a network."):
        assert flag in answer.err
    assert "Single device uses one device" not in answer.err


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ({"ended_by": "time"}, "; the time ran out before the order was certain. On CPU."),
        ({"ended_by": "stopped"}, "; stopped before the order was certain. On CPU."),
        ({"memory_by": "one_device"}, "; the first 2 are about equally fast; memory estimated from one device's trial. On CPU."),
        ({"confidence": 0.9, "table": ADVICE.table[:1]}, "; the first place is certain at 90% confidence. On CPU."),
        ({"is_cached": True}, " On CPU. Cached from 01 January 2024, 12:30; --again measures again."),
    ],
)  # fmt: skip
def test_advice_ends_with_a_summary(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], summary: str) -> None:
    advice = msgspec.structs.replace(ADVICE, **changes)
    monkeypatch.setattr(train, "validate", lambda _options: (Job.from_fields(dataset="/data"), []))
    monkeypatch.setattr(children, "run_in_child", lambda _request, **_options: advice)
    answer = run_in_this_process("advise", "/data", "--network", "1Gbit")
    assert answer.err == "footplate: warning: --network: It has no effect with one machine.\n  Add --machines N.\n"
    last = answer.out.splitlines()[-1]
    assert last.startswith(f"{len(advice.table)} of 7 candidates tried in 4 s; ")
    assert last.endswith(summary)


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_advice_is_saved_only_if_it_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fits: bool, flags: list[str]
) -> None:
    advice = msgspec.structs.replace(ADVICE, fits=fits)
    monkeypatch.setattr(train, "validate", lambda _options: (Job.from_fields(dataset="/data", epochs=7), []))
    monkeypatch.setattr(children, "run_in_child", lambda _request, **_options: advice)
    file = tmp_path / "advised.toml"
    answer = run_in_this_process("advise", "--save", str(file), *flags)
    assert answer.code == (0 if fits else 3)
    assert (f"Written: {file}" in answer.out) == (fits and not flags)
    assert ("To train with these settings" in answer.out) == (fits and not flags)
    assert file.exists() == fits
    if fits:
        job, _ = load_job(file)
        assert job is not None
        assert (job.training.epochs, job.resolved_strategy, job.training.accumulation) == (7, "ddp", 2)


@pytest.mark.long
def test_advise_prints_a_table_and_saves_the_job(tmp_path: Path) -> None:
    file = tmp_path / "advised.toml"
    answer = footplate("advise", *SMALL, "--seconds", "30", "--machines", "2", "--network", "1Gbit,100us")
    assert answer.code == 0, answer
    assert "is fastest" in answer.out
    assert "efficiency" in answer.out
    assert "Predicted, not measured: 2 machines" in answer.out
    assert not file.exists()
    saved = footplate("advise", *SMALL, "--seconds", "30", "--json", "--save", str(file))
    found = json.loads(saved.out)
    assert found["is_cached"]
    job, problems = load_job(file)
    assert not problems
    assert job is not None
    assert job.resolved_strategy == found["table"][0]["strategy"]
    assert list_runs() == []
