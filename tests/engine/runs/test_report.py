"""Problem reports, which contain useful details but no private data."""

from __future__ import annotations

import getpass
import json
import socket
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.contract.events import ENCODE, Failed, RunStarted, Warned
from engine.contract.job import Job
from engine.runs import export
from engine.runs.export import ExportRefused, collect_problem_report, write_report
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes
from engine.system import paths
from engine.system.redaction import Redactor
from tests.gui.sources.written_runs import make_plan, write

SECRETS = (
    "anna", "Müller", "klinik7", "Patient Data", "tumours", "night shift", "phase 2", "kidney left", "scan 001.png",
    "10.1.2.3", "GPU-12345678-1234-1234-1234-123456789abc", "secretnet", "fe80::1ff:fe23:4567:890a",
)  # fmt: skip
LOG = """2026-01-02 03:04:05 ERROR unexpected
Traceback (most recent call last):
  File "{code}/engine/data/files.py", line 7, in read
  File "/home/anna/own stuff/secretnet.py", line 3, in forward
FileNotFoundError: [Errno 2] No such file or directory: '/data/Patient Data/tumours/kidney left/scan 001.png'
Could not open /data/Patient Data/tumours/kidney left/scan 001.png: permission denied
anna@klinik7.example.org asked klinik7 (10.1.2.3, fe80::1ff:fe23:4567:890a) for GPU-12345678-1234-1234-1234-123456789abc
night shift, tagged phase 2, trains weights of anna/last.pt on tumours; ANNA's home is ~/own stuff/x
{escaped} and C:\\Users\\anna\\own.txt and file:///data/Patient%20Data/tumours
CUDA error: out of memory on /dev/nvidia0, driver 580.65.06
"""


@pytest.fixture
def fixed_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the user name and the machine name with fixed ones."""
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.setattr(getpass, "getuser", lambda: "anna")
    monkeypatch.setattr(socket, "gethostname", lambda: "klinik7.example.org")


def test_report_contains_no_secrets(fixed_user: None, tmp_path: Path) -> None:
    job = Job.from_fields(
        dataset="/data/Patient Data/tumours", model="/home/anna/own stuff/secretnet.py", name="night shift"
    )
    run = create_run(job)
    change_notes(run.path, tags=("phase 2",))
    text = LOG.format(code=paths.PACKAGES, escaped=json.dumps("/home/Müller/x"))
    for file in (run.path / "supervisor.log", run.path / "worker-0.log", paths.home() / "logs" / "window.log"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    events = (
        RunStarted(
            n=1, time=0, run_id=run.run_id, job=job, devices=(), world_size=1, environment={"torch": "2.15"},
            supervisor_pid=1,
        ),
        Warned(n=2, time=1, code="unreadable", message="kidney left/scan 001.png can't be read"),
        Failed(n=3, time=2, cause="RuntimeError in /home/anna/own stuff/secretnet.py: bad shape", rank=0, step=1),
    )  # fmt: skip
    run.events_file.write_bytes(b"torn\n".join(ENCODE.encode(event) + b"\n" for event in events))
    target = tmp_path / "report.zip"
    write_report(collect_problem_report(f"ok Runs: in {paths.runs_folder()}, of anna on klinik7"), target)
    with zipfile.ZipFile(target) as archive:
        packed = {name: archive.read(name).decode() for name in archive.namelist()}
    assert sorted(name.removeprefix("footplate-report/") for name in packed) == [
        "doctor.txt", "logs/window.log", "run-1/events.jsonl", "run-1/supervisor.log", "run-1/worker-0.log",
    ]  # fmt: skip
    for name, content in packed.items():
        for secret in (
            *SECRETS,
            run.run_id,
            str(paths.home()),
            "own stuff",
            "/data/P",
            "M\\u00fcller",
            "Patient%20Data",
        ):
            assert secret.lower() not in f"{name} {content}".lower(), (secret, name, content)
    packed_log = packed["footplate-report/run-1/worker-0.log"]
    for helpful in (
        "engine/data/files.py",
        "line 7",
        "FileNotFoundError",
        "/dev/nvidia0",
        "580.65.06",
        "out of memory",
    ):
        assert helpful in packed_log
    environment, *problems = map(json.loads, packed["footplate-report/run-1/events.jsonl"].splitlines())
    assert (environment["environment"], [each["type"] for each in problems]) == (
        {"torch": "2.15"},
        ["warning", "failed"],
    )
    assert target.stat().st_mode & 0o777 == 0o600


def test_report_names_the_newest_runs_by_aliases(fixed_user: None) -> None:
    runs = []
    for number in range(1, 6):
        run = create_run(Job.from_fields(dataset=f"/data/flora{number}", name=f"maple{number}"))
        runs.append(RunFolder(run.path.rename(run.path.with_name(f"2026010{number}-000000-net-000{number}"))))
    for run in runs:
        run_names = " ".join(f"{other.run_id} maple{other.run_id[-1]} flora{other.run_id[-1]}" for other in runs)
        (run.path / "supervisor.log").write_text(f"{run_names} cedar ant ox")
    write(runs[4].events_file, [make_plan(classes=("ant", "ox"))])
    change_notes(runs[2].path, name="cedar")
    runs[1].job_file.write_text("no job")  # its name is unknown
    (paths.home() / "logs").mkdir()
    for name in ("window.log", "window.log.1"):
        (paths.home() / "logs" / name).write_text("ok")
    texts = collect_problem_report("")
    aliases = {5: "run-1", 4: "run-2", 3: "run-3", 2: "<run>", 1: "<run>"}
    expected = [
        f"{alias} {'maple2' if number == 2 else alias} {'flora2' if number == 2 else '<dataset>'}"
        for number, alias in sorted(aliases.items())
    ]
    log = " ".join([*expected, "run-3 <class> ox"])
    logs = {f"run-{number}/supervisor.log": log for number in (1, 2, 3)} | {
        "logs/window.log": "ok",
        "logs/window.log.1": "ok",
    }
    assert {name: text for name, text in texts.items() if name.endswith((".log", ".1"))} == logs
    assert "doctor.txt" not in texts


def test_report_has_the_last_complete_lines_of_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "MAX_LOG_BYTES", 8)
    run = create_run(Job())
    for name, text in (("supervisor.log", "one\ntwo\nsix\n"), ("worker-0.log", "three")):
        (run.path / name).write_text(text)
    (tmp_path / "private").write_text("secret")
    (run.path / "worker-1.log").symlink_to(tmp_path / "private")
    assert collect_problem_report("") == {"run-1/supervisor.log": "six\n", "run-1/worker-0.log": "three"}


def test_report_to_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match="Choose another folder"):
        write_report({"doctor.txt": "ok"}, tmp_path / "missing" / "report.zip")


def test_redactor_keeps_parts_of_words(fixed_user: None) -> None:
    redactor = Redactor([("cat", "<class>"), ("cat-2", "<other>"), ("night shift", "<tag>")])
    assert redactor.redact("night shift and night%20shift") == "<tag> and <tag>"
    assert redactor.redact('cat-2, cat-3, "/a, b (c)/d"') == '<other>, <class>-3, "<path>"'
    assert redactor.redact("concatenate bananas of cat_2 and a cat") == "concatenate bananas of <class>_2 and a <class>"
    assert (
        redactor.redact("3/4 of 12.5 images/s, 1:02:03 h, and/or 10%") == "3/4 of 12.5 images/s, 1:02:03 h, and/or 10%"
    )


def test_redactor_replaces_the_names_of_the_account(fixed_user: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pwd = pytest.importorskip("pwd")
    account = SimpleNamespace(pw_name="akm", pw_gecos="Anna von Klee,Westwing 7")
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: account)
    text = "akm: Anna von Klee of Westwing 7; Klee, WESTWING, 7 von 9"
    assert Redactor().redact(text) == "<user>: <user> of <user>; <user>, <user>, 7 von 9"
