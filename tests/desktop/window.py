"""Footplate's window as blind users perceive it, through the accessibility bus and the keyboard."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.desktop.desktops import HEIGHT, SYSTEM_PYTHON, WIDTH, Desktop, Keyboard
from tests.support.waiting import wait_until

_READER = Path(__file__).with_name("bus_reader.py")
_ACTION, _TEXT, _EDITABLE = "org.a11y.atspi.Action", "org.a11y.atspi.Text", "org.a11y.atspi.EditableText"
START_S = 60.0


@dataclass(frozen=True)
class Node:
    """Visible accessible object with its visible contents.

    `labeled` is True if a label provides its name. `box` is its left edge, top edge, width and height on the screen.
    """

    ref: tuple[str, str]
    role: str
    name: str
    description: str
    labeled: bool
    states: frozenset[str]
    box: tuple[int, int, int, int]
    children: tuple[Node, ...]

    @classmethod
    def read(cls, read: dict[str, Any]) -> Node:
        fields = {name: read[name] for name in ("role", "name", "description", "labeled")}
        children = tuple(map(cls.read, read["children"]))
        return cls(
            tuple(read["ref"]), states=frozenset(read["states"]), box=tuple(read["box"]), children=children, **fields
        )

    def iterate(self) -> Iterator[Node]:
        """Yield this object and all objects within it."""
        yield self
        for child in self.children:
            yield from child.iterate()

    def __str__(self) -> str:
        return f"{self.role} “{self.name}”"


class Window:
    """Footplate's running window, which tests read like a screen reader and use with the keyboard."""

    def __init__(self, desktop: Desktop, *arguments: str) -> None:
        self._desktop = desktop
        self.process = desktop.start_footplate(*arguments)
        self._reader = subprocess.Popen(
            [SYSTEM_PYTHON, str(_READER), str(self.process.pid)],
            env=desktop.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        desktop.on_close(self.close)
        self.wait_for("Train page", "page tab", START_S)

    # Perception

    def windows(self) -> list[Node]:
        return [Node.read(each) for each in self._ask("windows")]

    def list_nodes(self) -> list[Node]:
        """Return all visible objects, each window before its contents."""
        return [node for window in self.windows() for node in window.iterate()]

    def find(self, name: str, role: str = "") -> Node | None:
        """Return the object with exactly this name and, if given, this role. Return None if there is no such object."""
        return next((node for node in self.list_nodes() if node.name == name and role in ("", node.role)), None)

    def wait_for(self, name: str, role: str = "", patience_s: float = 60.0) -> Node:
        return wait_until(lambda: self.find(name, role), f"{role} “{name}”", patience_s)

    def wait_for_end_of(self, name: str, role: str = "") -> None:
        wait_until(lambda: self.find(name, role) is None, f"the end of {role} “{name}”", 60.0)

    def get_description(self, name: str) -> str:
        """Return the accessible description of the object with this name, or "" if there is no such object."""
        node = self.find(name)
        return node.description if node is not None else ""

    def wait_for_text(self, name: str, fragment: str, patience_s: float = 60.0) -> str:
        """Wait until the description of the object `name` contains `fragment`, and return the description."""
        return wait_until(
            lambda: fragment in (text := self.get_description(name)) and text, f"“{fragment}” of “{name}”", patience_s
        )

    def list_announcements(self) -> list[str]:
        """Return the texts of all announcements to screen readers."""
        return list(self._ask("announced"))

    def get_focus(self) -> Node | None:
        """Return the focused object, or None if no object has the focus.

        Qt doesn't report the focused object after a menu has closed. It is then found by its state.
        """
        searched = (n for n in self.list_nodes() if "focused" in n.states and n.role != "page tab")
        return self._reported_focus() or next(searched, None)

    def _reported_focus(self) -> Node | None:
        read = self._ask("focus")
        return Node.read(read) if read is not None else None

    def wait_for_focus(self, name: str) -> Node:
        def present() -> Node | None:
            node = self.get_focus()
            return node if node is not None and node.name == name else None

        return wait_until(present, f"the keyboard on “{name}”, which is on {self.get_focus()},", 30.0)

    def text_of(self, node: Node) -> str:
        return self._call(node, _TEXT, "GetText", "(ii)", 0, -1)

    def find_open_menu(self, title: str) -> Node | None:
        """Return the menu with this title in the menu bar, or None if it isn't open."""
        bar = next((node for node in self.list_nodes() if node.role == "menu bar"), None)
        entry = next((node for node in bar.children if node.name == title), None) if bar is not None else None
        return next((node for node in entry.children if node.children), None) if entry is not None else None

    # Actions

    def activate(self, name: str, role: str = "", action: str = "Press") -> None:
        """Wait for the object with this name and role, and do its `action` through the accessibility bus.

        "Press" has the effect of a click. Fails if the object doesn't offer the action.
        """
        node = self.wait_for(name, role)
        names = [each[0] for each in self._call(node, _ACTION, "GetActions", "")]
        assert action in names, f"{node} offers {names}"
        self._call(node, _ACTION, "DoAction", "(i)", names.index(action))

    def press_keys(self, *keys: str) -> None:
        """Press keys, which are given by xdotool's names."""
        self._do(self._keyboard.press(*keys))

    def type(self, text: str) -> None:
        self._do(self._keyboard.type(text))

    def run_command(self, query: str, listed: str = "") -> None:
        """Search for `query` in the command palette, wait until the entry `listed` appears, and run the first entry."""
        self.press_keys("ctrl+k")
        self.wait_for_focus("Find anything")
        self.type(query)
        wait_until(
            lambda: any(listed in node.name for node in self.list_nodes() if node.role == "list item"),
            f"“{listed}” in the list",
        )
        self.press_keys("Return")

    def drag(self, start: tuple[int, int], end: tuple[int, int], is_accepted: Callable[[], object]) -> None:
        """Drag with the mouse from `start` to `end`, and drop when `is_accepted` returns a true value."""
        steps = cycle((0, 1))  # a program starts a drag, and offers its data, when the pointer moves

        def move() -> object:
            step = next(steps)
            self._do(["xdotool", "mousemove", str(end[0] + step), str(end[1])])
            return is_accepted()

        self._do(["xdotool", "mousemove", *map(str, start), "mousedown", "1", "mousemove_relative", "20", "0"])
        wait_until(move, "the acceptance of what is dragged")
        self._do(["xdotool", "mouseup", "1"])

    def tab_to(self, name: str) -> Node:
        """Press Tab until the object with this name has the focus. Raise AssertionError if Tab doesn't reach it."""
        passed = []
        for node in self.iterate_tab_stops():
            if node.name == name:
                return node
            passed.append(str(node))
        raise AssertionError(f"Tab doesn't reach “{name}”, but only {passed}")

    def iterate_tab_stops(self, key: str = "Tab") -> Iterator[Node]:
        """Yield the focused object, then press Tab (or `key`) repeatedly and yield each object that gets the focus.

        Stop when an object gets the focus for the second time.
        """
        now = self.wait_for_any_focus()
        visited: set[tuple[str, str]] = set()
        while now.ref not in visited:
            visited.add(now.ref)
            yield now
            self.press_keys(key)
            now = self.wait_for_any_focus(other_than=now)

    def wait_for_any_focus(self, other_than: Node | None = None) -> Node:
        def present() -> Node | None:
            if other_than is None:  # read it twice, because it may be outdated after a change of page
                before, now = self.get_focus(), self.get_focus()
                return now if before is not None and now is not None and before.ref == now.ref else None
            node = self._reported_focus()
            return node if node is not None and node.ref != other_than.ref else None

        return wait_until(present, f"the keyboard on anything but {other_than}", 30.0)

    def quit(self) -> None:
        """Quit Footplate with its keyboard shortcut, and wait until the process has exited."""
        self.press_keys("ctrl+q")
        wait_until(lambda: self.process.poll() is not None, "the end of the window's process")
        self.close()

    def close(self) -> None:
        """Close the connection to the accessibility bus."""
        self._reader.stdin.close()
        self._reader.wait(10)
        self._reader.stdout.close()

    def get_active_title(self) -> str:
        """Return the title of the X desktop's active window, or "" while the active window is changing."""
        done = self._run(["xdotool", "getactivewindow", "getwindowname"])
        return done.stdout.strip()  # empty while another window is being activated

    @property
    def _keyboard(self) -> Keyboard:
        assert self._desktop.keyboard is not None, "this desktop has no keyboard"
        return self._desktop.keyboard

    def _do(self, command: list[str]) -> None:
        done = self._run(command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._desktop.environment, capture_output=True, text=True, check=False, timeout=60
        )

    def _call(self, node: Node, interface: str, method: str, signature: str, *arguments: object) -> Any:
        answer = self._ask("call", node.ref, interface, method, signature, arguments)
        assert answer is not None, f"{node} does not answer {method}"
        return answer[0] if answer else None

    def _ask(self, *question: object) -> Any:
        assert self._reader.stdin is not None
        print(json.dumps(question), file=self._reader.stdin, flush=True)
        return json.loads(self._reader.stdout.readline())


def find_windows_off_screen(windows: list[Node]) -> list[str]:
    """Return a description with the position of each window that extends beyond the screen."""
    found = []
    for window in windows:
        left, top, width, height = window.box
        if left < 0 or top < 0 or left + width > WIDTH or top + height > HEIGHT:
            found.append(f"{window} at {left}, {top}, of {width} x {height}")
    return found
