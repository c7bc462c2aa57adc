"""Cache folders for compiled code that another user has created in advance."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.contract.events import Warned
from engine.system import paths
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Make, StartRun
from tests.support.nobody import NOBODY, run_as_nobody

pytestmark = pytest.mark.attacks

SETTLE = """
import json, os
from engine.system import compile_cache
why = compile_cache.use_private_folders()
print(json.dumps([why, {name: os.environ[name] for name in compile_cache.FOLDERS}]))
"""


def choose_folders(**environment: str) -> tuple[str, dict[str, str]]:
    """Choose the cache folders in a new process. Return the warning about them and the environment variables."""
    done = subprocess.run(
        [sys.executable, "-c", SETTLE],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
    )
    why, folders = json.loads(done.stdout)
    return why, folders


WORK = """
import os
import socket
import sys
import torch
from engine.contract.job import Job
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.training.worker import run_reporting

def work(reporter):
    if sys.argv[1] == "compile":
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(8))
    from torch._inductor import codecache
    print(codecache.cache_dir(), codecache.default_cache_dir(), codecache._HEADER_DIR, os.environ["TRITON_CACHE_DIR"])
    return WorkerDone(stopped=False)

ours, theirs = socket.socketpair()
job = Job.from_fields(devices=("cpu",))
spec = WorkerSpec(run_folder=".", job=job, rank=0, world_size=1, devices=("cpu",), rendezvous="", threads=1)
raise SystemExit(run_reporting(spec, theirs, work))
"""
"""Script that runs in a worker and prints the folders for torch's compiled code. With "compile", it first compiles."""


@pytest.mark.long
@pytest.mark.parametrize("does", ["nothing", "compile"])
def test_compiler_avoids_prepared_folder_of_another_user(shared_folder: Path, does: str) -> None:
    """Run a worker that does nothing or compiles a model.

    Without torch's precompiled headers, compiling takes over a minute.
    """
    trap = shared_folder / f"torchinductor_{getpass.getuser()}"
    run_as_nobody("os.mkdir(sys.argv[1]); os.chmod(sys.argv[1], 0o777); print(0)", str(trap))
    environment = os.environ | {"TMPDIR": str(shared_folder)}
    command = [sys.executable, "-c", WORK, does]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, timeout=300, stdout=subprocess.PIPE, text=True
    )
    compiled = paths.cache_folder() / "compiled"
    assert all(Path(folder).is_relative_to(compiled) for folder in done.stdout.split())
    assert list(trap.iterdir()) == []
    if does == "compile":
        assert any(path.is_file() for path in (compiled / "inductor").rglob("*"))


def test_compile_caches_are_private(separate_home: Path) -> None:
    why, folders = choose_folders()
    assert why == ""
    for folder in folders.values():
        assert Path(folder).is_relative_to(paths.cache_folder() / "compiled")
        assert Path(folder).stat().st_mode & 0o777 == 0o700


def opened_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def given_away(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


def replaced_by_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    run_as_nobody("os.symlink(sys.argv[2], sys.argv[1]); print(0)", str(folder), str(folder.with_name("real")))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("become", [opened_to_all, given_away, replaced_by_a_link])
@pytest.mark.parametrize("which", ["", "inductor"])
def test_cache_writable_by_others_is_not_used(shared_folder: Path, which: str, become: object) -> None:
    cache = shared_folder / "cache"
    (cache / "compiled/inductor").mkdir(parents=True, mode=0o700)
    if become is replaced_by_a_link and which:
        (cache / "compiled").chmod(0o777)
    assert callable(become)
    become(cache / "compiled" / which if which else cache)
    why, folders = choose_folders(FOOTPLATE_CACHE=str(cache))
    runtime = paths.runtime_folder()
    assert Path(folders["TORCHINDUCTOR_CACHE_DIR"]) == runtime / "compiled/inductor"
    assert str(cache) in why
    assert why.startswith(f"Compiled code is kept in {runtime}/compiled for now: {cache}")
    assert why.endswith("Set FOOTPLATE_CACHE to a folder that you own.")


@pytest.mark.long
def test_run_warns_about_untrusted_cache(
    shared_folder: Path, job: Make, start_run: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_nobody("os.mkdir(sys.argv[1]); os.chmod(sys.argv[1], 0o777); print(0)", str(shared_folder / "cache"))
    monkeypatch.setenv("FOOTPLATE_CACHE", str(shared_folder / "cache"))
    run = start_run(job(epochs=1)).completed()
    (warning,) = [event for event in run.list_events(Warned) if event.code == "compile_cache"]
    assert f"{shared_folder}/cache belongs to another user" in warning.message
