"""``footplate hosts`` without a connection to the machines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from engine.cli import hosts as hosts_command
from engine.cli.main import create_parser
from engine.cli.terminal import BAD_REQUEST, COMPLETED
from engine.contract.hosts import Host, hosts, put_host
from engine.contract.nodes import DatasetDigest, NodeFacts
from engine.contract.problems import Problem
from engine.machines import host_checks
from engine.machines.host_checks import CheckedHost
from engine.machines.install import FOLDER, InstallFailed

FACTS = NodeFacts(
    versions={"torch": "2.9", "timm": "1.0"}, inputs={"dataset": DatasetDigest(files=3, size_bytes=2048, names="abcdefghi")},
    time=0.0, free_bytes=5 << 30, gpus=("GPU-a", "GPU-b"), driver="580.1", address="10.0.0.9",
)  # fmt: skip
WRONG = Problem("hosts", "Its torch differs.", "Install the same.")


def run(*arguments: str) -> int:
    options = create_parser().parse_args(["hosts", *arguments])
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


WARNING = msgspec.structs.replace(WRONG, severity="warning")


@pytest.mark.parametrize(
    ("arguments", "connections", "code", "checked"),
    [
        ((), [], COMPLETED, ["node1", "node2"]),
        (("node2", "--dataset", "~"), [], COMPLETED, ["node2"]),
        ((), [WRONG], BAD_REQUEST, ["node1", "node2"]),
        ((), [WARNING], COMPLETED, ["node1", "node2"]),
        (("node2", "node3"), [], BAD_REQUEST, []),
        (("--dataset", "/nowhere"), [], BAD_REQUEST, []),
    ],
)
def test_listed_machines_are_checked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    *,
    connections: list[Problem],
    code: int,
    checked: list[str],
) -> None:
    found: list[tuple[str, str]] = []

    def check(machines: Sequence[Host], dataset: str) -> list[CheckedHost]:
        found.extend((each.name, dataset) for each in machines)
        return [CheckedHost(each, FACTS, -0.5, []) for each in machines]

    monkeypatch.setattr(host_checks, "check_hosts", check)
    monkeypatch.setattr(host_checks, "check_connections", lambda _checked: connections)
    for name in ("node1", "node2"):
        put_host(Host(name=name))
    assert run("check", *arguments) == code
    assert found == [(name, arguments[-1] if "--dataset" in arguments else "") for name in checked]
    out, err = capsys.readouterr()
    lines: list[str] = []
    for name in checked:
        lines += [
            f"{name}: 2 GPUs, driver 580.1; timm 1.0, torch 2.9; 5.0 GiB free; clock -0.5 s; address 10.0.0.9, port 29400",
            "  dataset: 3 files, 2.0 KiB, digest abcdefgh",
        ]
    if checked and not connections:
        lines.append("These machines can train together.")
    assert out.splitlines() == lines
    assert [line for line in err.splitlines() if "torch" in line] == [
        f"footplate: {'warning: ' * (problem is WARNING)}{problem.message}" for problem in connections
    ]


def test_footplate_is_installed_before_the_machine_is_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed: list[str] = []

    def install(machine: Host, wheel: Path) -> None:
        installed.append(machine.name)
        if wheel.name == "torn.whl":
            raise InstallFailed("It is torn.")

    monkeypatch.setattr(hosts_command, "install", install)
    flags = ("--yes", "--no-check", "--install")
    assert run("add", "node1", *flags, "torn.whl") == BAD_REQUEST
    assert run("add", "node1", "--port", "7", *flags, "good.whl") == BAD_REQUEST
    assert (hosts(), installed) == ((), ["node1"])
    assert run("add", "node1", *flags, "good.whl") == COMPLETED
    assert run("add", "node2", "--folder", "~/env", *flags, "good.whl") == COMPLETED
    assert [each.folder for each in hosts()] == [f"~/{FOLDER}", "~/env"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\nYes\n"))
    assert run("add", "node3", "--no-check", "--install", "good.whl") == BAD_REQUEST
    assert run("add", "node3", "--no-check", "--install", "good.whl") == COMPLETED
    assert installed == ["node1", "node1", "node2", "node3"]
    assert [run("remove", name) for name in ("node3", "node1", "node1")] == [COMPLETED, COMPLETED, BAD_REQUEST]
    assert [each.name for each in hosts()] == ["node2"]
