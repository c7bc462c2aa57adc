"""Access to runs. Only the user may reach them through sockets, files or folders."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from engine.contract.events import Failed, LogLine
from engine.contract.job import Job
from engine.contract.protocol import ENCODE, Hello, Stop
from engine.processes.group import PRIVATE_NETWORK
from engine.runs import consent
from engine.runs.connection import RunConnection
from engine.runs.folder import create_run
from engine.runs.index import RunIndex
from engine.runs.notes import change_notes
from engine.runs.notices import load_notices
from engine.supervisor.endpoint import open_endpoint
from engine.system import paths
from tests.engine.supervisor.supervised import ROOT
from tests.engine.supervisor.test_clients import read_last_message
from tests.faults.conftest import Make, StartRun
from tests.faults.damage import Gate
from tests.faults.real_runs import RealRun
from tests.gui.sources.written_runs import write_run
from tests.support.consent import permit_model_file
from tests.support.nobody import NOBODY, run_as_nobody
from tests.support.planting import FileCreator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

CATALOGUE_MODEL = {"model": "mnist_cnn", "model_file_sha256": ""}
LOOPBACK = ("127.0.0.1", "::1")

# Sockets


def list_sockets(processes: Iterable[psutil.Process], kind: str) -> list[Any]:
    """Return the sockets of the processes that still run. `kind` is "inet" or "unix"."""
    sockets = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a helper process that has ended meanwhile
            sockets += process.net_connections(kind)
    return sockets


def is_listening(one: Any) -> bool:
    """Return True for a listening TCP socket, and for any UDP socket."""
    return bool(one.type == socket.SOCK_DGRAM or one.status == psutil.CONN_LISTEN)


@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        ("single", CATALOGUE_MODEL),
        ("ddp", CATALOGUE_MODEL),
        ("ddp", {}),
        pytest.param("pipeline", {"microbatches": 4}, marks=pytest.mark.long),
        pytest.param("fsdp", {}, marks=pytest.mark.long),
    ],
)
def test_run_listens_only_on_loopback(job: Make, start_run: StartRun, strategy: str, fields: dict[str, Any]) -> None:
    cpus = 1 if strategy == "single" else 2
    run = start_run(job(strategy, cpus, epochs=10_000, **fields))
    run.wait_for_step(2)
    processes = run.processes()
    assert len(processes) >= 1 + cpus
    inet = list_sockets(processes, "inet")
    is_private = any(line.text == PRIVATE_NETWORK for line in run.list_events(LogLine))
    assert bool(inet) == (cpus > 1 and not is_private), "one rank alone talks to nobody"
    assert {one.laddr.ip for one in inet} | {one.raddr.ip for one in inet if one.raddr} <= set(LOOPBACK)
    assert any(map(is_listening, inet)) == bool(inet)
    bound = {Path(one.laddr) for one in list_sockets(processes, "unix") if one.laddr}
    supervisor = run.folder.supervisor()
    assert supervisor is not None
    place = Path(supervisor.endpoint.removeprefix("unix:"))
    assert {path.parent for path in bound} == {place.parent}
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    run.send(Stop())
    assert run.wait_for_end().outcome == "stopped"


def test_loopback_requires_the_complete_token(
    job: Make, start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connect over TCP, which replaces Unix sockets on Windows and for paths that are too long."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    run = start_run(job(epochs=10_000))
    run.wait_for_step(2)
    supervisor = run.folder.supervisor()
    assert supervisor is not None
    kind, port, token = supervisor.endpoint.split(":")
    assert kind == "tcp"
    assert stat.S_IMODE(run.folder.supervisor_file.stat().st_mode) == 0o600
    inet = list_sockets([psutil.Process(run.pid)], "inet")
    assert [one.laddr.ip for one in filter(is_listening, inet)] == ["127.0.0.1"]
    for guess in ("", token[:-1], token[:-1] + "é", token + "x", token.swapcase()):
        with socket.create_connection(("127.0.0.1", int(port))) as guesser:
            guesser.sendall(ENCODE.encode(Hello(token=guess)) + b"\n" + ENCODE.encode(Stop()) + b"\n")
            assert read_last_message(guesser) == {"type": "goodbye", "reason": "wrong token"}
    run.wait_for_step(run.logged[-1].n)
    run.send(Stop())
    assert run.wait_for_end().outcome == "stopped"


# Files and folders


@pytest.fixture
def without_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.long
@pytest.mark.usefixtures("without_umask")
def test_run_files_are_private_with_any_umask(job: Make, start_cold: StartRun, separate_home: Path) -> None:
    run = start_cold(job(epochs=2, model="mnist_cnn", model_file_sha256="", picture_cache="disk")).completed()
    found = [path for path in separate_home.rglob("*") if not path.is_socket()]
    assert {run.last, run.folder.events_file, run.folder.worker_log(0), run.folder.job_file} <= set(found)
    found += [separate_home, paths.cache_folder(), *paths.cache_folder().rglob("*")]
    assert any(path.name == "pixels" for path in found)
    open_to_others = {str(path): oct(path.stat().st_mode) for path in found if path.stat().st_mode & 0o077}
    assert {path: mode for path, mode in open_to_others.items() if Path(path).parent.stat().st_mode & 0o077} == {}
    runs = str(paths.runs_folder())
    assert {path: mode for path, mode in open_to_others.items() if path.startswith(runs)} == {}


TRY_ALL = """
def tried(what, *words):
    try:
        what(*words)
    except PermissionError:
        return "refused"
    except Exception as error:
        return type(error).__name__
    return "done"

def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)

def plant(path):
    with open(path, "x"):
        pass

attempts = json.loads(sys.argv[1])
acts = {"list": os.listdir, "read": lambda path: open(path).close(), "connect": connect, "plant": plant,
        "folder": os.mkdir, "link": lambda path: os.symlink("/etc", path), "delete": os.unlink}
print(json.dumps({f"{act} {path}": tried(acts[act], path) for act, path in attempts}))
"""


@pytest.fixture
def shared_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a folder that all users can read, and place Footplate's home and runtime folder in it."""
    place = Path(tempfile.mkdtemp(prefix="fp"))
    place.chmod(0o755)
    for name in ("home", "run"):
        (place / name).mkdir()
        (place / name).chmod(0o755)
    monkeypatch.setenv("FOOTPLATE_HOME", str(place / "home"))
    monkeypatch.setenv("FOOTPLATE_CACHE", str(place / "home/cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "run"))
    yield place
    shutil.rmtree(place)


def test_other_user_has_no_access_to_a_run(shared_place: Path, job: Make, start_run: StartRun, gate: Gate) -> None:
    (shared_place / "home/open").touch()
    run = start_run(job(epochs=10_000, picture_cache="disk", model="mnist_cnn", model_file_sha256=""))
    run.wait_for_checkpoint()
    write_run(8)
    wait_until(lambda: bool(list(RunIndex().summaries())) and RunIndex.file().exists(), "the index of the runs")
    change_notes(run.folder.path, name="mine")
    consent.record_consent("net.py", "0" * 64)
    (paths.make_private_folder(paths.home() / "logs") / "window.log").touch()
    compiled = paths.make_trusted_folder(paths.cache_folder() / "compiled")
    supervisor = run.folder.supervisor()
    assert supervisor is not None
    place = supervisor.endpoint.removeprefix("unix:")
    folder, runtime = run.folder.path, Path(place).parent
    private = [paths.home() / "consent", paths.home() / "logs", paths.cache_folder() / "pictures", compiled]
    to_list = [paths.runs_folder(), folder, run.folder.checkpoints, runtime, *private]
    to_read = [path for path in paths.home().rglob("*") if path.is_file() and path.name != "open"]
    assert {run.last, run.folder.job_file, run.folder.events_file, folder / "notes.json"} < set(to_read)
    assert {path.parent for path in to_read} >= {paths.home() / "consent", paths.home() / "logs", paths.home()}
    # The queue folder refuses anything at the path of a ticket.
    plants = [*to_list, runtime / "queue", shared_place / "home"]
    attempts = [
        *(("list", path) for path in to_list),
        *(("read", path) for path in to_read),
        ("connect", place),
        ("delete", place),
        *(("plant", path / "1-0123456789ab.ticket") for path in plants),
        *(("link", path / "linked") for path in plants),
        *(("folder", path / "made") for path in plants),
    ]
    allowed = [("list", shared_place / "home"), ("read", shared_place / "home/open"), ("list", shared_place / "run")]
    tried = run_as_nobody(TRY_ALL, json.dumps([(act, str(path)) for act, path in (*allowed, *attempts)]))
    assert [tried[f"{act} {path}"] for act, path in allowed] == ["done"] * 3, "the way there is open"
    assert {what: how for what, how in list(tried.items())[3:] if how != "refused"} == {}
    run.send(Stop())
    assert run.wait_for_end().outcome == "stopped"


SQUAT = {
    "a folder": "os.mkdir(path, 0o777)",
    "a link to a folder of theirs": "os.mkdir(path + '.theirs', 0o777); os.symlink(path + '.theirs', path)",
    "a link to a folder of the user's": "os.symlink(sys.argv[2], path)",
    "a file": "open(path, 'x').close()",
    "a pipe": "os.mkfifo(path, 0o777)",
}


@pytest.mark.parametrize("how", SQUAT)
def test_runtime_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    common, private = Path(tempfile.mkdtemp(prefix="fp")), tmp_path / "own"
    common.chmod(0o1777)
    private.mkdir(mode=0o755)
    private.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(common))
    monkeypatch.setattr(tempfile, "tempdir", str(common))
    try:
        for name in ("footplate", f"footplate-{os.getuid()}"):
            code = f"path = sys.argv[1]; {SQUAT[how]}; print(0)"
            run_as_nobody(code, str(common / name), str(private))
        folder = paths.runtime_folder()
        assert folder == paths.home() / "runtime"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(private.stat().st_mode) == 0o755
        run = create_run(Job())
        endpoint = open_endpoint(run.path)
        endpoint.close()
        assert endpoint.text.startswith(("tcp:", f"unix:{folder}"))
    finally:
        shutil.rmtree(common)


IMPORTED = "from engine.contract.job import Job; from engine.runs.folder import create_run"
CREATE = """
try:
    create_run(Job())
except PermissionError as error:
    print(json.dumps(str(error)))
"""


def test_home_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    common = Path(tempfile.mkdtemp(prefix="fp"))
    common.chmod(0o1777)
    home = common / "home"
    run_as_nobody("os.mkdir(sys.argv[1], 0o777); print(0)", str(home))
    monkeypatch.setenv("FOOTPLATE_HOME", str(home))
    try:
        result = run_as_nobody(CREATE, uid=NOBODY - 1, before=IMPORTED)
        assert result.startswith(f"{home} belongs to another user")
        assert result.endswith("set FOOTPLATE_HOME to a folder that you own")
        assert list(home.iterdir()) == []
    finally:
        shutil.rmtree(common)


def test_home_becomes_writable_only_by_its_user(separate_home: Path) -> None:
    separate_home.mkdir()
    separate_home.chmod(0o777)
    run = create_run(Job())
    assert stat.S_IMODE(separate_home.stat().st_mode) == 0o755
    assert stat.S_IMODE(paths.runs_folder().stat().st_mode) == stat.S_IMODE(run.path.stat().st_mode) == 0o700


def writable_by_all(file: Path) -> None:
    file.chmod(0o666)


def given_away(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, NOBODY, NOBODY)


@pytest.mark.parametrize("become", [writable_by_all, given_away])
def test_notification_command_of_another_user_is_ignored(separate_home: Path, become: Callable[[Path], None]) -> None:
    separate_home.mkdir()
    settings = separate_home / "notices.toml"
    settings.write_text('command = "touch ran"\n')
    assert load_notices()[0].command == "touch ran"
    become(settings)
    heeded, problems = load_notices()
    assert heeded.command == ""
    assert "is writable by others, whose command would run as yours." in str(problems[0])


def test_existing_run_folders_become_private(separate_home: Path) -> None:
    (separate_home / "runs").mkdir(parents=True)
    (separate_home / "runs").chmod(0o755)
    create_run(Job())
    assert stat.S_IMODE(paths.runs_folder().stat().st_mode) == 0o700


# Files that contain code


def test_weights_file_with_code_is_refused(job: Make, start_run: StartRun, tmp_path: Path) -> None:
    file, planted = tmp_path / "weights.pt", tmp_path / "planted"
    torch.save({"model": FileCreator(planted)}, file)
    run = start_run(job(weights_file=str(file), **CATALOGUE_MODEL))
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert f"{file} can't be read as weights" in failed.cause
    assert "files that contain code are not opened" in failed.cause
    assert "weights_only" not in failed.cause
    assert "Weights only load failed" not in failed.cause
    assert not planted.exists()


@pytest.mark.long
def test_cached_weights_with_code_are_refused(
    job: Make, start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.models import SqueezeNet1_1_Weights

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file, planted = tmp_path / "hub/checkpoints" / Path(SqueezeNet1_1_Weights.DEFAULT.url).name, tmp_path / "planted"
    file.parent.mkdir(parents=True)
    torch.save({"fc.weight": FileCreator(planted)}, file)
    run = start_run(job(model="squeezenet1_1", model_file_sha256="", pretrained=True))
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert f"The pretrained weights in {file} are damaged" in failed.cause
    assert "Remove that file." in failed.cause
    assert not planted.exists()


def test_source_unpickles_only_trusted_data() -> None:
    """Search the source for uses of pickle, and for torch.load without weights_only. Wrappers of both count, too."""
    unsafe = {"loads", "Unpickler", "read_pickle", "joblib", "shelve", "marshal"}
    needs_weights_only = {"load_state_dict_from_url", "get_state_dict"}
    count = 0
    for file in (*ROOT.glob("engine/**/*.py"), *ROOT.glob("gui/**/*.py")):
        text = file.read_text()
        if not re.search(r"pickle|load|state_dict|shelve|marshal", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            name = called.rpartition(".")[2]
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            where = f"{file}:{node.lineno}: {called}"
            if called == "torch.load" or name in needs_weights_only:
                count += 1
                assert keywords.get("weights_only") == "True", where
            assert name not in unsafe or called in ("json.loads", "tomllib.loads"), where
            assert keywords.get("allow_pickle") != "True", where
    assert count >= 2


# Programs


RUNS = "import pathlib\npathlib.Path({ran!r}).touch()\n{rest}"
HARMLESS = "from torch import nn\n\n\ndef build_model(n):\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, n))\n"


def allowed_file(folder: Path) -> dict[str, str]:
    path = folder / "net.py"
    path.write_text(HARMLESS)
    return {"model": str(path), "model_file_sha256": permit_model_file(path)}


def replace_model_file(path: Path) -> Path:
    """Replace the model file at `path` by one whose execution creates another file. Return the path of that file."""
    ran = path.with_name("ran")
    path.write_text(RUNS.format(ran=str(ran), rest=HARMLESS))
    return ran


def assert_refused(run: RealRun, since: int = 0) -> None:
    assert run.wait_for_end(since=since).outcome == "failed"
    (failed,) = run.list_events(Failed, since=since)
    assert failed.kind == "error"
    assert failed.cause == (
        "net.py contains code that you have not allowed to run yet. It has changed since you allowed it. Review the code, "
        "then allow it again."
    )


def test_model_file_changed_after_consent_is_refused(job: Make, start_run: StartRun, tmp_path: Path) -> None:
    run_job = job(**allowed_file(tmp_path))
    ran = replace_model_file(tmp_path / "net.py")
    assert_refused(start_run(run_job))
    assert not ran.exists()


def test_changed_model_file_needs_consent_to_resume(job: Make, start_run: StartRun, tmp_path: Path) -> None:
    run = start_run(job(epochs=1, **allowed_file(tmp_path))).completed()
    ran = replace_model_file(tmp_path / "net.py")
    before = run.last_n
    run.resume(epochs=2)
    assert_refused(run, since=before)
    assert not ran.exists()
    before = run.last_n
    digest = permit_model_file(tmp_path / "net.py")
    run.resume(epochs=2, model_file_sha256=digest).completed(since=before)
    assert ran.exists()
    assert run.job.model.model_file_sha256 == digest


def test_job_file_cannot_give_consent(job: Make, images: Path, tmp_path: Path) -> None:
    fields = allowed_file(tmp_path)
    ran = replace_model_file(tmp_path / "net.py")
    digest = hashlib.sha256((tmp_path / "net.py").read_bytes()).hexdigest()
    file = tmp_path / "job.toml"
    file.write_text(f'[model]\nname = "{fields["model"]}"\nmodel_file_sha256 = "{digest}"\n[data]\nimage_size = 28\n')
    command = [sys.executable, str(ROOT / "footplate.py"), "train", str(images), "--job", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "net.py contains code that you have not allowed to run yet." in done.stderr
    assert "--trust-model-file" in done.stderr
    assert not ran.exists()
    assert not paths.runs_folder().exists()


# Loss of the folder in which clients find a run


def test_run_is_reachable_after_logout(job: Make, start_run: StartRun, tmp_path: Path) -> None:
    """Remove the runtime folder, which contains the run's socket, as the system does at logout. Another one is used."""
    run = start_run(job(epochs=10_000))
    run.wait_for_step(2)
    removed, before = paths.runtime_folder(), run.folder.supervisor()
    removed.rename(tmp_path / "gone")
    removed.symlink_to(tmp_path / "nothing")  # no link is used
    wait_until(lambda: run.folder.supervisor() not in (None, before), "the new address")
    with RunConnection(run.folder, from_n=1 << 60) as connection:
        connection.send(Stop())
    assert run.wait_for_end().outcome == "stopped"
