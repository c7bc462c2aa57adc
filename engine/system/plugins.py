"""Plug-ins: what installed packages add to Footplate by entry points.

A package is trusted as Footplate itself is. Its code is loaded where a registry is asked for something that is not
Footplate's own, and never by `fingerprint`, which windows and supervisors may ask.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["footplate.tasks", "footplate.formats", "footplate.models", "footplate.metrics", "footplate.strategies"]
T = TypeVar("T")


class LeftOut(NamedTuple):
    """A plug-in that cannot be used: the entry point `name` of a `package`, and the `reason`."""

    group: Group
    package: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"Skipping the plug-in “{self.name}” ({self.group}) of the package {self.package}: {self.reason}."


class Unusable(Exception):  # noqa: N818 - it describes the plug-in
    """What an entry point gives is not what its group is for; the text says why not."""


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """What tells the installed plug-ins from others, by the packages' names, versions and entry points; "" where there
    are none. Reads a few files, and imports nothing.
    """
    found = []
    for folder in dict.fromkeys(sys.path):
        with suppress(OSError):  # no folder, but an archive or nothing
            for name in os.listdir(folder or "."):
                if name.endswith((".dist-info", ".egg-info")):
                    found += _entry_points_of(os.path.join(folder, name))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:32] if found else ""


def _entry_points_of(package: str) -> list[tuple[str, int, bytes]]:
    file = os.path.join(package, "entry_points.txt")
    try:
        with open(file, "rb") as stream:
            text = stream.read()
    except OSError:
        return []
    return [(os.path.basename(package), os.stat(file).st_mtime_ns, text)] if b"[footplate." in text else []


class Registry(Mapping[str, T], Generic[T]):
    """What there is of a kind, by id: `own`, which are Footplate's, and what the entry points of `group` add, whose
    names are the ids. These are loaded one by one when they are first asked for. `accept(name, loaded)` gives what is
    registered; it raises Unusable. Names that Footplate has elsewhere are `taken`, too, which is asked where there
    are plug-ins.

    Attributes: own - Footplate's own; left_out - the plug-ins that cannot be used, of those asked for so far.
    """

    def __init__(
        self,
        group: Group,
        own: Mapping[str, T],
        accept: Callable[[str, object], T],
        taken: Callable[[], Container[str]] = tuple,
    ) -> None:
        self.left_out: list[LeftOut] = []
        self._group = group
        self.own = dict(own)
        self._known = dict(own)
        self._accept = accept
        self._taken = taken

    def __getitem__(self, name: str) -> T:
        if name not in self._known and name in self._waiting:
            self._load(self._waiting.pop(name))
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        while self._waiting:
            self._load(self._waiting.pop(next(iter(self._waiting))))
        return iter(self._known)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def added(self) -> dict[str, T]:
        """What plug-ins add, all of it loaded."""
        return {name: self[name] for name in self if name in self.packages}

    @cached_property
    def packages(self) -> dict[str, str]:
        """The package of each plug-in by its id; of those that cannot be used, too."""
        return {name: _package(point) for name, point in self._points.items()}

    def leave_out(self, name: str, reason: str) -> None:
        """Does without a plug-in from now on."""
        self._known.pop(name, None)
        self._refuse(self._points[name], reason)

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """The entry points whose names are not taken."""
        if not fingerprint():
            return {}
        from importlib.metadata import entry_points  # takes longer to import than all that windows need of this

        found: dict[str, EntryPoint] = {}
        taken = self._taken()
        for point in entry_points(group=self._group):
            if point.name in self.own or point.name in taken:
                self._refuse(point, "Footplate already has one of that name")
            elif point.name in found:
                self._refuse(point, f"the package {_package(found[point.name])} already has one of that name")
            else:
                found[point.name] = point
        return found

    @cached_property
    def _waiting(self) -> dict[str, EntryPoint]:
        """Those that nobody has asked for yet."""
        return dict(self._points)

    def _load(self, point: EntryPoint) -> None:
        try:
            self._known[point.name] = self._accept(point.name, point.load())
        except Unusable as error:
            self._refuse(point, str(error))
        except (Exception, SystemExit) as error:  # what is imported may fail in any way
            said = str(error).strip().partition("\n")[0]
            self._refuse(point, f"{type(error).__name__}: {said}" if said else type(error).__name__)

    def _refuse(self, point: EntryPoint, reason: str) -> None:
        left_out = LeftOut(self._group, _package(point), point.name, reason)
        self.left_out.append(left_out)
        print(left_out, file=sys.stderr, flush=True)  # which is a worker's log


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "?"
