"""Checks of the user's machines before they train together; each problem comes with its remedy."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from engine.checks.node_checks import differences, inputs_of, versions
from engine.contract.hosts import Host
from engine.contract.job import Job
from engine.contract.nodes import NodeFacts
from engine.contract.problems import Problem
from engine.system import paths
from engine.system.children import killed_after, run_child
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import size
from engine.system.ssh import english_environment, ssh_command, ssh_exit_reason

MAX_CLOCK_OFFSET_S = 2.0
"""Clock difference above which logs and files of several machines are hard to compare."""
MIN_FREE_BYTES = 2 << 30
_TIMEOUT_S = 120.0
_PORT_BYTES, _ERROR_BYTES = 16, 1 << 12
"""Bytes that are read of a listening machine's port and of its error."""


class CheckedHost(NamedTuple):
    """A checked machine: its facts (None if it was not reached), the lead of its clock in seconds, and problems."""

    host: Host
    facts: NodeFacts | None
    clock_offset_s: float
    problems: list[Problem]


def command_on(host: Host, *arguments: str) -> list[str]:
    """Return the command that runs `footplate` with `arguments` on `host`."""
    if not host.name:
        return [sys.executable, "-m", "footplate", *arguments]
    return ssh_command(host.reached_by, host.command(*arguments))


def check_hosts(hosts: Sequence[Host], dataset: str = "") -> list[CheckedHost]:
    """Check all hosts in parallel and compare them with this machine."""
    local_inputs = inputs_of(Job.from_fields(dataset=dataset)) if dataset else {}
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        checked = list(pool.map(lambda host: _check_host(host, dataset), hosts))
    local = NodeFacts(versions=versions(), inputs={}, time=0.0, free_bytes=0)
    for each in checked:
        if each.facts is not None:
            each.problems.extend(differences(each.facts, each.host.title, local_inputs, local, "this machine"))
    return checked


def _check_host(host: Host, dataset: str) -> CheckedHost:
    arguments = ["node", "--look"]
    arguments += ["--dataset", dataset] if dataset else []
    arguments += ["--address", host.address] if host.address else []
    try:
        done = _run(command_on(host, *arguments))
        facts = msgspec.json.decode(done.stdout, type=NodeFacts)
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckedHost(host, None, 0.0, [_not_checked(host, error)])
    except NOT_DECODED:
        reason = ssh_exit_reason(host.title, done.returncode, done.stderr.decode(errors="replace"))
        return CheckedHost(host, None, 0.0, [Problem("hosts", reason)])
    offset_s = facts.time - time.time()
    warnings = []
    if abs(offset_s) > MAX_CLOCK_OFFSET_S:
        message = f"The clock of {host.title} is {abs(offset_s):.0f} s {'ahead' if offset_s > 0 else 'behind'}."
        warnings.append((message, "Set the clocks by NTP: timedatectl set-ntp true"))
    if facts.free_bytes < MIN_FREE_BYTES:
        message = f"{host.title} has {size(facts.free_bytes)} left on its disk."
        warnings.append((message, "Make room for checkpoints."))
    if host.gpus is not None and len(facts.gpus) != host.gpus:
        message = f"{host.title} had {host.gpus} GPUs, and has {len(facts.gpus)} now."
        remedy = f"Run `footplate doctor` there, or `footplate hosts add {host.name}` again."
        warnings.append((message, remedy))
    return CheckedHost(host, facts, offset_s, [Problem("hosts", *words, "warning") for words in warnings])


def unreachable(checked: Sequence[CheckedHost]) -> list[Problem]:
    """Let each machine in turn listen at its port while all others connect, and return a problem per failure."""
    able = [each for each in checked if each.facts is not None and each.facts.address]
    return [problem for each in able for problem in _unreached(each, [one.host for one in able if one is not each])]


def _unreached(checked: CheckedHost, others: Sequence[Host]) -> list[Problem]:
    """Return a problem for each of `others` that does not reach a machine."""
    try:
        return _not_reached_by(checked, others) if others else []
    except (OSError, subprocess.TimeoutExpired) as error:
        return [_not_checked(checked.host, error)]


def _not_reached_by(checked: CheckedHost, others: Sequence[Host]) -> list[Problem]:
    assert checked.facts is not None
    host, address = checked.host, checked.facts.address
    listener = subprocess.Popen(
        command_on(host, "node", "--listen", str(host.port), "--address", address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=paths.PACKAGES,
        env=english_environment(),
    )
    with killed_after(listener, _TIMEOUT_S), listener:
        assert listener.stdin is not None
        assert listener.stdout is not None
        assert listener.stderr is not None
        port = listener.stdout.readline(_PORT_BYTES).strip()
        if not port.isdigit():
            error = listener.stderr.read(_ERROR_BYTES).decode(errors="replace").strip()
            remedy = "Set another port with `footplate hosts add --port`."
            listener.kill()
            return [Problem("hosts", f"{host.title}: {error}.", remedy)]
        with ThreadPoolExecutor(max_workers=len(others)) as pool:
            found = list(pool.map(lambda other: _reach(other, host, address, int(port)), others))
        listener.stdin.close()  # which ends it
    return [problem for problem in found if problem is not None]


def _reach(host: Host, target: Host, address: str, port: int) -> Problem | None:
    try:
        done = _run(command_on(host, "node", "--reach", str(port), "--address", address))
    except (OSError, subprocess.TimeoutExpired) as error:
        return _not_checked(host, error)
    if done.returncode == 0:
        return None
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    reason = errors[-1] if errors else "no answer"
    return Problem(
        "hosts",
        f"{host.title} does not reach {target.title} at {address}, port {port}: {reason}.",
        "Open TCP ports between the two machines in their firewalls, or set the address with "
        f"`footplate hosts add {target.name or '.'} --address`.",
    )


def _not_checked(host: Host, error: OSError | subprocess.TimeoutExpired) -> Problem:
    if isinstance(error, subprocess.TimeoutExpired):
        return Problem("hosts", f"{host.title} has not answered within {_TIMEOUT_S:.0f} s.", "Check the network.")
    return Problem("hosts", f"{host.title} can't be checked: {error.strerror or error}.", "Try to log in with ssh.")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command on a machine. Raises OSError, subprocess.TimeoutExpired."""
    return run_child(command, timeout_s=_TIMEOUT_S, cwd=str(paths.PACKAGES), env=english_environment())
