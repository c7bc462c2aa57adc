"""Footplate's window as those see it who do not see it: through the accessibility bus, and by keys."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.desktop.desktops import HEIGHT, SYSTEM_PYTHON, WIDTH, Desktop, Keyboard, until

_READER = Path(__file__).with_name("bus_reader.py")
_ACTION, _TEXT, _EDITABLE = "org.a11y.atspi.Action", "org.a11y.atspi.Text", "org.a11y.atspi.EditableText"
START_S = 60.0


@dataclass(frozen=True)
class Node:
    """Something on the screen, with all that is shown in it. `labelled` is whether a label names it, and `box` is its
    left, top, width and height on the screen.
    """

    ref: tuple[str, str]
    role: str
    name: str
    description: str
    labelled: bool
    states: frozenset[str]
    box: tuple[int, int, int, int]
    children: tuple[Node, ...]

    @classmethod
    def read(cls, read: dict[str, Any]) -> Node:
        fields = {name: read[name] for name in ("role", "name", "description", "labelled")}
        children = tuple(map(cls.read, read["children"]))
        return cls(
            tuple(read["ref"]), states=frozenset(read["states"]), box=tuple(read["box"]), children=children, **fields
        )

    def all(self) -> Iterator[Node]:
        """Itself and all in it."""
        yield self
        for child in self.children:
            yield from child.all()

    def __str__(self) -> str:
        return f"{self.role} “{self.name}”"


class Window:
    """A started Footplate: `process` is its own, and everything else what its user perceives and does."""

    def __init__(self, desktop: Desktop, *arguments: str) -> None:
        self._desktop = desktop
        self.process = desktop.footplate(*arguments)
        self._reader = subprocess.Popen(
            [SYSTEM_PYTHON, str(_READER), str(self.process.pid)],
            env=desktop.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.wait_for("Train page", "page tab", START_S)

    # What is perceived

    def windows(self) -> list[Node]:
        return [Node.read(each) for each in self._ask("windows")]

    def nodes(self) -> list[Node]:
        """All that is shown, windows first."""
        return [node for window in self.windows() for node in window.all()]

    def find(self, name: str, role: str = "") -> Node | None:
        """What is called exactly that."""
        return next((node for node in self.nodes() if node.name == name and role in ("", node.role)), None)

    def wait_for(self, name: str, role: str = "", patience_s: float = 60.0) -> Node:
        return until(lambda: self.find(name, role), f"{role} “{name}”", patience_s)

    def wait_for_end_of(self, name: str, role: str = "", patience_s: float = 60.0) -> None:
        until(lambda: self.find(name, role) is None, f"the end of {role} “{name}”", patience_s)

    def said(self, name: str) -> str:
        """What the thing of that name says besides its name; "" where it is not there."""
        node = self.find(name)
        return node.description if node is not None else ""

    def wait_until_said(self, name: str, part: str, patience_s: float = 60.0) -> str:
        """Waits until the thing of that name says something that has `part` in it, and answers that."""
        return until(lambda: part in (said := self.said(name)) and said, f"“{part}” of “{name}”", patience_s)

    def announced(self) -> list[str]:
        """What a screen reader was given to say without having asked, so far."""
        return list(self._ask("announced"))

    def focus(self) -> Node | None:
        """What has the keyboard. Qt does not tell of it again once a menu is closed: then it is looked for."""
        looked_for = (n for n in self.nodes() if "focused" in n.states and n.role != "page tab")
        return self._told_focus() or next(looked_for, None)

    def _told_focus(self) -> Node | None:
        read = self._ask("focus")
        return Node.read(read) if read is not None else None

    def wait_for_focus(self, name: str, patience_s: float = 30.0) -> Node:
        def there() -> Node | None:
            node = self.focus()
            return node if node is not None and node.name == name else None

        return until(there, f"the keyboard on “{name}”, which is on {self.focus()},", patience_s)

    def text_of(self, node: Node) -> str:
        return self._call(node, _TEXT, "GetText", "(ii)", 0, -1)

    def open_menu(self, title: str) -> Node | None:
        """The menu of that title as it is open."""
        bar = next((node for node in self.nodes() if node.role == "menu bar"), None)
        entry = next((node for node in bar.children if node.name == title), None) if bar is not None else None
        return next((node for node in entry.children if node.children), None) if entry is not None else None

    # What is done

    def press(self, name: str, role: str = "", action: str = "Press") -> None:
        """Does to the thing of that name what a click would do, through the bus."""
        node = self.wait_for(name, role)
        names = [each[0] for each in self._call(node, _ACTION, "GetActions", "")]
        assert action in names, f"{node} offers {names}"
        self._call(node, _ACTION, "DoAction", "(i)", names.index(action))

    def keys(self, *keys: str) -> None:
        """Presses keys, as xdotool calls them."""
        self._do(self._keyboard.press(*keys))

    def type(self, text: str) -> None:
        self._do(self._keyboard.type(text))

    def run_command(self, words: str, listed: str = "") -> None:
        """Has the palette find `words` and does what stands first, once what is called `listed` is there, too."""
        self.keys("ctrl+k")
        self.wait_for_focus("Find anything")
        self.type(words)
        until(
            lambda: any(listed in node.name for node in self.nodes() if node.role == "list item"),
            f"“{listed}” in the list",
        )
        self.keys("Return")

    def tab_to(self, name: str, key: str = "Tab") -> Node:
        """Presses Tab until the keyboard is on the thing of that name. Raises AssertionError where it never gets
        there.
        """
        for node in self.tab_stops(key):
            if node.name == name:
                return node
        raise AssertionError(f"Tab does not come to “{name}”")

    def tab_stops(self, key: str = "Tab") -> Iterator[Node]:
        """What Tab comes to, one after another, from what has the keyboard now until it comes where it has been."""
        now = self.wait_for_any_focus()
        seen: set[tuple[str, str]] = set()
        while now.ref not in seen:
            seen.add(now.ref)
            yield now
            self.keys(key)
            now = self.wait_for_any_focus(other_than=now)

    def wait_for_any_focus(self, other_than: Node | None = None) -> Node:
        def there() -> Node | None:
            if other_than is None:  # read twice, since it may be on its way from a page that was left
                before, now = self.focus(), self.focus()
                return now if before is not None and now is not None and before.ref == now.ref else None
            node = self._told_focus()
            return node if node is not None and node.ref != other_than.ref else None

        return until(there, f"the keyboard on anything but {other_than}", 30.0)

    def quit(self) -> None:
        """By its key; waits for the end of the process."""
        self.keys("ctrl+q")
        until(lambda: self.process.poll() is not None, "the end of the window's process")
        self.close()

    def close(self) -> None:
        """Lets the bus go."""
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.close()
        self._reader.wait(10)
        self._reader.stdout.close()

    def title_in_front(self) -> str:
        """The title of the window that has the X desktop's attention."""
        done = self._run(["xdotool", "getactivewindow", "getwindowname"])
        return done.stdout.strip()  # nothing while one gives way to another

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
        assert self._reader.stdout is not None
        print(json.dumps(question), file=self._reader.stdin, flush=True)
        return json.loads(self._reader.stdout.readline())


def off_screen(windows: list[Node]) -> list[str]:
    """The windows that are not whole on the screen, and where they are."""
    found = []
    for window in windows:
        left, top, width, height = window.box
        if left < 0 or top < 0 or left + width > WIDTH or top + height > HEIGHT:
            found.append(f"{window} at {left}, {top}, of {width} x {height}")
    return found
