"""Whether the user's machines can train together: all that stands against it, each with what to do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from engine.checks.node_checks import differences, inputs_of, versions
from engine.contract.hosts import Host
from engine.contract.job import Job
from engine.contract.nodes import NodeFacts
from engine.contract.problems import Problem
from engine.machines.probe import facts_from
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import size
from engine.system.ssh import in_english, ssh_command, why_it_ended

CLOCK_S = 2.0
"""By how much clocks may differ: logs and files of several machines are read side by side."""
LITTLE_DISK_BYTES = 2 << 30
_ANSWER_S = 120.0


class Looked(NamedTuple):
    """What was found on a machine, None where it was not reached; by how many seconds its clock is ahead; what speaks
    against it.
    """

    host: Host
    facts: NodeFacts | None
    clock_s: float
    problems: list[Problem]


def command_on(host: Host, *arguments: str) -> list[str]:
    """What runs `footplate` with `arguments` on `host`."""
    if not host.name:
        return [sys.executable, "-m", "footplate", *arguments]
    return ssh_command(host.reached_by, host.command(*arguments))


def look_at(hosts: Sequence[Host], dataset: str = "") -> list[Looked]:
    """Looks at all hosts at once."""
    ours = inputs_of(Job(dataset=dataset)) if dataset else {}
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        found = list(pool.map(lambda host: _look_at(host, dataset), hosts))
    here = NodeFacts(versions=versions(), inputs={}, time=0.0, free_bytes=0)
    for looked in found:
        if looked.facts is not None:
            looked.problems.extend(differences(looked.facts, looked.host.title, ours, here, "this machine"))
    return found


def _look_at(host: Host, dataset: str) -> Looked:
    words = [
        "node",
        "--look",
        *(("--dataset", dataset) if dataset else ()),
        *(("--address", host.address) if host.address else ()),
    ]
    try:
        done = _run(command_on(host, *words))
        facts = facts_from(done.stdout)
    except subprocess.TimeoutExpired:
        problem = Problem("hosts", f"{host.title} has not answered within {_ANSWER_S:.0f} s.", "Check the network.")
        return Looked(host, None, 0.0, [problem])
    except NOT_DECODED:
        why = why_it_ended(host.title, done.returncode, done.stderr.decode(errors="replace"))
        return Looked(host, None, 0.0, [Problem("hosts", why)])
    clock_s = facts.time - time.time()
    found = []
    if abs(clock_s) > CLOCK_S:
        message = f"The clock of {host.title} is {abs(clock_s):.0f} s {'ahead' if clock_s > 0 else 'behind'}."
        found.append(Problem("hosts", message, "Set the clocks by NTP: timedatectl set-ntp true", "warning"))
    if facts.free_bytes < LITTLE_DISK_BYTES:
        message = f"{host.title} has {size(facts.free_bytes)} left on its disk."
        found.append(Problem("hosts", message, "Make room for checkpoints.", "warning"))
    if host.gpus is not None and len(facts.gpus) != host.gpus:
        message = f"{host.title} had {host.gpus} GPUs, and has {len(facts.gpus)} now."
        found.append(
            Problem(
                "hosts",
                message,
                f"Look at it with `footplate doctor` there, or run `footplate hosts add {host.name}` again.",
                "warning",
            )
        )
    return Looked(host, facts, clock_s, found)


def unreachable(looked: Sequence[Looked]) -> list[Problem]:
    """What keeps the machines from meeting: each in turn listens at its port, and all others try to reach it."""
    able = [each for each in looked if each.facts is not None and each.facts.address]
    return [problem for one in able for problem in _unreached(one, [each.host for each in able if each is not one])]


def _unreached(looked: Looked, others: Sequence[Host]) -> list[Problem]:
    """What keeps `others` from reaching a machine."""
    assert looked.facts is not None
    host, address = looked.host, looked.facts.address
    if not others:
        return []
    listening = subprocess.Popen(
        command_on(host, "node", "--listen", str(host.port), "--address", address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=paths.PACKAGES,
        env=in_english(),
    )
    with listening:
        assert listening.stdin is not None
        assert listening.stdout is not None
        assert listening.stderr is not None
        told = listening.stdout.readline().strip()
        if not told.isdigit():
            said = listening.stderr.read().decode(errors="replace").strip()
            remedy = "Set another port with `footplate hosts add --port`."
            return [Problem("hosts", f"{host.title}: {said}.", remedy)]
        with ThreadPoolExecutor(max_workers=len(others)) as pool:
            found = list(pool.map(lambda each: _reach(each, host, address, int(told)), others))
        listening.stdin.close()  # which ends it
    return [problem for problem in found if problem is not None]


def _reach(host: Host, other: Host, address: str, port: int) -> Problem | None:
    done = _run(command_on(host, "node", "--reach", str(port), "--address", address))
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    why = said[-1] if said else "no answer"
    remedy = f"Open TCP ports between the two machines in their firewalls, or set the address with `footplate hosts add {other.name or '.'} --address`."
    return Problem("hosts", f"{host.title} does not reach {other.title} at {address}, port {port}: {why}.", remedy)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_ANSWER_S,
        cwd=paths.PACKAGES,
        env=in_english(),
    )
