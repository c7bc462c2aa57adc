"""This machine and those watched over ssh, each with a sampler of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject, Signal

from engine.contract.devices import Snapshot, SnapshotRequest
from gui.sources.devices.sampler import SamplerProcess
from gui.sources.devices.ssh_errors import problem_with, why_it_ended
from gui.sources.settings import Settings

SSH = (
    "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=2",
)  # fmt: skip
"""Never asks for a password; gives up on a host that does not answer, or no longer, after ten seconds."""

COMMAND = ("footplate", "gpus", "--json", "--watch")
"""What is run on another host: the one format for devices, a snapshot a line."""

SILENCE_S = 40.0
"""A host may take so long until its first snapshot: to connect, and to wake its GPUs without persistence mode."""

_KEPT_UNDER = "hosts"
_THIS_MACHINE = ""


class Hosts(QObject):
    """Watches this machine, whose name here is "", and the hosts that the user has added.

    `names` are the added ones, in order; `latest` is each host's last snapshot; `troubles` says why none comes from a
    host. A broken connection is tried again ever more slowly, up to every half minute.

    Signals:
        snapshot(str, Snapshot): a host, and what was seen there.
        trouble(str, str): a host, and why no snapshots come from it, in plain words; "" once they come again.
        changed(): `names` is another.
        removed(str): a host that is not watched any more.
    """

    snapshot = Signal(str, object)
    trouble = Signal(str, str)
    changed = Signal()
    removed = Signal(str)

    def __init__(self, settings: Settings, parent: QObject | None = None, local: SamplerProcess | None = None) -> None:
        """`settings` remember the names. `local` watches this machine; None for the usual one."""
        super().__init__(parent)
        self._settings = settings
        self._started = False
        self.latest: dict[str, Snapshot] = {}
        self.troubles: dict[str, str] = {}
        self.local = local or SamplerProcess(self)
        self._samplers: dict[str, SamplerProcess] = {}
        self._take_in(_THIS_MACHINE, self.local)
        for name in settings.text(_KEPT_UNDER).split():
            if not problem_with(name):
                self._watch(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts added by the user, in that order."""
        return tuple(name for name in self._samplers if name != _THIS_MACHINE)

    def problem(self, name: str) -> str:
        """Why a host cannot be added by this name, in plain words; "" where it can."""
        return f"{name} is already being watched." if name in self.names else problem_with(name)

    def add(self, name: str) -> None:
        """Watches another host from now on, and remembers it. Raises ValueError where `problem` says why not."""
        problem = self.problem(name)
        if problem:
            raise ValueError(problem)
        self._watch(name)
        self._remember()
        if self._started:
            self._samplers[name].start()
        self.changed.emit()

    def remove(self, name: str) -> None:
        """Watches a host no longer, and forgets it. Raises KeyError for one that is not in `names`."""
        if name not in self.names:
            raise KeyError(name)
        sampler = self._samplers.pop(name)
        sampler.stop()
        sampler.deleteLater()
        self.latest.pop(name, None)
        self.troubles.pop(name, None)
        self._remember()
        self.removed.emit(name)
        self.changed.emit()

    def set_names(self, names: Sequence[str]) -> None:
        """Watches these hosts and no others. Raises ValueError where `problem` says of one why not."""
        for name in self.names:
            if name not in names:
                self.remove(name)
        for name in names:
            if name not in self.names:
                self.add(name)

    def show(self, shown: SnapshotRequest) -> None:
        """Tells this machine's sampler what is on screen; another host's tells all there is in any case."""
        self.local.show(shown)

    def start(self) -> None:
        self._started = True
        for sampler in self._samplers.values():
            sampler.start()

    def stop(self) -> None:
        """Ends all samplers; returns once they are gone."""
        self._started = False
        for sampler in self._samplers.values():
            sampler.stop()

    def _watch(self, name: str) -> None:
        sampler = SamplerProcess(
            self,
            program="ssh",
            arguments=[*SSH, name, *COMMAND],
            who=f"The sampler on {name}",
            silence_s=SILENCE_S,
            explain=partial(why_it_ended, name),
        )
        self._take_in(name, sampler)

    def _take_in(self, name: str, sampler: SamplerProcess) -> None:
        self._samplers[name] = sampler
        sampler.snapshot.connect(partial(self._seen, name))
        sampler.trouble.connect(partial(self._troubled, name))

    def _seen(self, name: str, snapshot: Snapshot) -> None:
        self.latest[name] = snapshot
        self.snapshot.emit(name, snapshot)

    def _troubled(self, name: str, words: str) -> None:
        if words:
            self.troubles[name] = words
        else:
            self.troubles.pop(name, None)
        self.trouble.emit(name, words)

    def _remember(self) -> None:
        self._settings.set(_KEPT_UNDER, " ".join(self.names))
