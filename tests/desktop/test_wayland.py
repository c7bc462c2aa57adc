"""Footplate's window on headless Wayland compositors, controlled through the accessibility bus or by keys."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from engine.runs.folder import RunFolder
from tests.desktop.desktops import HEIGHT, WIDTH, Desktop
from tests.desktop.names import find_unnamed_controls
from tests.desktop.window import Window
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def window(wayland: Desktop) -> Iterator[Window]:
    footplate = Window(wayland)
    yield footplate
    footplate.close()


def test_window_trains_the_sample_under_weston(wayland: Desktop, window: Window, tmp_path: Path) -> None:
    window.activate("Train the sample", "push button")
    window.wait_for_text("State of the run", "Completed", 400)
    (folder,) = (wayland.footplate_home / "runs").iterdir()
    assert RunFolder(folder).state() == "completed"
    assert [text for each in window.windows() for text in find_unnamed_controls(each)] == []
    picture = take_screenshot(wayland, tmp_path)
    assert (picture.width(), picture.height()) == (WIDTH, HEIGHT)
    assert count_colors(picture) > 100
    # This start passes its request to the open window.
    assert wayland.start_footplate().wait(20) == 0
    # As at the end of a session, because menus open only with keys or a mouse.
    window.process.send_signal(signal.SIGTERM)
    wait_until(lambda: window.process.poll() is not None, "the end of the window's process")
    assert window.process.returncode == 0
    assert wayland.read_errors() == ""


def test_keys_control_the_window_under_sway(
    wayland_with_keyboard: Desktop,
) -> None:
    window = Window(wayland_with_keyboard)
    window.wait_for_focus("Train the sample")
    window.press_keys("alt+f")
    assert "Quit" in {node.name for node in wait_until(lambda: window.find_open_menu("File"), "the menu File").children}
    window.press_keys("Right")
    assert "Stop" in {node.name for node in wait_until(lambda: window.find_open_menu("Run"), "the menu Run").children}
    window.press_keys("Escape")  # the menu
    window.wait_for_focus("Run")
    window.press_keys("Escape")  # the menu bar
    window.wait_for_focus("Train the sample")
    window.run_command("vice pan", "Devices panel")
    window.wait_for_end_of("CPU workers")
    window.press_keys("F7")
    window.wait_for("CPU workers")
    window.press_keys("ctrl+comma")
    window.wait_for_focus("Search settings")
    window.press_keys("Escape")
    window.wait_for_end_of("Search settings")
    window.press_keys("ctrl+Return")
    window.wait_for_text("State of the run", "Running")
    window.press_keys("ctrl+period")
    window.wait_for_text("State of the run", "Stopped")
    (folder,) = (wayland_with_keyboard.footplate_home / "runs").iterdir()
    assert RunFolder(folder).state() == "stopped"
    window.quit()
    assert window.process.returncode == 0
    assert wayland_with_keyboard.read_errors() == ""


def take_screenshot(desktop: Desktop, folder: Path) -> QImage:
    """Save a screenshot of the entire desktop in `folder`, and return it."""
    subprocess.run(["weston-screenshooter"], cwd=folder, env=desktop.environment, check=True, timeout=30)
    (file,) = folder.glob("wayland-screenshot*.png")
    return QImage(str(file))


def count_colors(picture: QImage) -> int:
    small = picture.scaled(400, 300)
    return len({small.pixel(x, y) for x in range(small.width()) for y in range(small.height())})
