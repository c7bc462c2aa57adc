"""Fixtures and hooks for all tests: a separate home folder for each test, and checks for leaked resources."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.nvml_stub import NvmlStub, build_once, compile_stub, find_obstacle
from tests.support.orphans import kill_orphans

if TYPE_CHECKING:
    from tests.faults.real_runs import Starter
    from tests.support.trained_runs import TrainedRun
    from tests.support.worker_group import Forker

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# Several tests and their processes share the cores, so torch's threads must not spin while they wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Save bytecode; otherwise, hundreds of child processes would compile the same files.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.pop("PYTHONUNBUFFERED", None)  # it would hide missing calls of `flush`

# Background jobs of a shell script ignore SIGINT. Without this, processes that tests interrupt would ignore it, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = {
    "tests/attacks/": "faults",
    "tests/faults/": "faults",
    "tests/cuda/": "cuda",
    "tests/engine/inference/": "inference",
    "tests/engine/checks/test_refusals.py": "inference",
    "tests/engine/cli/test_evaluate_command.py": "inference",
    "tests/engine/test_torch_compat.py": "inference",
    "tests/gui/run/use/": "inference",
    "tests/engine/strategies/": "training",
    "tests/engine/training/": "training",
}
"""Starts of paths of files that share slow fixtures, and the name of a group. The same process runs a group's tests."""

FIRST = (
    "training",
    "faults",
    "inference",
    "cuda",
    "tests/gui/test_every_control.py",
    "tests/gui/test_every_page.py",
    "tests/engine/tasks/test_task_folders.py",
)
"""Slow groups and files. They start first, so that none of them is still running when all others have ended."""

MARK = "FOOTPLATE_TEST"
GOODBYE_S = 60.0
"""Seconds within which processes must exit after a test."""
_RUNTIME_FOLDERS: list[Path] = []
"""Empty runtime folders of earlier tests. Creating and removing one would take milliseconds for each test."""
PATIENCE_MS = 120_000
"""Timeout for waits in window tests, in milliseconds."""


def pytest_configure(config: pytest.Config) -> None:
    """Configure plugins. On machines that only run tests/gpu, some of them aren't installed."""
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import HealthCheck, settings

        # The same examples each time, however slow the machine is; `--hypothesis-profile default` draws others.
        patient = {"derandomize": True, "deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
        settings.register_profile("steady", max_examples=50, **patient)
        settings.load_profile("steady")
    if config.pluginmanager.hasplugin("pytest-qt"):
        from pytestqt.qtbot import QtBot

        for wait in (QtBot.waitUntil, QtBot.waitSignal, QtBot.waitSignals, QtBot.waitExposed, QtBot.waitActive):
            wait.__kwdefaults__["timeout"] = PATIENCE_MS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute tests by file, like `--dist loadfile`, but run all files of a group in `TOGETHER` in one process."""
    from xdist.scheduler import LoadFileScheduling

    class ByRoom(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((name for room, name in TOGETHER.items() if file.startswith(room)), file)

        def _assign_work_unit(self, node: Any) -> None:
            for scope in reversed(FIRST):
                if scope in self.workqueue:
                    self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return ByRoom(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the collected tests from garbage collection, which would otherwise spend seconds on them."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(autouse=True, scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set temporary cache and runtime folders for processes that several tests share.

    If this process is killed, the processes of its tests are killed, too.
    """
    runtime = tempfile.mkdtemp(prefix="fp")
    with pytest.MonkeyPatch.context() as patch, kill_orphans(patch):
        patch.setenv("FOOTPLATE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        yield
    for folder in (runtime, *_RUNTIME_FOLDERS):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def separate_home(tmp_path: Path) -> Iterator[Path]:
    """Set Footplate's home, cache and runtime folder for one test. Fail the test if it leaks resources."""
    with use_home(tmp_path) as home:
        yield home


@contextlib.contextmanager
def use_home(folder: Path) -> Iterator[Path]:
    """Set Footplate's home, cache and runtime folder to folders within `folder`. Fail if the context leaks resources.

    Undo patches of modules before the context ends, since the search for leaks would use them.
    """
    # A short path, because a socket's path has at most 107 bytes.
    runtime = _RUNTIME_FOLDERS.pop() if _RUNTIME_FOLDERS else Path(tempfile.mkdtemp(prefix="fp"))
    home = folder / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOOTPLATE_HOME", str(home))
        patch.setenv("FOOTPLATE_CACHE", str(folder / "cache"))
        patch.setenv("HF_HOME", str(folder / "hub"))
        # No server responds at this address, with or without a network.
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        patch.setenv("https_proxy", "http://127.0.0.1:9")
        patch.setenv("TORCH_HOME", str(folder / "torch"))
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.setenv(MARK, str(folder))
        threads, pids = set(threading.enumerate()), set(psutil.pids())
        yield home
        leaks = [f"process {process}" for process in kill_leaked_processes(str(folder), pids)]
        leaks += [f"thread {thread.name}" for thread in _leaked_threads(threads)]
    leaks += [f"socket {path}" for path in runtime.rglob("*") if path.is_socket()]
    if leaks or not _is_empty_and_private(runtime):
        shutil.rmtree(runtime, ignore_errors=True)
    else:
        _RUNTIME_FOLDERS.append(runtime)
    if leaks:
        pytest.fail("left behind: " + "; ".join(leaks))


def _is_empty_and_private(runtime: Path) -> bool:
    """Return True if the runtime folder is empty and only accessible to the user, as before the test."""
    try:
        return stat.S_IMODE(runtime.lstat().st_mode) == 0o700 and not os.listdir(runtime)
    except OSError:
        return False


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """Yield the controller of a process that imports PyTorch, which takes seconds, and then forks workers."""
    from tests.support.worker_group import Forker

    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture(scope="session")
def trained(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TrainedRun]:
    """Return a function that returns the trained run of a task.

    All test processes share these runs, so tests must not change their folders.
    """
    from tests.support.trained_runs import get_cached_run

    return functools.cache(
        lambda task: build_once(
            tmp_path_factory, f"run-of-{task}", functools.partial(get_cached_run, forker, task=task)
        )
    )


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Yield the controller of a process that imports PyTorch and forks supervisors, for tests of faults and attacks.

    If there is a C compiler, tests can make the disk fail in these supervisors; see tests/support/bad_disk.c.
    """
    from tests.faults.real_runs import ROOT, Starter

    if sys.platform != "linux":
        pytest.skip("processes are forked, and looked at in /proc")
    library, source = tmp_path_factory.mktemp("bad_disk") / "bad_disk.so", ROOT / "tests/support/bad_disk.c"
    if has_compiler := shutil.which("cc") is not None:
        compilation = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(compilation, check=True, timeout=120)
    starter = Starter({"LD_PRELOAD": str(library)} if has_compiler else {})
    yield starter
    starter.close()


@pytest.fixture(scope="session")
def compiled_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """Return the compiled stub of NVIDIA's libraries. It is compiled once for all test processes."""
    if reason := find_obstacle():
        pytest.skip(reason)
    return build_once(tmp_path_factory, "nvml", compile_stub)


@pytest.fixture(scope="session")
def compiled_old_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """Return a compiled stub of NVIDIA's libraries for an old driver, which lacks newer functions."""
    if reason := find_obstacle():
        pytest.skip(reason)
    return build_once(tmp_path_factory, "old_nvml", functools.partial(compile_stub, old_driver=True))


@pytest.fixture(autouse=True)
def no_unexpected_warnings_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test that logs a warning or an error. A test that expects one clears `caplog`."""
    yield
    unexpected = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
    if unexpected:
        pytest.fail("unexpected log lines: " + "; ".join(unexpected))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Disable the garbage collector in tests of the window, and collect garbage on the GUI thread between the tests.

    The windows of a test are deleted before the next test, and shared windows before the next file. Otherwise, the
    collector might delete them in another thread, and Qt would crash.
    """
    if "qapp" not in getattr(item, "fixturenames", ()):
        return (yield)
    from PySide6.QtCore import QCoreApplication, QEvent

    gc.disable()
    done = yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    if nextitem is not None and nextitem.path == item.path:
        gc.collect(1)
    else:
        gc.collect()
        gc.freeze()
    gc.enable()
    return done


def kill_leaked_processes(mark: str, before: Collection[int]) -> list[str]:
    """Wait for the processes with `mark` in their environment, kill those that don't exit in time, and describe these.

    Processes with ids in `before` are ignored, because reading the environments of all processes after each of
    thousands of tests takes half a minute.
    """
    deadline = time.monotonic() + GOODBYE_S
    while True:
        left = [process for pid in psutil.pids() if pid not in before and (process := _find_process(mark, pid))]
        if not left or time.monotonic() > deadline:
            break
        psutil.wait_procs(left, timeout=0.1)
    names = []
    for process in left:
        with_command = " ".join(_command(process))
        names.append(f"{process.pid} ({with_command[:120]})")
        try:
            process.kill()
        except psutil.Error:
            continue
    return names


def _find_process(mark: str, pid: int) -> psutil.Process | None:
    """Return the process `pid` if it is alive and its environment contains `mark`, otherwise None."""
    try:
        process = psutil.Process(pid)
        is_alive = pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
        return process if is_alive and process.environ().get(MARK) == mark else None
    except psutil.Error:
        return None


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return ["?"]


def _leaked_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    deadline = time.monotonic() + GOODBYE_S
    new = [t for t in threading.enumerate() if t not in before and not isinstance(t, threading._DummyThread)]
    for thread in new:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in new if thread.is_alive()]
