"""Reader of the accessibility bus. The system's Python runs it, because it has GLib's bindings.

    /usr/bin/python3 tests/desktop/bus_reader.py PID < questions > answers

It answers each line of standard input, a JSON list, with a line of JSON:

    ["windows"]     the windows of process PID with their contents, and any other object with the keyboard focus
    ["focus"]       the focused object without its contents, or null
    ["announced"]   all announcements, in order
    ["call", REF, INTERFACE, METHOD, SIGNATURE, [ARGUMENT …]]    the result of calling an object's method
"""

from __future__ import annotations

import json
import sys
from typing import Any

from gi.repository import Gio, GLib

PATIENCE_MS = 20_000
REGISTRY = "org.a11y.atspi.Registry"
ACCESSIBLE = "org.a11y.atspi.Accessible"
COMPONENT = "org.a11y.atspi.Component"
PROPERTIES = "org.freedesktop.DBus.Properties"
ROOT = "/org/a11y/atspi/accessible/root"
NULL = "/org/a11y/atspi/null"
STATES = {
    1: "active", 4: "checked", 7: "editable", 8: "enabled", 11: "focusable", 12: "focused", 16: "modal", 23: "selected",
    24: "sensitive", 25: "showing",
}  # fmt: skip
"""States that tests use, by their bit number in AT-SPI."""
LABELED_BY = 2
"""Number of the relation "labeled by" in AT-SPI."""
MAX_CHILDREN = 150
"""Maximum number of an object's children (such as cells) that are read."""

Ref = tuple[str, str]
Call = tuple[Ref, str, str, str, tuple[Any, ...]]


class Reader:
    """Reader of the accessible objects of the process `pid`, which also keeps track of the focused object."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        session = Gio.bus_get_sync(Gio.BusType.SESSION)
        bus = ("org.a11y.Bus", "/org/a11y/bus")
        (address,) = session.call_sync(*bus, "org.a11y.Bus", "GetAddress", None, None, 0, PATIENCE_MS, None).unpack()
        flags = Gio.DBusConnectionFlags
        self._bus = Gio.DBusConnection.new_for_address_sync(
            address, flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION, None, None
        )
        self._focus: Ref | None = None
        self._announced: list[str] = []
        self._bus.signal_subscribe(
            None, "org.a11y.atspi.Event.Object", "StateChanged", None, "focused", 0, self._state_changed
        )
        self._bus.signal_subscribe(
            None, "org.a11y.atspi.Event.Object", "Announcement", None, None, 0, self._on_announcement
        )
        for event in ("object:state-changed:focused", "focus:", "object:announcement"):
            registry = (REGISTRY, "/org/a11y/atspi/registry")
            self.call_all([(registry, REGISTRY, "RegisterEvent", "(sass)", (event, [], ""))])

    def call_all(self, calls: list[Call]) -> list[Any]:
        """Send several D-Bus calls at once and return their answers. The answer to a failed call is None.

        A call fails, for example, if its object has been removed.
        """
        answers: list[Any] = [None] * len(calls)
        left = [len(calls)]

        def done(bus: Any, result: Any, number: int) -> None:
            left[0] -= 1
            try:
                answers[number] = bus.call_finish(result).unpack()
            except GLib.Error:
                return

        for number, ((name, path), interface, method, signature, arguments) in enumerate(calls):
            packed = GLib.Variant(signature, arguments) if signature else None
            self._bus.call(name, path, interface, method, packed, None, 0, PATIENCE_MS, None, done, number)
        while left[0]:
            GLib.MainContext.default().iteration(True)
        return answers

    def windows(self) -> list[Any]:
        app = self._find_app()
        if app is None:
            return []
        roots = [tuple(ref) for ref in (self._of(app, "GetChildren") or [])]
        if self._focus is not None:
            top = self._find_top_level(self._focus, app)
            if top is not None and top not in roots:
                roots.append(top)
        return self._read_visible(roots)

    def focus(self) -> Any:
        self._take_events()
        if self._focus is None:
            return None
        found = self._read_visible([self._focus], deep=False)
        return found[0] if found and "focused" in found[0]["states"] else None

    def announced(self) -> list[str]:
        self._take_events()
        return self._announced

    def call(self, ref: list[str], interface: str, method: str, signature: str, arguments: list[Any]) -> Any:
        return self.call_all([((ref[0], ref[1]), interface, method, signature, tuple(arguments))])[0]

    def _state_changed(
        self, _bus: Any, sender: str, path: str, _interface: str, _signal: str, announcement: Any
    ) -> None:
        _state, on, *_rest = announcement.unpack()
        if on:
            self._focus = (sender, path)
        elif self._focus == (sender, path):
            self._focus = None

    def _on_announcement(
        self, _bus: Any, _sender: str, _path: str, _interface: str, _signal: str, announcement: Any
    ) -> None:
        self._announced.append(announcement.unpack()[3])

    def _take_events(self) -> None:
        while GLib.MainContext.default().iteration(False):
            pass

    def _find_app(self) -> Ref | None:
        """Find the root object of the observed process. Return None if the process isn't on the bus."""
        (answer,) = self.call_all([((REGISTRY, ROOT), ACCESSIBLE, "GetChildren", "", ())])
        apps = [tuple(ref) for ref in (answer[0] if answer else ())]
        daemon = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
        pids = self.call_all(
            [(daemon, daemon[0], "GetConnectionUnixProcessID", "(s)", (name,)) for name, _path in apps]
        )
        return next((app for app, pid in zip(apps, pids, strict=True) if pid == (self._pid,)), None)

    def _of(self, ref: Ref, method: str) -> Any:
        (answer,) = self.call_all([(ref, ACCESSIBLE, method, "", ())])
        return answer[0] if answer else None

    def _find_top_level(self, ref: Ref, app: Ref) -> Ref | None:
        """Find the top-level object of application `app` that contains `ref`. Return None if `ref` has been removed."""
        for _ in range(60):
            (answer,) = self.call_all([(ref, PROPERTIES, "Get", "(ss)", (ACCESSIBLE, "Parent"))])
            if answer is None:
                return None
            above = tuple(answer[0])
            if above == app or above[1] in (NULL, ROOT):
                return ref
            ref = above
        return None

    def _read_visible(self, refs: list[Ref], *, deep: bool = True) -> list[Any]:
        """Read the visible objects among `refs` and, if `deep`, their visible contents.

        All objects at the same depth are read at once, because each round trip involves several processes.
        """
        found = level = self._read_level(refs)
        while deep and level:
            pairs = [(node, ref) for node in level for ref in node.pop("below")[:MAX_CHILDREN]]
            below = self._read_level([ref for _node, ref in pairs], [node for node, _ref in pairs])
            level = below
        return found

    def _read_level(self, refs: list[Ref], above: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """Read the visible objects among `refs`, and add each object to the "children" of its parent.

        `above` lists the parent of each object in `refs`, or is None if they have no parents.
        """
        questions: tuple[tuple[str, str, str, tuple[Any, ...]], ...] = (
            (ACCESSIBLE, "GetState", "", ()),
            (ACCESSIBLE, "GetChildren", "", ()),
            (ACCESSIBLE, "GetRoleName", "", ()),
            (PROPERTIES, "Get", "(ss)", (ACCESSIBLE, "Name")),
            (PROPERTIES, "Get", "(ss)", (ACCESSIBLE, "Description")),
            (ACCESSIBLE, "GetRelationSet", "", ()),
            (COMPONENT, "GetExtents", "(u)", (0,)),
        )
        answers = iter(self.call_all([(ref, *question) for ref in refs for question in questions]))
        visible = []
        for number, ref in enumerate(refs):
            state, children, role, name, description, relations, box = (next(answers) for _ in questions)
            bits = state[0][0] | state[0][1] << 32 if state and len(state[0]) == 2 else 0
            node = {
                "ref": ref,
                "states": [name for bit, name in STATES.items() if bits >> bit & 1],
                "role": role[0] if role else "",
                "name": name[0] if name else "",
                "description": description[0] if description else "",
                "labeled": any(kind == LABELED_BY for kind, _labels in (relations[0] if relations else ())),
                "box": box[0] if box else (0, 0, 0, 0),
                "below": [tuple(child) for child in (children[0] if children else ())],
                "children": [],
            }
            if "showing" in node["states"]:
                visible.append(node)
                if above is not None:
                    above[number]["children"].append(node)
        return visible


def main() -> None:
    reader = Reader(int(sys.argv[1]))
    for line in sys.stdin:
        question, *rest = json.loads(line)
        print(json.dumps(getattr(reader, question)(*rest)), flush=True)


if __name__ == "__main__":
    main()
