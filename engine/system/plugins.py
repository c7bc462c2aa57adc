"""Plug-ins, which are extensions of Footplate that installed packages declare as entry points.

Packages are trusted like Footplate itself. A plug-in is imported when an id that is not built in is requested from a
registry, but never by `fingerprint`, which windows and supervisors call.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar, get_args

from engine.system.files import read_file

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["footplate.tasks", "footplate.formats", "footplate.models", "footplate.metrics", "footplate.strategies"]
T = TypeVar("T")


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those of the `packages` that are installed, by name, without importing the packages."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and windows do not need it

    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def install_command(extra: str) -> str:
    """Return the command that installs an extra of Footplate into the environment of the running Python."""
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f'{pip} "footplate[{extra}]"'


def footplate_version() -> str:
    """Return the version of Footplate, or "(not installed)"."""
    return installed_versions(["footplate"]).get("footplate", "(not installed)")


class UnusablePlugin(NamedTuple):
    """Plug-in that can't be used. `name` is its entry point in `package`, and `reason` explains why."""

    group: Group
    package: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"Skipping the plug-in “{self.name}” ({self.group}) of the package {self.package}: {self.reason}."


class UnusablePluginError(Exception):
    """Raised when the object of an entry point is not of the kind that its group requires.

    The message gives the reason.
    """


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Return a hash of the names, versions and entry points of all packages with plug-ins, or "" if there are none.

    This reads a few files and imports nothing.
    """
    found = []
    for folder in dict.fromkeys(sys.path):
        with suppress(OSError):  # the entry is not a folder
            for name in os.listdir(folder or "."):
                if name.endswith((".dist-info", ".egg-info")):
                    found += _read_entry_points(os.path.join(folder, name))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:32] if found else ""


def plugin_packages() -> list[str]:
    """Return the names of the installed packages with plug-ins, without importing them."""
    if not fingerprint():  # none is installed
        return []
    from importlib.metadata import entry_points  # slow to import, and windows do not need it

    return sorted({_get_package_name(point) for group in get_args(Group) for point in entry_points(group=group)})


def _read_entry_points(package: str) -> list[tuple[str, int, bytes]]:
    """Return values that change with the plug-ins that a package declares, or [] if it declares none.

    `package` is the folder with its metadata. The values are the folder's name, which contains the version, and the
    time of the last change and the content of its list of entry points.
    """
    file = os.path.join(package, "entry_points.txt")
    try:
        text = read_file(file)
    except OSError:
        return []
    return [(os.path.basename(package), os.stat(file).st_mtime_ns, text)] if b"[footplate." in text else []


class Registry(Mapping[str, T], Generic[T]):
    """Registry of built-in objects and plug-ins, by id.

    Args:
        group: Group of entry points to which the plug-ins belong.
        built_in: Built-in objects by id.
        accept: Function that receives the id and the loaded object of a plug-in, and returns the object to register or
            raises UnusablePluginError.
        taken: Function that returns ids that plug-ins can't use. Called only if there are plug-ins.

    Attributes:
        built_in: Built-in objects by id.
        left_out: Requested plug-ins that can't be used.
    """

    def __init__(
        self,
        group: Group,
        built_in: Mapping[str, T],
        accept: Callable[[str, object], T],
        taken: Callable[[], Container[str]] = tuple,
    ) -> None:
        self.left_out: list[UnusablePlugin] = []
        self._group = group
        self.built_in = dict(built_in)
        self._loaded = dict(built_in)  # built-in objects, and plug-ins that have been loaded
        self._accept = accept
        self._taken = taken

    def __getitem__(self, name: str) -> T:
        """Return the object with this id, after loading its plug-in. Raises KeyError if it is unknown or unusable."""
        if name not in self._loaded and name in self._unloaded:
            self._load(self._unloaded.pop(name))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """Load all plug-ins, and return an iterator over the ids of those that can be used and of built-in objects."""
        while self._unloaded:
            self._load(self._unloaded.pop(next(iter(self._unloaded))))
        return iter(self._loaded)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def load_plugins(self) -> dict[str, T]:
        """Load all plug-ins, and return their objects by id."""
        return {name: self[name] for name in self if name in self.packages}

    @cached_property
    def packages(self) -> dict[str, str]:
        """Name of each plug-in's package, by the plug-in's id. Plug-ins that can't be used are included."""
        return {name: _get_package_name(point) for name, point in self._entry_points.items()}

    def leave_out(self, name: str, reason: str) -> None:
        """Remove a plug-in from the registry, and record the `reason`."""
        self._loaded.pop(name, None)
        self._leave_out(self._entry_points[name], reason)

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        """Entry points by id, without those whose id is already taken, which are recorded in `left_out`."""
        if not fingerprint():  # no package with plug-ins is installed
            return {}
        from importlib.metadata import entry_points  # slow to import, and windows do not need it

        found: dict[str, EntryPoint] = {}
        taken = self._taken()
        for point in entry_points(group=self._group):
            if point.name in self.built_in or point.name in taken:
                self._leave_out(point, "Footplate already has one of that name")
            elif point.name in found:
                self._leave_out(
                    point, f"the package {_get_package_name(found[point.name])} already has one of that name"
                )
            else:
                found[point.name] = point
        return found

    @cached_property
    def _unloaded(self) -> dict[str, EntryPoint]:
        """Entry points by id that have not been requested."""
        return dict(self._entry_points)

    def _load(self, point: EntryPoint) -> None:
        """Import a plug-in and register its object, or leave it out if that fails."""
        try:
            self._loaded[point.name] = self._accept(point.name, point.load())
        except UnusablePluginError as error:
            self._leave_out(point, str(error))
        except (Exception, SystemExit) as error:  # a plug-in may fail in any way
            text = str(error).strip().partition("\n")[0]
            self._leave_out(point, f"{type(error).__name__}: {text}" if text else type(error).__name__)

    def _leave_out(self, point: EntryPoint, reason: str) -> None:
        """Record and print that a plug-in can't be used."""
        left_out = UnusablePlugin(self._group, _get_package_name(point), point.name, reason)
        self.left_out.append(left_out)
        print(left_out, file=sys.stderr, flush=True)  # stderr is a worker's log


def _get_package_name(point: EntryPoint) -> str:
    """Return the name of the package that declares an entry point, or "?" if it is unknown."""
    return point.dist.name if point.dist is not None else "?"
