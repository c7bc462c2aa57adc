"""``footplate hosts add`` without a connection to the machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.cli.main import create_parser
from engine.cli.terminal import BAD_REQUEST, COMPLETED
from engine.contract.hosts import Host, hosts
from engine.contract.nodes import NodeFacts
from engine.contract.problems import Problem
from engine.machines import host_checks
from engine.machines.host_checks import CheckedHost

FACTS = NodeFacts(versions={"torch": "2.9"}, inputs={}, time=0.0, free_bytes=5 << 30, gpus=("GPU-a", "GPU-b"))
WRONG = Problem("hosts", "Its torch differs.", "Install the same.")


def run(*words: str) -> int:
    options = create_parser().parse_args(["hosts", *words])
    return int(options.command(options))


@pytest.mark.parametrize(
    ("facts", "problems", "code", "gpus"),
    [
        (FACTS, [], COMPLETED, [2]),
        (FACTS, [WRONG], BAD_REQUEST, [2]),
        (None, [WRONG], BAD_REQUEST, []),
    ],
)
def test_checked_machine_is_added_with_its_gpus(
    monkeypatch: pytest.MonkeyPatch, facts: NodeFacts | None, problems: list[Problem], code: int, gpus: list[int]
) -> None:
    def check(checked: Sequence[Host]) -> list[CheckedHost]:
        return [CheckedHost(each, facts, 0.0, list(problems)) for each in checked]

    monkeypatch.setattr(host_checks, "check_hosts", check)
    assert run("add", "node1", "--ssh", "anna@10.0.0.8", "--port", "30000") == code
    assert [(each.name, each.destination, each.port) for each in hosts()] == [("node1", "anna@10.0.0.8", 30000)] * len(
        gpus
    )
    assert [each.gpus for each in hosts()] == gpus
    assert run("add", "node1", "--no-check", "--folder", "~/env") == COMPLETED
    assert [each.folder for each in hosts()] == ["~/env"]
    assert [each.gpus for each in hosts()] == (gpus or [None]), "other values are kept"
