"""States of runs under SLURM, derived from recorded output of SLURM's commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.events import RunFinished
from engine.contract.hosts import Host, save_hosts
from engine.contract.job import Job
from engine.contract.protocol import Pause, Stop
from engine.runs.connection import NotAnswering
from engine.runs.folder import RunFolder, SupervisorFile, create_run
from engine.runs.interruptions import explain_interruption
from engine.runs.resume import job_to_resume
from engine.runs.slurm import parse_sacct, parse_squeue, refresh_slurm_states, send, submit_new
from engine.runs.slurm_job import SlurmJob, read_slurm, write_slurm
from engine.supervisor.event_log import EventLog
from engine.system import paths
from engine.system.slurm import SlurmFailed, run_slurm
from tests.support.scripts import write_script

SQUEUE = """\
5|RUNNING|None|2026-11-24T20:31:10|low|4294901756
6|PENDING|Resources|2027-11-24T20:31:10|low|4294901755
7|PENDING|Priority|N/A|low|4294901754
8_[1-3]|PENDING|Priority|N/A|high|4294901760
9|CANCELLED|None|2026-11-24T20:31:12|low|4294901753
11|PENDING|(null)|N/A|other|1
13|PENDING|None|N/A|third|1
20_[1-2]|PENDING|Priority|N/A|low|4294901754
"""


def _run(make: Callable[..., Job], **fields: object) -> RunFolder:
    run = create_run(make(2, strategy="ddp"))
    write_slurm(run.path, SlurmJob(job_id=7, **fields))  # type: ignore[arg-type]
    return run


def test_squeue_and_sacct_output_is_parsed() -> None:
    jobs = {number: SlurmJob(job_id=number, host="login", query_error="away") for number in (5, 6, 7, 9, 11, 12, 13)}
    found = parse_squeue(SQUEUE, jobs)
    assert found.keys() == {5, 6, 7, 9, 11, 13}
    for number in (11, 13):
        assert found[number] == SlurmJob(job_id=number, host="login", state="PENDING", place=1)
    assert found[5] == SlurmJob(job_id=5, host="login", state="RUNNING")
    assert (found[6].place, found[7].place, found[9].is_active) == (1, 2, False)
    assert found[6].text == "job 6 is pending: Resources, place 1, expected to start 2027-11-24 20:31"
    assert found[7].text == "job 7 is pending: Priority, place 2"
    assert parse_squeue("slurm_load_jobs error: Unable to contact slurm controller\n", jobs) == {}
    accounts = parse_sacct("5|TIMEOUT\n6|CANCELLED by 1000\n", {5: jobs[5], 6: jobs[6], 7: jobs[7]})
    assert [one.state for one in accounts.values()] == ["TIMEOUT", "CANCELLED", ""]
    assert [one.text for one in accounts.values()] == [
        "job 5 is timeout",
        "job 6 is cancelled",
        "job 7 is no longer known",
    ]


def test_refresh_updates_all_jobs_of_a_host(job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"squeue": SQUEUE, "sacct": "99|COMPLETED\n"}
    monkeypatch.setattr("engine.runs.slurm._run_on_known_host", lambda _host, command, *_: answers[command])
    runs = [create_run(job(2, strategy="ddp")) for _ in range(4)]
    for number, run in zip((5, 6, 7, 99), runs, strict=True):
        write_slurm(run.path, SlurmJob(job_id=number))
    assert refresh_slurm_states(runs)
    found = [read_slurm(run.path) for run in runs]
    assert [(one.job_id, one.state, one.place) for one in found if one is not None] == [
        (5, "RUNNING", None),
        (6, "PENDING", 1),
        (7, "PENDING", 2),
        (99, "COMPLETED", None),
    ]
    assert not refresh_slurm_states(runs)
    write_slurm(runs[0].path, SlurmJob(job_id=5))
    assert refresh_slurm_states(runs)


def test_state_of_slurm_run(job: Callable[..., Job]) -> None:
    run = _run(job, reason="Priority")
    assert run.state() == "waiting"
    assert "Priority" in run.summary().slurm
    # The supervisor was on another machine.
    ended = SupervisorFile(pid=os.getpid(), start_time=1.0, endpoint="unix:/nowhere")
    for is_started, state, expected in (
        (False, "RUNNING", "starting"),
        (False, "CANCELLED", "stopped"),
        (False, "FAILED", "interrupted"),
        (True, "RUNNING", "running"),
        (True, "TIMEOUT", "interrupted"),
        (True, "", "interrupted"),
    ):
        if is_started:
            run.write_supervisor(ended)
        write_slurm(run.path, SlurmJob(job_id=7, state=state))
        assert run.state() == run.summary().state == expected
    write_slurm(run.path, SlurmJob(job_id=7, state="NODE_FAIL"))
    (run.path / "slurm.log").write_text("slurmstepd: error: no more\n")
    assert explain_interruption(run) == "its SLURM job 7 is node fail. The end of slurm.log: slurmstepd: error: no more"
    log = EventLog(run.events_file)
    log.append(RunFinished(outcome="paused", execution=1))
    log.close()
    for state, expected in (("PENDING", "waiting"), ("RUNNING", "paused"), ("COMPLETED", "paused")):
        write_slurm(run.path, SlurmJob(job_id=7, state=state))
        assert run.state() == run.summary().state == expected
    refused, problems = job_to_resume(run, {})
    assert refused is None
    assert "sbatch slurm.sh" in str(problems[-1])
    assert job_to_resume(run, {"devices": ["cpu", "cpu"]})[0] is not None


def test_missing_slurm_is_reported(
    job: Callable[..., Job], separate_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _run(job, state="RUNNING")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert refresh_slurm_states([run])
    known = read_slurm(run.path)
    assert known is not None
    assert "Is SLURM installed here?" in known.text
    assert not refresh_slurm_states([run])
    with pytest.raises(NotAnswering, match="can only be stopped"):
        send(run, Pause())
    with pytest.raises(NotAnswering, match="scancel can't be started"):
        send(run, Stop())
    with pytest.raises(SlurmFailed, match="not found"):
        submit_new(job(2), "#!/bin/sh\n", "")
    assert [path.name for path in (separate_home / "runs").iterdir()] == [run.run_id]


@pytest.mark.parametrize(
    ("host", "failure", "explanation"),
    [
        ("", (1, "sbatch: error: A\nsbatch: error: A\nsbatch: error: B."), "A. B."),
        ("login", (1, "sbatch: error: A"), "A."),
        ("login", (255, "ssh: connect to host login port 22: Connection refused"), "login refused"),
        ("login", (127, "sh: squeue: command not found"), " on login"),
        ("", (3, ""), "code 3"),
    ],
)
def test_failed_command_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, failure: tuple[int, str], explanation: str
) -> None:
    code, errors = failure
    for name in ("ssh", "squeue"):
        exit_code = code if (name == "ssh") == bool(host) else 0
        write_script(tmp_path / name, f"printf '{errors}' >&2\nexit {exit_code}")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SlurmFailed) as raised:
        run_slurm(host, "squeue")
    assert explanation in str(raised.value)


def test_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(tmp_path / "squeue", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("engine.system.slurm.ANSWER_S", 0.6)
    with pytest.raises(SlurmFailed, match=r"squeue has not answered for 1 s\."):
        run_slurm("", "squeue")


def test_host_that_only_the_run_folder_names_is_not_contacted(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = tmp_path / "called"
    (tmp_path / "bin").mkdir()
    script = f"touch {called}\necho $* >> {called}\necho Please wait\necho '12;main'"
    write_script(tmp_path / "bin/ssh", script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    run = _run(job, state="RUNNING", host="login")
    (paths.make_home() / "slurm-hosts").write_bytes(b"\xff")
    refresh_slurm_states([run])
    with pytest.raises(NotAnswering, match="not among your hosts"):
        send(run, Stop())
    known = read_slurm(run.path)
    assert known is not None
    assert "not among your hosts" in known.text
    assert not called.exists()
    save_hosts((Host(name="cluster", destination="anna@login"),))
    refresh_slurm_states([_run(job, state="RUNNING", host="anna@login")])
    called.unlink()
    for host in ("login", "other", "login"):
        assert read_slurm(submit_new(job(2), "#!/bin/sh\n", host).path) == SlurmJob(job_id=12, host=host)
    assert (paths.home() / "slurm-hosts").read_text().split() == ["login", "other"]
    called.unlink()
    refresh_slurm_states([run])
    assert called.exists()
    for state, expected in (("PENDING", "--state=PENDING 7"), ("RUNNING", "--batch --signal=TERM 7"), ("FAILED", "")):
        called.unlink()
        monkeypatch.setattr(
            "engine.runs.slurm.refresh_slurm_states",
            lambda runs, state=state: write_slurm(run.path, SlurmJob(job_id=7, host="login", state=state)),
        )
        write_slurm(run.path, SlurmJob(job_id=7, host="login", state="RUNNING"))
        called.touch()
        assert send(run, Stop())
        assert called.read_text().partition("scancel ")[2].strip() == expected
