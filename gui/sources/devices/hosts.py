"""This machine and those watched over ssh, each with a sampler of its own."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from PySide6.QtCore import QObject, Signal

from engine.contract.devices import Snapshot, SnapshotRequest
from engine.contract.hosts import Host, hosts, put_host, remove_host
from engine.system.ssh import host_name_problem, ssh_command, ssh_exit_reason
from gui.sources.devices.sampler import SamplerProcess
from gui.sources.settings import Settings

COMMAND = ("gpus", "--json", "--watch")
"""What `footplate` does on another host: the one format for devices, a snapshot a line."""

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
        """`settings` may remember names of hosts from before there was a list. `local` watches this machine; None for
        the usual one.
        """
        super().__init__(parent)
        self._started = False
        self.latest: dict[str, Snapshot] = {}
        self.troubles: dict[str, str] = {}
        self.local = local or SamplerProcess(self)
        self._samplers: dict[str, SamplerProcess] = {}
        self._take_in(_THIS_MACHINE, self.local)
        _take_over(settings)
        for host in hosts():
            if host.name:
                self._watch(host)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts added by the user, in that order."""
        return tuple(name for name in self._samplers if name != _THIS_MACHINE)

    def problem(self, name: str) -> str:
        """Why a host cannot be added by this name, in plain words; "" where it can."""
        return f"{name} is already being watched." if name in self.names else host_name_problem(name)

    def add(self, name: str) -> None:
        """Watches another host from now on, and remembers it, where the home can be written. Raises ValueError where
        `problem` says why not.
        """
        problem = self.problem(name)
        if problem:
            raise ValueError(problem)
        host = Host(name=name)
        self._watch(host)
        with suppress(OSError):
            put_host(host)
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
        with suppress(OSError):
            remove_host(name)
        self.removed.emit(name)
        self.changed.emit()

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

    def _watch(self, host: Host) -> None:
        name = host.name
        program, *arguments = ssh_command(host.reached_by, host.command(*COMMAND))
        sampler = SamplerProcess(
            self,
            program=program,
            arguments=arguments,
            who=f"The sampler on {name}",
            silence_s=SILENCE_S,
            explain=partial(ssh_exit_reason, name),
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


def _take_over(settings: Settings) -> None:
    """Moves the names that earlier versions kept among the window's settings to the list."""
    names = [name for name in settings.text(_KEPT_UNDER).split() if not host_name_problem(name)]
    if names:
        known = {host.name for host in hosts()}
        with suppress(OSError):
            for name in names:
                if name not in known:
                    put_host(Host(name=name))
            settings.set(_KEPT_UNDER, "")
