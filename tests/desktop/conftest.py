"""Fixtures that start desktops. All tests in a file share a desktop, because starting it takes seconds.

No process may remain after the tests.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.conftest import kill_leaked_processes
from tests.desktop.desktops import (
    Desktop,
    find_obstacle,
    start_wayland_desktop,
    start_wayland_desktop_with_keyboard,
    start_x_desktop,
)

Make = Callable[[Path, Path], AbstractContextManager[Desktop]]


def _lend(make: Make, folder: Path) -> Iterator[Desktop]:
    runtime = Path(tempfile.mkdtemp(prefix="fp"))  # short, because a socket's path has at most 107 bytes
    with make(folder, runtime) as desktop:
        yield desktop
    left = kill_leaked_processes(str(folder), ())
    shutil.rmtree(runtime, ignore_errors=True)
    assert left == []


@pytest.fixture(scope="module")
def x(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    if reason := find_obstacle("Xvfb", "openbox", "xdotool"):
        pytest.skip(reason)
    yield from _lend(start_x_desktop, tmp_path_factory.mktemp("x"))


@pytest.fixture(scope="module")
def wayland(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    if reason := find_obstacle("weston", "weston-screenshooter"):
        pytest.skip(reason)
    yield from _lend(start_wayland_desktop, tmp_path_factory.mktemp("wayland"))


@pytest.fixture(scope="module")
def wayland_with_keyboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    if reason := find_obstacle("sway", "wtype"):
        pytest.skip(reason)
    yield from _lend(start_wayland_desktop_with_keyboard, tmp_path_factory.mktemp("sway"))
