"""Rows for a table or tree of all GPU processes, with usage and ancestry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.contract.devices import Gpu, GpuProcess, ProcessKind, Snapshot, device_key, gpu_title
from engine.system.format import listed
from gui.sources.devices import device_format
from gui.sources.run_intervals import RunInterval
from gui.titles import format_gpu_names
from gui.translation import tr

Number = TypeVar("Number", int, float)
Key = tuple[str | int, ...]
"""Identity of a row in all snapshots."""
NameOf = Callable[[int], str | None]
"""Function that returns the name of a local process by its pid, or None if it has ended or can't be seen."""
FIRST_PROCESS = 1
"""Pid of the ancestor of all processes. Processes with this parent aren't related."""


@dataclass(frozen=True, kw_only=True)
class ProcessRow:
    """Row of the table: a process, or a group of processes with the same run or parent.

    Attributes:
        host: Host, or "" for this machine.
        parent: Key of the parent row, or None at the top level.
        gpus: Titles of the GPUs that it uses.
        devices: Keys of these GPUs, made by `device_key`.
        sm_percent: Mean activity of the multiprocessors over these GPUs. The memory and the CPU load of a group are
            sums.
        run: Run of the process or group.
        note: Reason for a warning.
    """

    key: Key
    host: str
    host_title: str
    title: str
    parent: Key | None = None
    group: bool = False
    pid: int | None = None
    user: str | None = None
    mine: bool = False
    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    kind: ProcessKind = "compute"
    memory_used_bytes: int | None = None
    sm_percent: float | None = None
    cpu_percent: float | None = None
    host_memory_bytes: int | None = None
    started: float | None = None
    running_s: int | None = None
    command: str = ""
    run: RunInterval | None = None
    note: str = ""


def process_rows(
    host: str, snapshot: Snapshot, runs: Iterable[RunInterval], name_of: NameOf, *, tree: bool = True
) -> list[ProcessRow]:
    """Return a row for each GPU process on a host. In a `tree`, a row for each group precedes its members.

    A group consists of the processes of a run, or of processes that the same process has started. Processes on lost
    GPUs are left out. Only local processes can belong to `runs`. In a container where NVML reports the host's pids, no
    process can be assigned to a run. `name_of` returns the name of a local process by its pid, or None.
    """
    active = [] if host or snapshot.foreign_pids else [run for run in runs if run.is_active]
    family = _Family(host, snapshot.gpus, active)
    lines = [_merge_uses(host, snapshot, uses, family) for uses in family.uses.values()]
    if tree:
        lines = _create_group_rows(lines, active, name_of) + lines
    else:
        lines = [replace(line, title=_flat_title(line), parent=None) for line in lines]
    return _add_notes(lines, active)


def describe_sharing(lines: Sequence[ProcessRow], runs: Iterable[RunInterval]) -> str:
    """Return a sentence for each run whose GPUs other users also use, or "" if there is none."""
    users_by_device = _list_other_users(lines)
    titles = {device: title for line in lines for device, title in zip(line.devices, line.gpus, strict=True)}
    sentences = []
    for run in runs:
        shared = [device for device in run.devices if device in users_by_device]
        if not run.is_active or not shared:
            continue
        users = dict.fromkeys(user for device in shared for user in users_by_device[device])
        text = (
            tr("{gpus}, held by run {run}, is also used by {users}.")
            if len(shared) == 1
            else tr("{gpus}, held by run {run}, are also used by {users}.")
        )
        gpus = format_gpu_names([titles[device] for device in shared])
        sentences.append(text.format(gpus=gpus, run=run.name, users=listed(users)))
    return " ".join(sentences)


@dataclass(frozen=True)
class _Use:
    """Use of a GPU by a process."""

    gpu: Gpu
    process: GpuProcess


class _Family:
    """Ancestry of the processes on a host.

    `uses` contains the GPUs that each process uses, by pid.
    """

    def __init__(self, host: str, gpus: Iterable[Gpu], runs: Iterable[RunInterval]) -> None:
        self._host = host
        self._supervisors = {run.supervisor: run for run in runs if run.supervisor is not None}
        self.uses: dict[int, list[_Use]] = {}
        for gpu in sorted(gpus, key=device_format.gpu_sort_key):
            if gpu.lost:
                continue
            for process in gpu.processes or ():
                self.uses.setdefault(process.pid, []).append(_Use(gpu, process))
        processes = (uses[0].process for uses in self.uses.values())
        self._siblings = Counter(process.ancestors[0] for process in processes if process.ancestors)

    def run(self, process: GpuProcess) -> RunInterval | None:
        """Return the run that contains the process or one of its ancestors, or None."""
        return next(
            (self._supervisors[pid] for pid in (process.pid, *process.ancestors) if pid in self._supervisors), None
        )

    def parent(self, process: GpuProcess) -> Key | None:
        """Return the key of the row above a process in the tree, or None at the top level.

        The row is the nearest ancestor that uses a GPU, or else the group of the run, or else the group of a process
        that has started several GPU processes.
        """
        parent, run = self._find_parent_process(process), self.run(process)
        if parent is not None:
            return process_key(self._host, parent)
        if run is not None:
            return "run", run.run_id
        starter = process.ancestors[0] if process.ancestors else FIRST_PROCESS
        has_started_several = starter > FIRST_PROCESS and self._siblings[starter] > 1
        return ("family", self._host, starter) if has_started_several else None

    def _find_parent_process(self, process: GpuProcess) -> GpuProcess | None:
        """Return the nearest ancestor of `process` that uses a GPU, or None if there is none.

        Ancestors with at least as many ancestors as `process` are ignored, because reused pids could otherwise form a
        cycle.
        """
        gpu_ancestors = (self.uses[pid][0].process for pid in process.ancestors if pid in self.uses)
        return next((each for each in gpu_ancestors if len(each.ancestors) < len(process.ancestors)), None)


def process_key(host: str, process: GpuProcess) -> Key:
    """Return the key of a process on `host`. The key contains the start time, since pids are reused."""
    return "process", host, process.pid, str(process.started)


def _merge_uses(host: str, snapshot: Snapshot, uses: Sequence[_Use], family: _Family) -> ProcessRow:
    """Merge the uses of GPUs by one process on `host` into a row.

    The activity of the multiprocessors is averaged over these GPUs. An unknown activity counts as 0%, unless it is
    unknown on all of them.
    """
    process = uses[0].process
    known_loads = [use.process.sm_percent for use in uses if use.process.sm_percent is not None]
    return ProcessRow(
        key=process_key(host, process),
        host=host,
        host_title=snapshot.host,
        title=process.name or tr("process"),
        parent=family.parent(process),
        pid=process.pid,
        user=process.user,
        mine=process.user is not None and process.user == device_format.current_user(),
        gpus=tuple(gpu_title(use.gpu) for use in uses),
        devices=tuple(device_key(host, use.gpu.uuid) for use in uses),
        kind=_merge_kinds(use.process.kind for use in uses),
        memory_used_bytes=_sum(use.process.memory_used_bytes for use in uses),
        sm_percent=sum(known_loads) / len(uses) if known_loads else None,
        cpu_percent=process.cpu_percent,
        host_memory_bytes=process.host_memory_bytes,
        started=process.started,
        running_s=None if process.started is None else max(0, int(snapshot.time - process.started)),
        command=process.command,
        run=family.run(process),
    )


def _flat_title(line: ProcessRow) -> str:
    return line.title if line.run is None else tr("{title} · run {run}").format(title=line.title, run=line.run.name)


def _create_group_rows(lines: Sequence[ProcessRow], runs: Iterable[RunInterval], name_of: NameOf) -> list[ProcessRow]:
    """Return a group row for each run, and for each process that uses no GPU but has started several that do.

    `name_of` returns the name of a process by its pid, or None.
    """
    by_key = {line.key: line for line in lines}
    by_id = {run.run_id: run for run in runs}
    groups: dict[Key, list[ProcessRow]] = {}
    for line in lines:
        top = line
        while top.parent in by_key:
            top = by_key[top.parent]
        if top.parent is not None:  # the key of a run, or of a process that uses no GPU
            groups.setdefault(top.parent, []).append(line)
    return [
        # The key of a run is ("run", id).
        _merge_rows(key, members, by_id[str(key[1])] if key[0] == "run" else None, name_of)
        for key, members in groups.items()
    ]


def _merge_rows(key: Key, members: Sequence[ProcessRow], run: RunInterval | None, name_of: NameOf) -> ProcessRow:
    """Merge the rows of a group (the processes of a run, or those that the same process has started) into a row.

    Memory and CPU load are added, and the activity of the multiprocessors is averaged over the GPUs. Values that are
    unknown for all members are None, and so is the user if the members have several.
    """
    first = members[0]
    users = {member.user for member in members}
    gpu_titles = {
        device: title for member in members for device, title in zip(member.devices, member.gpus, strict=True)
    }
    known_loads = [member.sm_percent * len(member.devices) for member in members if member.sm_percent is not None]
    pid = run.supervisor if run is not None else int(key[2])  # see `_Family.parent`
    return ProcessRow(
        key=key,
        host=first.host,
        host_title=first.host_title,
        title=_group_title(first.host, pid, len(members), run, name_of),
        group=True,
        pid=pid,
        user=first.user if len(users) == 1 else None,
        mine=all(member.mine for member in members),
        gpus=tuple(gpu_titles.values()),
        devices=tuple(gpu_titles),
        kind=_merge_kinds(member.kind for member in members),
        memory_used_bytes=_sum(member.memory_used_bytes for member in members),
        sm_percent=sum(known_loads) / len(gpu_titles) if known_loads else None,
        cpu_percent=_sum(member.cpu_percent for member in members),
        host_memory_bytes=_sum(member.host_memory_bytes for member in members),
        running_s=max((member.running_s for member in members if member.running_s is not None), default=None),
        run=run,
    )


def _group_title(host: str, pid: int | None, count: int, run: RunInterval | None, name_of: NameOf) -> str:
    """Return the title of a group with its number of processes, as in "Run flowers (2)" or "torchrun (4)".

    `run` is the run that the group consists of, or None for the processes that the process `pid` on `host` has started.
    `name_of` returns the name of a local process by its pid, or None.
    """
    if run is not None:
        return tr("Run {name} ({count})").format(name=run.name, count=count)
    name = (name_of(pid) if pid is not None and not host else None) or tr("Same parent")
    return f"{name} ({count})"


def _add_notes(lines: Sequence[ProcessRow], runs: Iterable[RunInterval]) -> list[ProcessRow]:
    """Return the rows with notes on GPUs that a run shares with other users, in the rows of both."""
    users_by_device = _list_other_users(lines)
    runs_by_device = {device: run for run in runs for device in run.devices}
    noted = []
    for line in lines:
        note = ""
        if line.run is not None:
            users = dict.fromkeys(user for device in line.devices for user in users_by_device.get(device, ()))
            note = tr("also used by {users}").format(users=listed(users)) if users else ""
        elif _is_other_user(line):
            shared = [title for device, title in zip(line.devices, line.gpus, strict=True) if device in runs_by_device]
            names = dict.fromkeys(runs_by_device[device].name for device in line.devices if device in runs_by_device)
            note = (
                tr("on {gpus}, held by run {runs}").format(gpus=format_gpu_names(shared), runs=listed(names))
                if shared
                else ""
            )
        noted.append(replace(line, note=note) if note else line)
    return noted


def _list_other_users(lines: Iterable[ProcessRow]) -> dict[str, tuple[str, ...]]:
    """Return the names of the other users whose processes compute on a GPU, by device key."""
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        if line.user is not None and _is_other_user(line):
            for device in line.devices:
                found.setdefault(device, {})[line.user] = None
    return {device: tuple(users) for device, users in found.items()}


def _is_other_user(line: ProcessRow) -> bool:
    """Return True if the process belongs to another user and computes.

    Processes that only draw a desktop don't count.
    """
    is_of_other_user = line.user is not None and not line.mine
    return is_of_other_user and line.run is None and not line.group and line.kind != "graphics"


def _merge_kinds(kinds: Iterable[ProcessKind]) -> ProcessKind:
    """Return the kind of GPU use that all processes share, or "both" if they differ."""
    first, *others = set(kinds)
    return "both" if others else first


def _sum(values: Iterable[Number | None]) -> Number | None:
    """Return the sum of the known values, or None if all are unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
