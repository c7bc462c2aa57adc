"""``footplate submit`` and ``torchrun`` without their launchers."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from engine.cli import submit
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder, create_run
from engine.runs.slurm_job import SCRIPT, SlurmJob, write_slurm
from engine.system.slurm import SlurmFailed
from tests.engine.cli.terminal import run_in_this_process

CUSTOM_SCRIPT = "#!/bin/bash\nexec footplate node --slurm .\n"


def test_submit_reports_the_new_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    submitted: list[tuple[Job, str, str]] = []
    runs: list[RunFolder] = []

    def validate(options: argparse.Namespace) -> tuple[Job, list[Problem]]:
        devices = options.devices.split(",") if options.devices else ["cpu"]
        return Job.from_fields(dataset="/data", name=options.name or "", model="mnist_cnn", devices=devices), []

    def submit_new(job: Job, script: str, host: str) -> RunFolder:
        submitted.append((job, script, host))
        if host == "down":
            raise SlurmFailed("down does not answer.")
        runs.append(create_run(job))
        write_slurm(runs[-1].path, SlurmJob(job_id=12))
        return runs[-1]

    monkeypatch.setattr(submit, "validate", validate)
    monkeypatch.setattr(submit, "submit_new", submit_new)
    flags = ("--nodes", "2", "--slurm-host", "login", "--name", "my run")
    answer = run_in_this_process("submit", "/data", *flags)
    (run,) = runs
    assert (answer.code, answer.out) == (0, f"Job 12, run {run.run_id}\n"), answer.err
    follow = f"Follow it with `footplate attach {run.run_id}`."
    assert answer.err == f"Its script is {run.path / SCRIPT}. {follow}\n"
    ((job, script, host),) = submitted
    assert (job.parallel.devices, host) == (("slurm:1:gpu0", "slurm:2:gpu0"), "login")
    assert "\n#SBATCH --job-name=my-run\n" in script
    file = tmp_path / "custom.sh"
    file.write_text(CUSTOM_SCRIPT)
    assert run_in_this_process("submit", "/data", "--script", str(file)).code == 0
    assert submitted[-1][1:] == (CUSTOM_SCRIPT, "")
    answer = run_in_this_process("submit", "/data", "--slurm-host", "down")
    assert (answer.code, answer.out, answer.err) == (2, "", "footplate: down does not answer.\n")
    for content, count in ((b"echo hello\n", 2), (b"\xff", 1)):
        file.write_bytes(content)
        answer = run_in_this_process("submit", "/data", "--script", str(file))
        assert (answer.code, answer.err.count("footplate: --script: "), len(submitted)) == (2, count, 3)


@pytest.mark.parametrize(
    ("devices", "problems", "code", "errors"),
    [
        (("cpu", "cpu"), [], 0, 0),
        (("cpu", "cpu"), [Problem("epochs", "Odd.", severity="warning")], 0, 1),
        (("cpu", "cpu"), [Problem("epochs", "Bad.")], 2, 1),
        (("cpu",), [], 2, 1),
    ],
)
def test_torchrun_prints_a_command_for_valid_jobs(
    devices: tuple[str, ...], problems: list[Problem], code: int, errors: int, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = "ddp" if len(devices) > 1 else "single"
    job = Job.from_fields(dataset="/data", model="mnist_cnn", devices=devices, strategy=strategy)
    monkeypatch.setattr(submit, "validate", lambda _options: (job, list(problems)))
    answer = run_in_this_process("torchrun", "/data")
    assert (answer.code, answer.err.count("footplate: ")) == (code, errors), answer
    lines = answer.out.splitlines()
    assert lines[:1] == ([] if code else ["# On this machine:"])
    assert ["--nproc-per-node 2 " in line for line in lines[1:]] == ([] if code else [True])
