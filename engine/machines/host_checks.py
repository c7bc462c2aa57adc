"""Check machines before they train together. Failures are reported as problems with remedies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Literal, NamedTuple

import msgspec

from engine.checks.node_checks import digest_inputs, machine_problems, versions
from engine.contract.hosts import Host
from engine.contract.job import Job
from engine.contract.nodes import ConnectionTest, ConnectionTestResult, NodeFacts
from engine.contract.problems import Problem
from engine.contract.protocol import ENCODE
from engine.system import paths
from engine.system.children import kill_after, run_child
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import counted, size
from engine.system.ssh import create_english_environment, explain_ssh_exit, ssh_command

MAX_CLOCK_OFFSET_S = 2.0
"""Maximum clock difference in seconds. Above it, logs and files of several machines are hard to compare."""
MIN_FREE_BYTES = 2 << 30
_TIMEOUT_S = 120.0
_EXIT_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 1 << 16
# Created before threads use them: msgspec crashes if two threads prepare the same type at once.
_FACTS_DECODER, _RESULT_DECODER = msgspec.json.Decoder(NodeFacts), msgspec.json.Decoder(ConnectionTestResult)


class CheckedHost(NamedTuple):
    """Result of checking one machine.

    Attributes:
        host: The machine.
        facts: Facts about the machine, or None if it is unreachable.
        clock_offset_s: Seconds by which the machine's clock is ahead of this machine's clock.
        problems: Problems of the machine, which may be only warnings.
    """

    host: Host
    facts: NodeFacts | None
    clock_offset_s: float
    problems: list[Problem]


def command_on(host: Host, *arguments: str) -> list[str]:
    """Return the command line that runs `footplate` with `arguments` on `host`, through ssh for another machine."""
    if not host.name:
        return [sys.executable, "-m", "footplate", *arguments]
    return ssh_command(host.ssh_destination, host.command(*arguments))


def check_hosts(hosts: Sequence[Host], dataset: str = "") -> list[CheckedHost]:
    """Check all hosts in parallel, and compare each with this machine. Returns a result for each host.

    If `dataset` is given, the dataset's content on each host is compared, too.
    """
    local_inputs = digest_inputs(Job.from_fields(dataset=dataset)) if dataset else {}
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        checked = list(pool.map(lambda host: _check_host(host, dataset), hosts))
    local = NodeFacts(versions=versions(), inputs={}, time=0.0, free_bytes=0)  # only its versions are used
    for each in checked:
        if each.facts is not None:
            each.problems.extend(machine_problems(each.facts, each.host.title, local_inputs, local, "this machine"))
    return checked


def _check_host(host: Host, dataset: str) -> CheckedHost:
    """Collect the facts about `host` through ssh, and check its clock, free disk space and number of GPUs.

    If `dataset` is not "", the facts include the digest of this dataset.
    """
    arguments = ["node", "--facts"]
    arguments += ["--dataset", dataset] if dataset else []
    arguments += ["--address", host.address] if host.address else []
    try:
        done = run_child(
            command_on(host, *arguments),
            timeout_s=_TIMEOUT_S,
            cwd=str(paths.PACKAGES),
            env=create_english_environment(),
        )
        facts = _FACTS_DECODER.decode(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckedHost(host, facts=None, clock_offset_s=0.0, problems=[_describe_failure(host, error)])
    except NOT_DECODED:
        reason = explain_ssh_exit(host.title, done.returncode, done.stderr.decode(errors="replace"))
        return CheckedHost(host, facts=None, clock_offset_s=0.0, problems=[Problem("hosts", reason)])
    offset_s = facts.time - time.time()
    warnings = []  # pairs of a message and a remedy
    if abs(offset_s) > MAX_CLOCK_OFFSET_S:
        message = f"The clock of {host.title} is {abs(offset_s):.0f} s {'ahead' if offset_s > 0 else 'behind'}."
        warnings.append((message, "Set the clocks by NTP: timedatectl set-ntp true"))
    if facts.free_bytes < MIN_FREE_BYTES:
        message = f"{host.title} has {size(facts.free_bytes)} left on its disk."
        warnings.append((message, "Make room for checkpoints."))
    if host.gpus is not None and len(facts.gpus) != host.gpus:
        message = f"{host.title} had {counted(host.gpus, 'GPU')}, and has {len(facts.gpus)} now."
        remedy = f"Run `footplate doctor` there, or `footplate hosts add {host.name}` again."
        warnings.append((message, remedy))
    return CheckedHost(host, facts, offset_s, [Problem("hosts", *warning, "warning") for warning in warnings])


class _Peer:
    """Process on another machine that tests connections to further machines (see `connection_test`)."""

    def __init__(self, checked: CheckedHost, *, infiniband: bool) -> None:
        assert checked.facts is not None
        self.host, self.address = checked.host, checked.facts.address
        arguments = ["node", "--test-connections", "--address", self.address]
        arguments += [] if infiniband else ["--no-infiniband"]
        self._process = subprocess.Popen(
            command_on(self.host, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=paths.PACKAGES,
            env=create_english_environment(),
        )

    def ask(self, request: ConnectionTest) -> ConnectionTestResult:
        """Send a test to the process, and return its result (see `answer`)."""
        assert self._process.stdin is not None
        with suppress(OSError):  # `answer` reports it
            self._process.stdin.write(ENCODE.encode(request) + b"\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> ConnectionTestResult:
        """Wait for the next result of the process, and return it.

        If the machine does not answer within `_TIMEOUT_S`, the process is killed, and the result is a failure.
        """
        assert self._process.stdout is not None
        line = b""
        with suppress(subprocess.TimeoutExpired), kill_after(self._process, _TIMEOUT_S):
            line = self._process.stdout.readline(_MAX_ANSWER_BYTES)
        try:
            return _RESULT_DECODER.decode(line)
        except NOT_DECODED:
            problem = f"it has ended, or has not answered within {_TIMEOUT_S:.0f} s"
            # Without has_connected, a closed port would be reported. Such a failure is answered within seconds.
            return ConnectionTestResult(has_connected=True, problem=problem)

    def close(self) -> None:
        """Stop the process on the machine by closing its input."""
        assert self._process.stdin is not None
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(_EXIT_TIMEOUT_S)
        self._process.kill()
        with self._process:  # closes its output and reaps it
            pass


def check_connections(checked: Sequence[CheckedHost]) -> list[Problem]:
    """Test the connections between all machines, and return a problem for each failure.

    Each machine in turn acts as the first machine of a run. All others connect to it, and sum numbers with it over
    gloo. If this succeeds and all have GPUs, all machines then sum numbers over NCCL once.
    """
    hosts = [(each, each.facts) for each in checked if each.facts is not None and each.facts.address]
    if len(hosts) < 2:
        return []
    infiniband = all(facts.infiniband for _, facts in hosts)
    with ExitStack() as stack, ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        peers = [stack.enter_context(closing(_Peer(each, infiniband=infiniband))) for each, _ in hosts]
        first_results = list(pool.map(_Peer.answer, peers))  # sent when a process is ready for tests, or can't start
        problems = [
            _create_problem(peer, result.problem)
            for peer, result in zip(peers, first_results, strict=True)
            if result.problem
        ]
        if problems:
            return problems
        for peer in peers:
            problems += _connect_all(pool, peer, [other for other in peers if other is not peer], "gloo")
        if not problems and all(facts.gpus for _, facts in hosts):
            problems = _connect_all(pool, peers[0], peers[1:], "nccl")
    return problems


def _connect_all(
    pool: ThreadPoolExecutor, first: _Peer, others: Sequence[_Peer], backend: Literal["gloo", "nccl"]
) -> list[Problem]:
    """Test if all `others` can connect to the machine `first` and exchange data with it. Returns the problems."""
    ranks = len(others) + 1
    opened = first.ask(ConnectionTest(ranks=ranks, backend=backend, port=first.host.port))
    if opened.problem:
        return [_create_problem(first, opened.problem, "Set another port with `footplate hosts add --port`.")]
    requests = [
        ConnectionTest(rank=rank, ranks=ranks, backend=backend, address=first.address, port=opened.port)
        for rank in range(1, ranks)
    ]
    first_result = pool.submit(first.answer)
    results = list(pool.map(_Peer.ask, others, requests))
    problems = [
        _create_connection_problem(other, first, result, opened.port, backend)
        for other, result in zip(others, results, strict=True)
        if result.problem
    ]
    if first_result.result().problem and not problems:  # with problems, its failure is probably their consequence
        problems.append(_create_connection_problem(first, others[0], first_result.result(), opened.port, backend))
    return problems


def _create_connection_problem(
    peer: _Peer, target: _Peer, result: ConnectionTestResult, port: int, backend: str
) -> Problem:
    """Create the problem that `peer` can't connect to `target`, or can't exchange data with it, with a remedy.

    `result` is the failed test over `backend` ("gloo" or "nccl"), in which `target` listened on `port`.
    """
    title, other = peer.host.title, target.host.title
    if not result.has_connected:
        message = f"{title} does not reach {other} at {target.address}, port {port}"
        remedy = (
            "Open TCP ports between the two machines in their firewalls, or set the address with "
            f"`footplate hosts add {target.host.name or '.'} --address`."
        )
    elif backend == "gloo":
        message = f"{title} reaches {other} at port {port}, but they can't exchange data over gloo"
        remedy = (
            "Open all TCP ports between the two machines in their firewalls: gloo and NCCL use those that the system "
            "chooses (sysctl net.ipv4.ip_local_port_range)."
        )
    else:
        message = f"{title} and {other} can't exchange data of GPUs over NCCL"
        remedy = "Open all TCP ports between them, or set NCCL's variables with `footplate hosts add --environment`."
    return Problem("hosts", f"{message}: {result.problem}.", remedy)


def _create_problem(peer: _Peer, problem: str, remedy: str = "") -> Problem:
    """Create the problem that connections with the machine of `peer` can't be tested.

    `problem` is the reason, as words that follow "NAME: ".
    """
    return Problem("hosts", f"{peer.host.title}: {problem}.", remedy)


def _describe_failure(host: Host, error: OSError | subprocess.TimeoutExpired) -> Problem:
    """Return the problem that the check of a machine could not start or has timed out."""
    if isinstance(error, subprocess.TimeoutExpired):
        return Problem("hosts", f"{host.title} has not answered within {_TIMEOUT_S:.0f} s.", "Check the network.")
    return Problem("hosts", f"{host.title} can't be checked: {error.strerror or error}.", "Try to log in with ssh.")
