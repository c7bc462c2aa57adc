"""Run folders from other people that contain a program and claim that the user has permitted it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.checks.disk import model_file_sha256
from engine.cli.terminal import BAD_REQUEST
from engine.contract.advice import FINDING, FinderRequest
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.contract.messages import Refused
from engine.contract.model_split import PLANNING
from engine.runs import consent
from engine.runs.folder import create_run
from engine.system import paths
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Follow, Make, StartRun
from tests.faults.test_access import HARMLESS, RUNS
from tests.support.nobody import NOBODY

pytestmark = pytest.mark.attacks

REFUSED = "net.py contains code that you have not allowed to run yet."


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return the path of a file that doesn't exist unless the model file of `foreign_job` has been executed."""
    return tmp_path / "ran"


@pytest.fixture
def foreign_job(job: Make, tmp_path: Path, mark: Path) -> Job:
    """Return a job as from another machine: it permits a model file by its hash, but this user never has.

    The model file creates the file `mark` when it is executed.
    """
    file = tmp_path / "net.py"
    file.write_text(RUNS.format(ran=str(mark), rest=HARMLESS))
    return job(epochs=1, model=str(file), model_file_sha256=model_file_sha256(str(file)))


def test_resume_of_foreign_run_asks_first(foreign_job: Job, mark: Path) -> None:
    run = create_run(foreign_job)
    os.utime(run.job_file, (0, 0))  # as if the run had been copied long ago
    done = footplate("resume", run.run_id)
    assert done.code == BAD_REQUEST
    assert REFUSED in done.err
    assert "--trust-model-file" in done.err
    assert not mark.exists()
    assert footplate("resume", run.run_id, "--trust-model-file").code == 0
    assert mark.exists()


def test_supervisor_runs_no_foreign_program(foreign_job: Job, mark: Path, start_run: StartRun) -> None:
    """Start a run's supervisor directly, as the queue does. It refuses a model file that this user hasn't allowed."""
    run = start_run(foreign_job)
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert failed.cause.startswith(REFUSED)
    assert not mark.exists()


def answers(module: str, request: bytes) -> list[bytes]:
    done = subprocess.run([sys.executable, "-m", module], input=request, capture_output=True, cwd=ROOT, check=True)
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.parametrize("finder", ["rate", "batch"])
def test_finder_runs_no_foreign_program(foreign_job: Job, mark: Path, finder: str) -> None:
    request = FinderRequest(finder, foreign_job)  # type: ignore[arg-type]
    found = FINDING.decode(answers("engine.advisor", msgspec.json.encode(request))[-1])
    assert isinstance(found, Refused)
    assert REFUSED in found.problems[0].message
    assert not mark.exists()


@pytest.mark.long
def test_planner_runs_no_foreign_program(foreign_job: Job, mark: Path) -> None:
    asked = foreign_job.with_fields(strategy="pipeline", devices=("cpu", "cpu"))
    found = PLANNING.decode(answers("engine.advisor.planning", msgspec.json.encode(asked))[-1])
    assert isinstance(found, Refused)
    assert REFUSED in found.problems[0].message
    assert not mark.exists()


def given_away(note: Path) -> None:
    os.chown(note, NOBODY, NOBODY)


def opened_to_all(note: Path) -> None:
    note.chmod(0o666)


def of_another_file(note: Path) -> None:
    note.write_bytes(note.read_bytes().replace(b"net.py", b"own.py"))


@pytest.mark.parametrize("become", [given_away, opened_to_all, of_another_file])
def test_consent_writable_by_others_is_ignored(tmp_path: Path, become: Callable[[Path], None]) -> None:
    if become is given_away and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    file, sha256 = str(tmp_path / "net.py"), "0" * 64
    consent.record_consent(file, sha256)
    (note,) = (paths.home() / "consent").iterdir()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert consent.has_consent(file, sha256)
    become(note)
    assert not consent.has_consent(file, sha256)


def test_consent_is_for_one_path_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consent.record_consent(str(tmp_path / "net.py"), "0" * 64)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for same in ("net.py", "./link/net.py"):
        assert consent.has_consent(same, "0" * 64)
    assert not consent.has_consent(str(tmp_path / "other.py"), "0" * 64)
    assert not consent.has_consent(str(tmp_path / "net.py"), "1" * 64)


LINKS = (
    "events.jsonl",
    "worker-0.log",
    "supervisor.log",
    "job.toml.part",
    "supervisor.part",
    "checkpoints/.last.pt.part",
)


def test_run_writes_through_no_links_of_its_folder(job: Make, follow: Follow, tmp_path: Path) -> None:
    """Start a run in a folder that contains links to the user's files. These files must not be changed."""
    run = create_run(job(epochs=1))
    precious = {link: tmp_path / link.replace("/", "-") for link in LINKS}
    for link, target in precious.items():
        target.write_text("precious\nand torn")
        (run.path / link).symlink_to(target)
    follow(run.run_id).start().wait_for_processes_to_end()
    changed = {link for link, target in precious.items() if target.read_bytes() != b"precious\nand torn"}
    assert changed == set()
