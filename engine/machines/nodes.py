"""Connections of the supervisor to all machines of a run, for one start of the workers.

The supervisor compares the machines, copies files, and runs the workers there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from itertools import groupby
from pathlib import Path
from selectors import BaseSelector
from typing import TypeVar

import msgspec

from engine.checks.node_checks import digest_inputs, machine_problems, versions
from engine.contract.devices import DeviceSample, host_of, local_device
from engine.contract.events import AnyEvent, CheckpointSaved, Failed, LogLine, PhaseChanged, Predicted, Waiting, Warned
from engine.contract.hosts import SLURM, Host, host
from engine.contract.job import Job
from engine.contract.nodes import (
    DatasetDigest,
    FromNode,
    FromWorker,
    Listening,
    NodeFacts,
    NodeFailed,
    NodeRequest,
    Rendezvous,
    Sampled,
    WorkerEnded,
    file_sha256,
)
from engine.contract.problems import Problem
from engine.contract.worker import FROM_WORKER, WorkerSpec
from engine.machines.files import LAST, FileTransfers, required_files, worker_file_names
from engine.machines.link import SHUTDOWN_S, NodeLink, remote_command
from engine.machines.remote_worker import RemoteWorker
from engine.processes import failures
from engine.processes.group import Group
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.format import counted
from engine.system.slurm import srun_command
from engine.system.ssh import explain_ssh_exit, ssh_command

QUIET_S = 2.5
"""Seconds of silence after which a machine is suspected to have caused the failures that other machines report."""
RETURN_S = 600.0
"""Maximum time in seconds that a run waits for a lost machine to return."""
_RETRY_S = 3.0
_EVENTS_WITH_FILES = (b'{"type":"checkpoint"', b'{"type":"predicted"')
"""Prefixes of encoded events that refer to files in the run folder."""
_Result = TypeVar("_Result")


class _Stage(Enum):
    """Stages of starting the workers on several machines, in order."""

    COMPARING = auto()
    """The machines are connected, and their facts are compared."""
    COPYING = auto()
    """Files are sent to the machines."""
    RENDEZVOUS = auto()
    """The rendezvous is opened on the first machine."""
    TRAINING = auto()


class Node:
    """Machine of a run, and the state of the connection to it."""

    def __init__(self, machine: Host, specs: list[WorkerSpec]) -> None:
        self.host = machine
        self.specs = specs
        self.link: NodeLink | None = None
        self.files: FileTransfers | None = None
        """Transfers between the run folder and the machine, or None if the machine shares the run folder."""
        self.facts: NodeFacts | None = None  # None until the machine has reported them
        self.workers: list[RemoteWorker] = []  # empty until the rendezvous is open
        self.exit_codes: dict[int, int | None] = {}  # by rank, None for workers that were stopped
        self.retry_at = 0.0
        """Time of the next attempt to connect, by time.monotonic()."""
        self.pending_events = 0
        """Number of events of its workers that are not forwarded until their files are copied."""

    @property
    def title(self) -> str:
        return self.host.title

    @property
    def ranks(self) -> list[int]:
        return [spec.rank for spec in self.specs]

    @property
    def is_slurm(self) -> bool:
        return self.host.name.startswith(SLURM)

    @property
    def shares_folder(self) -> bool:
        """True if the machine uses the original run folder, which is true of this machine and of SLURM nodes."""
        return not self.host.name or self.is_slurm

    @property
    def is_quiet(self) -> bool:
        """True if no message has arrived for `QUIET_S` on an open connection."""
        return self.link is not None and not self.link.has_ended and self.link.silent_s > QUIET_S

    def command(self) -> list[str]:
        """Return the command line that starts the process (node) which runs the workers on the machine."""
        if self.is_slurm:
            return srun_command(self.host.name.removeprefix(SLURM), ["node"])
        if self.host.name:
            return remote_command(self.host, "node")
        return [*self.host.environment_command, sys.executable, "-m", "engine.machines.node"]

    def give_up(self) -> None:
        """Stop waiting for the machine's workers and file transfers. Workers without an exit code count as stopped."""
        for worker in self.workers:
            if worker.exit_code is None:
                worker.set_exit_code(None)
        if self.files is not None:
            self.files.give_up()


class Nodes:
    """Machines that take part in one start of the workers, in the order of the job's devices.

    Call `launch`, then `poll` often. Once all machines are connected to each other, their workers join `group`.

    Args:
        run: Run folder.
        specs: Specs of all workers.
        group: Group that the workers join. It also receives failures of machines.
        selector: Selector that the caller polls.
        on_event: Receives events for the log.
        on_samples: Receives samples of the machines' devices.
        attempt: Number of this start of the workers, counted from 0. In restarts, the run waits for an unreachable
            machine.
        job_without_machine: Function that returns a job without the devices of the named machine. If the run must wait
            for the machine, it returns a sentence with the reason, or None if the user has chosen to wait.
    """

    def __init__(
        self,
        run: RunFolder,
        specs: Sequence[WorkerSpec],
        group: Group,
        selector: BaseSelector,
        *,
        on_event: Callable[[AnyEvent], object],
        on_samples: Callable[[tuple[DeviceSample, ...]], None],
        attempt: int,
        job_without_machine: Callable[[str], Job | str | None],
    ) -> None:
        self._run = run
        self._job = specs[0].job
        self._group = group
        self._selector = selector
        self._on_event, self._on_samples = on_event, on_samples
        self._attempt = attempt
        self._job_without_machine = job_without_machine
        self._stage = _Stage.COMPARING
        self._has_waited = False  # True once a machine has waited in its queue
        self._inputs = _start_in_thread(lambda: digest_inputs(self._job))  # digests of the job's files on this machine
        self._remaining_copies = 0  # files that must be sent before the rendezvous
        self._give_up_at = time.monotonic() + RETURN_S  # until then, a restart waits for lost machines
        self._reported_away: set[str] = set()  # names of lost machines that the log mentions
        self.nodes = [Node(host(name) or Host(name=name), list(group)) for name, group in groupby(specs, _get_host)]

    @property
    def has_quiet_node(self) -> bool:
        """True if a machine is silent, which may have caused the failures that other machines report."""
        return any(node.is_quiet for node in self.nodes)

    def launch(self) -> None:
        """Start to connect to all machines."""
        for node in self.nodes:
            self._connect(node)

    def poll(self) -> None:
        """Retry connections, detect lost machines, and process file transfers that have ended.

        Before the workers start, also compare the machines once all have reported their facts.
        """
        if self._stage is _Stage.COMPARING:
            self._compare()
        for node in self.nodes:
            if node.files is not None:
                node.files.poll()
            if any(worker.has_ended and worker.exit_code is None for worker in node.workers):
                self._group.extend()  # files of ended workers are still being copied
            if node.link is None:
                if time.monotonic() > node.retry_at and self._group.failure is None:
                    self._connect(node)
                continue
            if reason := node.link.silence_reason(node.title):
                node.link.kill()
                self._on_lost(node, reason)

    def close(self) -> None:
        """Close the connections to all machines that still respond, and wait until their commands exit.

        The machines then stop everything that they started.
        """
        for node in self.nodes:
            if node.files is not None:
                node.files.close()
            if node.link is not None and not node.link.has_ended:
                node.link.close()
        deadline = time.monotonic() + SHUTDOWN_S
        for node in self.nodes:
            if node.link is not None:
                node.link.finish(max(0.0, deadline - time.monotonic()))

    # From the connection to the rendezvous

    def _connect(self, node: Node) -> None:
        """Start the connection to a machine, and send the machine its request."""
        number = self.nodes.index(node)
        command = node.command()
        try:
            node.link = NodeLink(
                command,
                self._get_node_log(node),
                self._selector,
                partial(self._on_message, node),
                partial(self._on_end, node),
            )
        except OSError as error:
            self._fail(Failed(cause=f"{command[0]} can't be started: {error}"))
            return
        node.link.send(
            NodeRequest(
                run_id=self._run.run_id,
                attempt=self._attempt,
                title=node.title,
                node=number,
                nodes=len(self.nodes),
                specs=tuple(node.specs),
                run_folder=str(self._run.path) if node.shares_folder else "",
                address=node.host.address,
                port=node.host.port,
            )
        )

    def _get_node_log(self, node: Node) -> Path:
        return self._run.path / f"node-{self.nodes.index(node)}.log"

    def _compare(self) -> None:
        """Compare the machines once all of them have reported their facts, then send them the missing files.

        If they differ in a way that would break the run, or have lost GPUs, the start fails instead. If a machine has
        waited in its queue, the end of the wait is reported.
        """
        facts = [node.facts for node in self.nodes if node.facts is not None]
        if len(facts) < len(self.nodes) or not self._inputs.done() or self._group.failure is not None:
            return
        problems = self._find_differences(facts, self._inputs.result())
        if self._has_waited:
            self._on_event(PhaseChanged(phase="starting"))  # replaces the phase of waiting
        self._stage = _Stage.COPYING  # the comparison is over, also if it fails
        # At the first start, lost GPUs are among `problems`.
        if self._attempt and any(node_facts.lost_gpus for node_facts in facts):
            self._fail(self._create_gpu_loss_failure())
        elif problems:
            self._fail(Failed(cause=" ".join(map(str, problems))))
        else:
            self._copy_files()

    def _find_differences(self, facts: Sequence[NodeFacts], local_inputs: Mapping[str, DatasetDigest]) -> list[Problem]:
        """Return the differences between the machines that would break the run, given the facts of each machine.

        Footplate's version and the job's inputs are compared with this machine, and all other versions with the first
        machine.
        """
        packages = {name: version for name, version in facts[0].versions.items() if name != "footplate"}
        first = msgspec.structs.replace(facts[0], versions=packages)
        local = msgspec.structs.replace(facts[0], versions={"footplate": versions()["footplate"]})
        problems: list[Problem] = []
        for node, node_facts in zip(self.nodes, facts, strict=True):
            problems += machine_problems(node_facts, node.title, local_inputs, local, "this machine")
            without_problem = msgspec.structs.replace(node_facts, problem="")  # it is already reported
            problems += machine_problems(without_problem, node.title, {}, first, self.nodes[0].title)
        return problems

    def _create_gpu_loss_failure(self) -> Failed:
        """Create the failure for the GPUs that machines have lost. Its `devices` are these GPUs."""
        lost = [
            device
            for node in self.nodes
            for device in node.specs[0].devices  # those of all machines
            if node.facts is not None
            and host_of(device) == node.host.name
            and local_device(device) in node.facts.lost_gpus
        ]
        cause = " ".join(
            f"{node.title}: {node.facts.problem}"
            for node in self.nodes
            if node.facts is not None and node.facts.lost_gpus
        )
        return Failed(cause=cause, kind="lost_gpu", devices=tuple(lost))

    def _copy_files(self) -> None:
        """Send each machine the files that it needs to resume, then start the rendezvous.

        The rendezvous comes last because its time is limited.
        """

        def on_copied(node: Node, error: str) -> None:
            """Start the rendezvous after the last file. An `error` ends this start of the workers instead."""
            if error:
                self._fail(Failed(cause=f"The checkpoint can't be copied to {node.title}: {error}.", kind="fault"))
                return
            self._remaining_copies -= 1
            if not self._remaining_copies:
                self._start_rendezvous()

        copies = []
        for node in self.nodes:
            if node.files is not None:
                files = required_files(self._run, self._job, has_rank_0=node is self.nodes[0])
                copies += [(node, node.files, path, source) for path, source in files.items()]
        self._remaining_copies = len(copies)
        digests = {}  # for each path: function that waits for the digest of its file
        for node, transfers, path, source in copies:
            if path not in digests:
                digests[path] = _start_in_thread(partial(file_sha256, source)).result
            transfers.send(path, source, digests[path], partial(on_copied, node))
        if not copies:
            self._start_rendezvous()

    def _start_rendezvous(self) -> None:
        """Let the first machine open the rendezvous at a port that it chooses. `_on_listening` handles its answer."""
        self._stage = _Stage.RENDEZVOUS
        self._send_rendezvous(self.nodes[0], "", 0)

    def _send_rendezvous(self, node: Node, address: str, port: int) -> None:
        """Send a machine the address and port of the rendezvous. If `address` is "", the machine opens it.

        If the machine's own address isn't known, the start fails instead.
        """
        assert node.link is not None
        assert node.facts is not None
        # The facts of this machine have no address: ssh doesn't connect to it. The others know where ssh came from.
        ssh_sources = (each.facts.client_address for each in self.nodes if each.facts and each.facts.client_address)
        local_address = "127.0.0.1" if len(self.nodes) == 1 else node.facts.address or next(ssh_sources, "")
        if not local_address:
            remedy = f"Run `footplate hosts add {node.host.name or '.'} --address ADDRESS`."
            self._fail(Failed(cause=f"The address of {node.title} is not known. {remedy}"))
            return
        infiniband = all(each.facts.infiniband for each in self.nodes if each.facts)
        node.link.send(Rendezvous(local_address=local_address, address=address, port=port, infiniband=infiniband))

    def _on_listening(self, listening: Listening) -> None:
        """Handle the message that the first machine has opened the rendezvous.

        The other machines are sent its address, and all workers are added to the group.
        """
        if len(self.nodes) > 1:
            text = (
                f"The machines meet at {listening.address}, port {listening.port}, without a password. "
                f"{self.nodes[0].title} listens on no other address."
            )
            self._on_event(LogLine(text=text))
        for node in self.nodes[1:]:
            self._send_rendezvous(node, listening.address, listening.port)
        for node in self.nodes:
            assert node.link is not None
            node.workers = [RemoteWorker(spec, node.link) for spec in node.specs]
        self._stage = _Stage.TRAINING
        self._group.adopt([worker for node in self.nodes for worker in node.workers])

    # Messages

    def _on_message(self, node: Node, message: FromNode) -> None:
        """Handle a message that a machine has sent. File transfers with it start once it has reported its facts."""
        match message:
            case Waiting():
                self._has_waited = True  # `_compare` then reports the end of the wait
                self._on_event(message)
            case NodeFacts():
                node.facts = message
                if not node.shares_folder:
                    command = ssh_command(
                        node.host.ssh_destination, node.host.command("node", "--exchange", self._run.run_id)
                    )
                    log = self._get_node_log(node)
                    node.files = FileTransfers(self._run, command, log, self._job.checkpoints.keep_checkpoints)
            case Listening():
                self._on_listening(message)
            case FromWorker():
                self._on_worker_message(node, message)
            case WorkerEnded():
                self._store_worker_files(node, message)
                node.exit_codes[message.rank] = message.code
                self._report_exits(node)
            case Sampled():
                self._on_samples(message.samples)
            case NodeFailed():
                node.give_up()
                may_restart_help = self._stage is _Stage.TRAINING
                self._fail(Failed(cause=message.cause, kind="fault" if may_restart_help else "error"))

    def _on_worker_message(self, node: Node, message: FromWorker) -> None:
        """Forward a message of a worker. If it refers to files that are on another machine, copy these first."""
        worker = next((each for each in node.workers if each.rank == message.rank), None)
        if worker is None:
            return  # not a rank of this machine
        encoded = bytes(message.message)
        event = FROM_WORKER.decode(encoded) if encoded.startswith(_EVENTS_WITH_FILES) else None
        without_folder = [each for each in self.nodes if not each.shares_folder]
        if isinstance(event, CheckpointSaved) and node in without_folder:
            self._fetch_then_forward(node, worker, event, [event.path], [node])
        elif isinstance(event, Predicted) and without_folder:
            # Each rank writes images of its samples, and rank 0 reports those of all ranks.
            images = (path for sample in event.samples for path in (sample.truth_png, sample.prediction_png) if path)
            missing = [path for path in dict.fromkeys(images) if not (self._run.path / path).exists()]
            self._fetch_then_forward(node, worker, event, missing, without_folder)
        else:
            worker.on_message(encoded)

    def _fetch_then_forward(
        self, node: Node, worker: RemoteWorker, event: AnyEvent, files: list[str], sources: list[Node]
    ) -> None:
        """Copy `files` to the run folder, then forward the event of a worker that refers to them.

        Each file is fetched from the first of the machines `sources` that has it. If a file can't be copied, a warning
        is forwarded instead of the event.
        """
        if not files:
            worker.on_message(event)
            return
        remaining, first_error = len(files), ""
        # The transfers need this event to name the older checkpoint that a last.pt later becomes.
        saved = event if isinstance(event, CheckpointSaved) and event.path == LAST else None
        node.pending_events += 1

        def on_copied(error: str) -> None:
            """Forward the event after the last file, or a warning with the first error."""
            nonlocal remaining, first_error
            remaining -= 1
            first_error = first_error or error
            if not remaining:
                node.pending_events -= 1
                text = f"A file could not be copied from {node.title}: {first_error}."
                warning = Warned(code="not_copied", message=text, rank=worker.rank)
                worker.on_message(warning if first_error else event)
                self._report_exits(node)

        def fetch(path: str, machines: list[Node], error: str) -> None:
            """Fetch a file from the first of `machines`. If that fails, try the next one.

            `error` is the reason why the previous attempt failed. It is reported if no machine is left.
            """
            if not machines:
                on_copied(error)
                return
            transfers = machines[0].files
            assert transfers is not None
            transfers.fetch(path, lambda error: fetch(path, machines[1:], error) if error else on_copied(""), saved)

        for path in files:
            fetch(path, sources, "no other machine has it")

    def _store_worker_files(self, node: Node, message: WorkerEnded) -> None:
        """Write the log and traceback that a machine has sent for an ended worker to the run folder."""
        if node.shares_folder or message.rank not in node.ranks:
            return
        for name in worker_file_names(message.rank):
            if name in message.files:
                with suppress(OSError):
                    paths.write_atomically(self._run.path / name, message.files[name])

    def _report_exits(self, node: Node) -> None:
        """Report the exit of a machine's workers. If they have succeeded, do so only after their files are copied."""
        for worker in node.workers:
            worker.has_ended = worker.rank in node.exit_codes
            if not worker.has_ended or worker.exit_code is not None:
                continue
            code = node.exit_codes[worker.rank]
            if code != 0 or not node.pending_events:
                worker.set_exit_code(code)

    # Lost machines

    def _on_end(self, node: Node, reason: str) -> None:
        """Handle the end of the connection to a machine. The machine is lost unless its workers have exited.

        `reason` says which message was invalid, or is "".
        """
        assert node.link is not None
        code, errors = node.link.exit_status()
        if node.workers and all(worker.exit_code is not None for worker in node.workers):
            return
        if reason:
            cause = f"{node.title}: {reason}."
        elif node.link.has_answered:
            cause = (
                f"{node.title} left the run without reporting an error: its process was killed, or the machine or its "
                "network went down."
            )
        else:
            cause = explain_ssh_exit(node.title, code, errors)
        self._on_lost(node, cause)

    def _on_lost(self, node: Node, cause: str) -> None:
        """Handle the loss of a machine.

        In a restart of the workers, a machine that has not reported its facts yet is awaited for a limited time. The
        run waits for it, or continues at once without it if the job allows this and its other devices suffice. In all
        other cases, the workers are stopped with a failure.
        """
        is_awaited = self._attempt > 0 and self._stage is _Stage.COMPARING and node.facts is None
        if not is_awaited or time.monotonic() > self._give_up_at:
            # A machine that has never answered probably can't be used at all.
            can_restart = self._attempt > 0 or (node.link is not None and node.link.has_answered)
            node.give_up()
            self._fail(Failed(cause=cause, rank=node.ranks[0], kind="fault" if can_restart else "error"))
            return
        smaller_job = self._job_without_machine(node.host.name)
        if isinstance(smaller_job, Job):
            devices = counted(len(smaller_job.parallel.devices), "device")
            cause = f"{cause} The run continues without {node.title}, on {devices}."
            self._fail(Failed(cause=cause, rank=node.ranks[0], kind="lost_machine"))
            return
        if node.host.name not in self._reported_away:
            self._reported_away.add(node.host.name)
            why_not_smaller = smaller_job or ""  # empty if the user has chosen to wait
            message = f"Waiting for {node.title} to return. {cause} {why_not_smaller}".rstrip()
            self._on_event(Warned(code="host_away", message=message))
        node.link, node.retry_at = None, time.monotonic() + _RETRY_S

    def _fail(self, event: Failed) -> None:
        """Report `event` to the group as a failure that is certainly the root cause, which stops the workers.

        If the group already knows the root cause, the failure is only logged.
        """
        self._group.fail(event, failures.CERTAIN)


def _start_in_thread(function: Callable[[], _Result]) -> Future[_Result]:
    """Call a slow function in a thread that does not keep the process from exiting. Returns its future."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name="digest", daemon=True).start()
    return future


def _get_host(spec: WorkerSpec) -> str:
    """Return the name of the machine with a worker, which is "" for this machine."""
    return host_of(spec.devices[min(spec.rank, len(spec.devices) - 1)])  # a single worker may use all devices
