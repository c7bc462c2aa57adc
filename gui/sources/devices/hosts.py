"""Monitored machines: this one and hosts reached over ssh, each with a sampler."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from PySide6.QtCore import QObject, Signal

from engine.contract.device_history import history_file, read_history
from engine.contract.devices import Snapshot, SnapshotRequest
from engine.contract.hosts import Host, hosts, put_host, remove_host
from engine.system.ssh import explain_ssh_exit, host_name_problem, ssh_command
from gui.sources.background import in_background, reraise
from gui.sources.devices.history import DeviceHistory
from gui.sources.devices.sampler import SamplerProcess
from gui.translation import tr

COMMAND = ("gpus", "--json", "--watch")
"""Arguments that make `footplate` on a remote host print one snapshot per line."""

SILENCE_S = 40.0
"""Maximum seconds between snapshots of a host. Connecting, and waking GPUs without persistence mode, take time."""

_THIS_MACHINE = ""


class Hosts(QObject):
    """Samplers of this machine, whose host name is "", and of the hosts that the user has added.

    A broken connection is retried at growing intervals of up to half a minute.

    Attributes:
        history: Readings of all devices. A snapshot is added before the signal `snapshot` is emitted.
        latest: Last snapshot of each host.
        errors: Error messages of hosts that don't send snapshots.
        local: Sampler of this machine.

    Signals:
        snapshot(str, Snapshot): a host has sent a new snapshot.
        error_changed(str, str): the error that prevents snapshots of this host, or "" once it sends them again.
        changed(): `names` has changed.
        removed(str): a host is no longer monitored.
    """

    snapshot = Signal(str, object)
    error_changed = Signal(str, str)
    changed = Signal()
    removed = Signal(str)

    def __init__(self, parent: QObject | None = None, local: SamplerProcess | None = None) -> None:
        """Create the samplers without starting them. `local` replaces the sampler of this machine."""
        super().__init__(parent)
        self._started = False  # True between `start` and `stop`
        self.history = DeviceHistory()
        self._restores_history = False  # True until the earlier readings have been inserted
        self.latest: dict[str, Snapshot] = {}  # by host
        self.errors: dict[str, str] = {}  # by host
        self.local = local or SamplerProcess(self)
        self._samplers: dict[str, SamplerProcess] = {}
        self._add_sampler(_THIS_MACHINE, self.local)
        for host in hosts():
            if host.name:
                self._add_remote_sampler(host)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts that the user has added, in order."""
        return tuple(name for name in self._samplers if name != _THIS_MACHINE)

    @property
    def snapshots(self) -> dict[str, Snapshot]:
        """Last snapshots of all hosts that have sent any, this machine first."""
        return {name: self.latest[name] for name in self._samplers if name in self.latest}

    def problem(self, name: str) -> str:
        """Return the reason why a host can't be added under this name, or "" if it can."""
        if name in self.names:
            return tr("{name} is already being watched.").format(name=name)
        return host_name_problem(name)

    def add(self, name: str) -> None:
        """Monitor another host and add it to the saved list. Raises ValueError if `problem` rejects the name."""
        problem = self.problem(name)
        if problem:
            raise ValueError(problem)
        host = Host(name=name)
        self._add_remote_sampler(host)
        with suppress(OSError):  # the host is then watched only until the window closes
            put_host(host)
        if self._started:
            self._samplers[name].start()
        self.changed.emit()

    def remove(self, name: str) -> None:
        """Stop monitoring a host, and remove it from the saved list. Raises KeyError if it isn't in `names`."""
        if name not in self.names:
            raise KeyError(name)
        sampler = self._samplers.pop(name)
        sampler.stop(wait=False)
        sampler.deleteLater()
        self.history.forget(name)
        self.latest.pop(name, None)
        self.errors.pop(name, None)
        with suppress(OSError):
            remove_host(name)
        self.removed.emit(name)
        self.changed.emit()

    def set_request(self, request: SnapshotRequest) -> None:
        """Restrict this machine's sampler to the requested readings. Remote hosts always send all readings."""
        self.local.set_request(request)

    def set_history(self, is_enabled: bool) -> None:
        """Save this machine's readings and restore those of earlier sessions, or disable both."""
        self._restores_history = is_enabled
        self.local.set_history(is_enabled)

    def start(self) -> None:
        """Start all samplers, and from now on those of added hosts."""
        self._started = True
        for sampler in self._samplers.values():
            sampler.start()

    def stop(self) -> None:
        """Stop all samplers and wait until they have exited."""
        self._started = False
        for sampler in self._samplers.values():
            sampler.stop()

    def _add_remote_sampler(self, host: Host) -> None:
        """Create a sampler that runs on another machine over ssh, without starting it."""
        name = host.name
        program, *arguments = ssh_command(host.ssh_destination, host.command(*COMMAND))
        sampler = SamplerProcess(
            self,
            program=program,
            arguments=arguments,
            who=tr("The sampler on {name}").format(name=name),
            silence_s=SILENCE_S,
            explain=partial(explain_ssh_exit, name),
        )
        self._add_sampler(name, sampler)

    def _add_sampler(self, name: str, sampler: SamplerProcess) -> None:
        """Register the sampler of a host, and receive its snapshots and errors."""
        self._samplers[name] = sampler
        sampler.snapshot.connect(partial(self.add_snapshot, name))
        sampler.error_changed.connect(partial(self._on_error_changed, name))

    def add_snapshot(self, name: str, snapshot: Snapshot) -> None:
        """Add a host's snapshot to the history and emit `snapshot`.

        The first snapshot of this machine also restores the readings of earlier sessions, if they are saved.
        """
        self.latest[name] = snapshot
        self.history.add(snapshot, name)
        # Only readings of known devices are restored, and GPUs are unknown until NVML has answered.
        if name == _THIS_MACHINE and self._restores_history and snapshot.nvml.status != "not_answering":
            self._restores_history = False
            in_background(lambda: list(read_history(history_file())), self, self.history.restore, reraise)
        self.snapshot.emit(name, snapshot)

    def _on_error_changed(self, name: str, message: str) -> None:
        """Store the error of a host, or remove it if `message` is "", and emit `error_changed`."""
        if message:
            self.errors[name] = message
        else:
            self.errors.pop(name, None)
        self.error_changed.emit(name, message)
