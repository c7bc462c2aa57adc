"""Desktops for tests, each with a display, a window manager, a session bus, an accessibility bus and a new user.

The functions `start_…` get an empty folder for the user's files and the logs of programs, and a folder for the runtime
files of the user's session (XDG_RUNTIME_DIR).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.conftest import MARK
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT = 1366, 768
"""Size of a small laptop's screen in pixels."""
SYSTEM_PYTHON = "/usr/bin/python3"
_LAUNCHER = Path("/usr/share/dbus-1/services/org.a11y.Bus.service")
_PACKAGES = "xvfb openbox xdotool weston sway wtype dbus at-spi2-core python3-gi"
_FOREIGN_VARIABLES = (
    "QT_QPA_PLATFORM",
    "WAYLAND_DISPLAY",
    "DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_CURRENT_DESKTOP",
    "FOOTPLATE_CACHE",
)
_ASK = ("dbus-send", "--session", "--print-reply", "--dest=org.a11y.Bus", "/org/a11y/bus")
_LISTENING = (
    "org.freedesktop.DBus.Properties.Set", "string:org.a11y.Status", "string:IsEnabled", "variant:boolean:true",
)  # fmt: skip
_GOODBYE_S = 20.0
_SWAY = f"""
output HEADLESS-1 resolution {WIDTH}x{HEIGHT}
default_border none
xwayland disable
"""
_KEYBOARD_STAYS_MS = 1_800_000
"""Maximum time in milliseconds that a background process of wtype keeps the virtual keyboard connected.

Without it, the desktop would have no keyboard between key presses.
"""

_Found = TypeVar("_Found")


def find_obstacle(*programs: str) -> str:
    """Return the reason why a desktop with these programs can't run on this system, or "" if it can."""
    if sys.platform != "linux":
        return "desktops for tests are Linux's"
    missing = [program for program in (*programs, "dbus-daemon", SYSTEM_PYTHON) if shutil.which(program) is None]
    if not _LAUNCHER.exists():
        missing.append("at-spi2-core")
    elif (
        not missing and subprocess.run([SYSTEM_PYTHON, "-c", "import gi"], capture_output=True, check=False).returncode
    ):
        missing.append("python3-gi")
    return f"{', '.join(missing)} not installed; apt-get install {_PACKAGES}" if missing else ""


@dataclass(frozen=True)
class Keyboard:
    """Functions that return command lines: to press keys (given by xdotool's names) or to type a text."""

    press: Callable[..., list[str]]
    type: Callable[[str], list[str]]


X_KEYBOARD = Keyboard(
    press=lambda *keys: ["xdotool", "key", "--clearmodifiers", *keys],
    type=lambda text: ["xdotool", "type", "--clearmodifiers", "--delay", "8", text],
)


def _wtype(*keys: str) -> list[str]:
    arguments = ["wtype"]
    for *modifiers, key in (each.split("+") for each in keys):
        arguments += [argument for modifier in modifiers for argument in ("-M", modifier)]
        arguments += ["-k", key, *(argument for modifier in modifiers for argument in ("-m", modifier))]
    return arguments


WAYLAND_KEYBOARD = Keyboard(press=_wtype, type=lambda text: ["wtype", "-d", "8", text])


class Desktop:
    """User's desktop, on which programs can be started.

    Attributes:
        home: Home folder of the user.
        footplate_home: Home folder of Footplate.
        environment: Environment variables for the programs.
        keyboard: Keyboard of the desktop, or None if it has no keyboard.
    """

    keyboard: Keyboard | None = None

    def __init__(self, folder: Path, runtime: Path, stack: ExitStack) -> None:
        self.home, self.footplate_home = folder / "user", folder / "footplate"
        self.home.mkdir()
        self._folder, self._stack = folder, stack
        self.environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN_VARIABLES} | {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(runtime),
            "FOOTPLATE_HOME": str(self.footplate_home),
            "LANG": "C.UTF-8",
            MARK: str(folder),
        }
        for name in ("CONFIG", "DATA", "CACHE", "STATE"):
            self.environment.pop(f"XDG_{name}_HOME", None)

    def start(self, *command: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
        """Start a program that is terminated together with the desktop.

        Its standard error is written to a log file with the program's name.
        """
        with (self._folder / f"{Path(command[0]).name}.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                text=True,
            )  # fmt: skip
        self._stack.callback(_end, process)
        return process

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function that is called before the desktop is closed."""
        self._stack.callback(callback)

    def start_footplate(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Footplate with these arguments."""
        return self.start(sys.executable, str(ROOT / "footplate.py"), *arguments, cwd=self.home)

    def read_errors(self) -> str:
        """Return the text that Footplate has written to standard error."""
        return (self._folder / f"{Path(sys.executable).name}.log").read_text()


@contextmanager
def start_x_desktop(folder: Path, runtime: Path) -> Iterator[Desktop]:
    """Start an X screen with openbox as its window manager. Yield the desktop, and close it with the context."""
    with ExitStack() as stack:
        desktop = Desktop(folder, runtime, stack)
        screen = f"{WIDTH}x{HEIGHT}x24"
        x = desktop.start("Xvfb", "-displayfd", "1", "-screen", "0", screen, "-nolisten", "tcp")
        desktop.environment["DISPLAY"] = f":{x.stdout.readline().strip()}"
        _start_bus(desktop)
        desktop.start("openbox")
        wait_until(lambda: _answers(desktop, "xdotool", "get_desktop"), "the window manager")
        desktop.keyboard = X_KEYBOARD
        yield desktop


@contextmanager
def start_wayland_desktop(folder: Path, runtime: Path) -> Iterator[Desktop]:
    """Start a headless Weston desktop, which permits screenshots. Yield it, and close it with the context."""
    with ExitStack() as stack:
        desktop = Desktop(folder, runtime, stack)
        name = "wayland-footplate"
        size = (f"--width={WIDTH}", f"--height={HEIGHT}")
        desktop.start(
            "weston",
            "--backend=headless-backend.so",
            "--use-pixman",
            "--debug",
            "--no-config",
            f"--socket={name}",
            *size,
        )
        wait_until((runtime / name).is_socket, "the compositor")
        desktop.environment |= {"WAYLAND_DISPLAY": name, "QT_QPA_PLATFORM": "wayland"}
        _start_bus(desktop)
        yield desktop


@contextmanager
def start_wayland_desktop_with_keyboard(folder: Path, runtime: Path) -> Iterator[Desktop]:
    """Start a headless Sway desktop, which accepts virtual keyboards. Yield it, and close it with the context."""
    with ExitStack() as stack:
        desktop = Desktop(folder, runtime, stack)
        desktop.environment |= {"WLR_BACKENDS": "headless", "WLR_LIBINPUT_NO_DEVICES": "1", "WLR_RENDERER": "pixman"}
        config = folder / "sway.conf"
        config.write_text(_SWAY)
        as_somebody = () if os.geteuid() else ("unshare", "--user", "--map-user=1000", "--map-group=1000")
        desktop.start(*as_somebody, "sway", "--config", str(config))  # sway doesn't start as root
        name = "wayland-1"
        wait_until((runtime / name).is_socket, "the compositor")
        desktop.environment |= {"WAYLAND_DISPLAY": name, "QT_QPA_PLATFORM": "wayland"}
        _start_bus(desktop)
        desktop.start("wtype", "-s", str(_KEYBOARD_STAYS_MS))
        desktop.keyboard = WAYLAND_KEYBOARD
        yield desktop


def _start_bus(desktop: Desktop) -> None:
    bus = desktop.start("dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address")
    desktop.environment["DBUS_SESSION_BUS_ADDRESS"] = bus.stdout.readline().strip()
    # Programs use the accessibility bus only if it was enabled before they started.
    subprocess.run([*_ASK, *_LISTENING], env=desktop.environment, capture_output=True, check=True, timeout=30)


def _answers(desktop: Desktop, *command: str) -> bool:
    return not subprocess.run(command, env=desktop.environment, capture_output=True, check=False).returncode


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_GOODBYE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
