from pathlib import Path

import pytest

from engine.machines.slurm import requeue
from engine.runs.folder import RunFolder
from engine.runs.slurm_job import read_slurm
from tests.support.scripts import write_script


@pytest.mark.parametrize(
    ("script", "is_requeued"),
    [("exit 0", True), ("kill -TERM $$", True), ("exit 1", False)],
    ids=["done", "ended with the job", "refused"],
)
def test_requeued_job_is_recorded_as_pending(
    script: str, is_requeued: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(tmp_path / "scontrol", f'echo "$*" > {tmp_path}/arguments\n{script}')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    run = RunFolder(tmp_path)
    assert requeue(run, "7") is is_requeued
    assert (tmp_path / "arguments").read_text() == "requeue 7\n"
    job = read_slurm(tmp_path)
    assert job is not None
    assert (job.job_id, job.state, job.reason) == (7, "PENDING", "Requeued")
