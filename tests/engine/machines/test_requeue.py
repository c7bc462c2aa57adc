from pathlib import Path

import pytest

from engine.machines.slurm import requeue
from engine.runs.folder import RunFolder
from engine.runs.slurm_job import read_slurm


@pytest.mark.parametrize(
    ("script", "is_requeued"),
    [("exit 0", True), ("kill -TERM $$", True), ("exit 1", False)],
    ids=["done", "ended with the job", "refused"],
)
def test_requeued_job_is_recorded_as_pending(
    script: str, is_requeued: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/arguments\n{script}\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    run = RunFolder(tmp_path)
    assert requeue(run, "7") is is_requeued
    assert (tmp_path / "arguments").read_text() == "requeue 7\n"
    job = read_slurm(tmp_path)
    assert job is not None
    assert (job.job_id, job.state, job.reason) == (7, "PENDING", "Requeued")
