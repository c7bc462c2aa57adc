"""One attempt of a run on several machines: they are reached, looked at, brought together, and heard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from selectors import BaseSelector

import msgspec

from engine.checks.node_checks import differences, inputs_of, versions
from engine.contract.devices import DeviceSample, host_of
from engine.contract.events import AnyEvent, CheckpointSaved, Failed, LogLine, Predicted, Warned
from engine.contract.hosts import SLURM, Host, host
from engine.contract.job import Job
from engine.contract.nodes import (
    LOST_S,
    DatasetDigest,
    FilePart,
    FromNode,
    FromWorker,
    Listening,
    Meet,
    NodeFacts,
    NodeFailed,
    NodeOrder,
    Sampled,
    ToNode,
    WorkerEnded,
)
from engine.contract.problems import Problem
from engine.contract.worker import FROM_WORKER, WorkerSpec
from engine.machines.files import RESUME, Fetched, files_for, parts_of
from engine.machines.link import GOODBYE_S, NodeLink
from engine.machines.remote_worker import RemoteWorker
from engine.processes import failures
from engine.processes.group import Group
from engine.runs.folder import RunFolder
from engine.system.format import counted
from engine.system.slurm import on_node
from engine.system.ssh import ssh_command, why_it_ended

BEGIN_S = 40.0
"""How long a machine may take until its first word: to be reached, and to start Python."""
QUIET_S = 2.5
"""A machine that has said nothing for so long may be the cause of what other machines report."""
BACK_S = 600.0
"""How long a run that has lost a machine waits for it."""
_AGAIN_S = 3.0


class Node:
    """One machine of a run: its `host`, the orders of its workers, and what is known of it."""

    def __init__(self, where: Host, specs: list[WorkerSpec]) -> None:
        self.host = where
        self.specs = specs
        self.link: NodeLink | None = None
        self.fetched: Fetched | None = None
        self.facts: NodeFacts | None = None
        self.workers: list[RemoteWorker] = []
        self.ended: dict[int, int | None] = {}
        self.again_at = 0.0
        self.bringing = 0
        """How many events of its workers wait for files."""

    @property
    def ranks(self) -> list[int]:
        return [spec.rank for spec in self.specs]

    @property
    def is_here(self) -> bool:
        return not self.host.name

    @property
    def in_slurm(self) -> bool:
        return self.host.name.startswith(SLURM)

    @property
    def has_folder(self) -> bool:
        """Whether it sees the run's own folder, which is on a file system that SLURM's nodes share."""
        return self.is_here or self.in_slurm

    @property
    def is_quiet(self) -> bool:
        return self.link is not None and not self.link.ended and self.link.silent_s > QUIET_S


class Nodes:
    """The machines of one attempt, by their order in the job. `step` is called often; the workers come to `group`
    once all machines have met. `attempt` counts from 0; after the first, a machine that can't be reached is waited
    for, or done without: `without` gives the job that does so, or why there is none.
    """

    def __init__(
        self,
        run: RunFolder,
        specs: Sequence[WorkerSpec],
        selector: BaseSelector,
        *,
        tell: Callable[[AnyEvent], object],
        sampled: Callable[[tuple[DeviceSample, ...]], None],
        attempt: int,
        without: Callable[[str], Job | str],
    ) -> None:
        self._run = run
        self._job = specs[0].job
        self._selector = selector
        self._tell, self._sampled = tell, sampled
        self._attempt = attempt
        self._without = without
        self._group: Group | None = None
        self._ours: dict[str, DatasetDigest] = {}
        self._met = False
        self._give_up_at = time.monotonic() + BACK_S
        self._told_away: set[str] = set()
        self.nodes = [
            Node(host(name) or Host(name=name), list(each)) for name, each in groupby(specs, partial(_host_of, specs))
        ]

    def launch(self, group: Group) -> None:
        """Reaches out for the machines."""
        self._group = group
        for node in self.nodes:
            self._reach(node)
        self._ours = inputs_of(self._job)

    @property
    def in_doubt(self) -> bool:
        """Whether a machine has said nothing for a while."""
        return any(node.is_quiet for node in self.nodes)

    def step(self) -> None:
        """Shows the machines that the run goes on, and sees which have fallen silent."""
        for node in self.nodes:
            if node.link is None:
                if time.monotonic() > node.again_at and self._group is not None and self._group.failure is None:
                    self._reach(node)
                continue
            if node.link.ended:
                continue
            node.link.tick()
            limit = LOST_S if node.link.begun else BEGIN_S
            if node.link.silent_s > limit:
                node.link.kill()
                self._lost(
                    node, f"{node.host.title} has not responded for {limit:.0f} s: it, or its network, may be down."
                )

    def close(self) -> None:
        """Has everything ended on all machines that still answer when this returns."""
        for node in self.nodes:
            if node.link is not None and not node.link.ended:
                node.link.close()
        deadline = time.monotonic() + GOODBYE_S
        for node in self.nodes:
            if node.link is not None:
                node.link.finish(max(0.0, deadline - time.monotonic()))

    # From here to training

    def _reach(self, node: Node) -> None:
        number = self.nodes.index(node)
        command = [sys.executable, "-m", "engine.machines.node"]
        if node.in_slurm:
            command = on_node(node.host.name.removeprefix(SLURM), ["node"])
        elif not node.is_here:
            command = ssh_command(node.host.reached_by, node.host.command("node"))
        log = self._run.path / f"node-{number}.log"
        try:
            node.link = NodeLink(
                command, log, self._selector, partial(self._take, node), lambda why: self._ended(node, why)
            )
        except OSError as error:
            self._fail(Failed(cause=f"{command[0]} can't be started: {error}"))
            return
        node.fetched = Fetched(self._run, node.link, self._job.keep_checkpoints)
        node.link.send(
            NodeOrder(
                run_id=self._run.run_id,
                attempt=self._attempt,
                title=node.host.title,
                node=number,
                nodes=len(self.nodes),
                specs=tuple(node.specs),
                run_folder=str(self._run.path) if node.has_folder else "",
                files=() if node.has_folder else files_for(self._run, self._job, leads=number == 0),
                address=node.host.address,
                port=node.host.port,
            )
        )

    def _looked_at(self) -> None:
        """Brings the machines together once all have told what they are, unless they can't train together."""
        facts = [node.facts for node in self.nodes if node.facts is not None]
        if len(facts) < len(self.nodes):
            return
        found: list[Problem] = []
        first = self.nodes[0]
        footplate = msgspec.structs.replace(facts[0], versions={"footplate": versions()["footplate"]})
        for node, each in zip(self.nodes, facts, strict=True):
            found += differences(each, node.host.title, self._ours, footplate, "this machine")
            alike = msgspec.structs.replace(facts[0], versions=_without_footplate(facts[0]))
            found += differences(
                msgspec.structs.replace(each, problem=""), node.host.title, {}, alike, first.host.title
            )
        if found:
            self._fail(Failed(cause=" ".join(map(str, found))))
            return
        self._meet(first, "", 0)

    def _meet(self, node: Node, address: str, port: int) -> None:
        """Gives a machine what it lacks, and tells it where the others are."""
        assert node.link is not None
        assert node.facts is not None
        own = node.facts.address or next(
            (one.facts.came_from for one in self.nodes if one.facts and one.facts.came_from), ""
        )
        if len(self.nodes) == 1:
            own = "127.0.0.1"
        if not own:
            cause = f"The address of {node.host.title} is not known. Run `footplate hosts add {node.host.name or '.'} --address ADDRESS`."
            self._fail(Failed(cause=cause))
            return
        sent = (self._parts(path) for path in node.facts.lacks)
        node.link.send_all(chain(*sent, [Meet(own_address=own, address=address, port=port)]))

    def _parts(self, path: str) -> Iterator[ToNode]:
        return parts_of(path, Path(self._job.resume_from) if path == RESUME else self._run.path / path)

    def _begin(self, listening: Listening) -> None:
        assert self._group is not None
        where = f"{listening.address}, port {listening.port}"
        text = f"The machines meet at {where}; nothing there asks for a password. {self.nodes[0].host.title} listens on no other address."
        if len(self.nodes) > 1:
            self._tell(LogLine(text=text))
        for node in self.nodes[1:]:
            self._meet(node, listening.address, listening.port)
        for node in self.nodes:
            assert node.link is not None
            node.workers = [RemoteWorker(spec, node.link) for spec in node.specs]
        self._met = True
        self._group.take_in([worker for node in self.nodes for worker in node.workers])

    # What the machines say

    def _take(self, node: Node, message: FromNode) -> None:
        match message:
            case NodeFacts():
                node.facts = message
                self._looked_at()
            case Listening():
                self._begin(message)
            case FromWorker():
                self._heard(node, message)
            case WorkerEnded():
                node.ended[message.rank] = message.code
                self._end_workers(node)
            case FilePart():
                assert node.fetched is not None
                node.fetched.take(message, node.ranks)
            case Sampled():
                self._sampled(message.samples)
            case NodeFailed():
                _give_up(node)
                self._fail(Failed(cause=message.cause, kind="fault" if self._met else "error"))

    def _heard(self, node: Node, heard: FromWorker) -> None:
        """Hands on what a worker says; what tells of files on another machine, once these are here."""
        worker = next((one for one in node.workers if one.rank == heard.rank), None)
        if worker is None:
            return
        raw = bytes(heard.message)
        event = FROM_WORKER.decode(raw) if raw.startswith(_WITH_FILES) else None
        if isinstance(event, CheckpointSaved) and not node.has_folder:
            assert node.fetched is not None
            node.fetched.saved(event)
            self._bring(node, worker, event, [event.path], [node])
        elif isinstance(event, Predicted) and (others := [each for each in self.nodes if not each.has_folder]):
            told = (path for one in event.samples for path in (one.truth_png, one.prediction_png) if path)
            missing = [path for path in dict.fromkeys(told) if not (self._run.path / path).exists()]
            self._bring(node, worker, event, missing, others)
        else:
            worker.take(raw)

    def _bring(self, node: Node, worker: RemoteWorker, event: AnyEvent, files: list[str], having: list[Node]) -> None:
        """Hands on a worker's event once its files are here; each is on one of the machines `having` them."""
        left, why = len(files), ""
        node.bringing += 1

        def one_came(fault: str) -> None:
            nonlocal left, why
            left -= 1
            why = why or fault
            if left <= 0:
                node.bringing -= 1
                text = f"A file could not be copied from {node.host.title}: {why}."
                worker.take(Warned(code="not_copied", message=text, rank=worker.rank) if why else event)
                self._end_workers(node)

        def ask(path: str, others: list[Node], fault: str) -> None:
            if not others:
                one_came(fault)
                return
            fetched = others[0].fetched
            assert fetched is not None
            fetched.fetch(path, lambda fault: ask(path, others[1:], fault) if fault else one_came(""))

        if not files:
            one_came("")
        for path in files:
            ask(path, having, "no other machine has it")

    def _end_workers(self, node: Node) -> None:
        """Tells of the workers that have ended; of those that came to their end, once what they have saved is here."""
        for worker in node.workers:
            code = node.ended.get(worker.rank)
            if worker.rank in node.ended and worker.exit_code is None and (code != 0 or not node.bringing):
                worker.ended(code)

    def _ended(self, node: Node, why: str) -> None:
        """The end of a machine's words: to be expected once its workers have ended, else it is lost."""
        assert node.link is not None
        code, said = node.link.last_words()
        if node.workers and all(worker.exit_code is not None for worker in node.workers):
            return
        title = node.host.title
        if why:
            cause = f"{title}: {why}."
        elif node.link.begun:
            cause = f"{title} has ended its part of the run without a word: it was killed, or the machine or its network went down."
        else:
            cause = why_it_ended(title, code, said)
        self._lost(node, cause)

    def _lost(self, node: Node, cause: str) -> None:
        """A machine is away: before the workers of a later attempt have begun it is waited for, else the attempt has
        failed.
        """
        waits = self._attempt > 0 and not self._met and time.monotonic() < self._give_up_at
        if waits and node.facts is None:
            needed = self._without(node.host.name)
            if isinstance(needed, Job):
                gone = (
                    f"{cause} The run continues without {node.host.title}, on {counted(len(needed.devices), 'device')}."
                )
                self._fail(Failed(cause=gone, rank=node.ranks[0], kind="lost_machine"))
                return
            if node.host.name not in self._told_away:
                self._told_away.add(node.host.name)
                message = f"Waiting for {node.host.title} to be back. {cause} {needed}".rstrip()
                self._tell(Warned(code="host_away", message=message))
            node.link, node.again_at = None, time.monotonic() + _AGAIN_S
            return
        begun = node.link is not None and node.link.begun
        _give_up(node)
        self._fail(Failed(cause=cause, rank=node.ranks[0], kind="fault" if begun or self._attempt else "error"))

    def _fail(self, event: Failed) -> None:
        assert self._group is not None
        self._group.fail(event, failures.CERTAIN)


def _give_up(node: Node) -> None:
    """Expects nothing more of a machine's workers and files."""
    for worker in node.workers:
        if worker.exit_code is None:
            worker.ended(None)
    if node.fetched is not None:
        node.fetched.give_up()


_WITH_FILES = (b'{"type":"checkpoint"', b'{"type":"predicted"')
"""How the events begin that tell of files."""


def _host_of(specs: Sequence[WorkerSpec], spec: WorkerSpec) -> str:
    return host_of(spec.devices[min(spec.rank, len(spec.devices) - 1)])


def _without_footplate(facts: NodeFacts) -> dict[str, str]:
    return {name: value for name, value in facts.versions.items() if name != "footplate"}
