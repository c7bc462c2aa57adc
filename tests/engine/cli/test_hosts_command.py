"""``footplate hosts`` without a connection to the machines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from engine.cli import hosts as hosts_command
from engine.cli.main import create_parser, main
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
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    facts: NodeFacts | None,
    *,
    problems: list[Problem],
    code: int,
    gpus: list[int],
) -> None:
    def check(checked: Sequence[Host]) -> list[CheckedHost]:
        assert [each.gpus for each in checked] == [None]
        return [CheckedHost(each, facts, 0.0, list(problems)) for each in checked]

    monkeypatch.setattr(host_checks, "check_hosts", check)
    assert run("add", "node1", "--ssh", "anna@10.0.0.8", "--port", "30000") == code
    assert capsys.readouterr().err.count("Its torch differs.") == len(problems)
    assert [(each.name, each.destination, each.port) for each in hosts()] == [("node1", "anna@10.0.0.8", 30000)] * len(
        gpus
    )
    assert run("add", "node1") == code
    assert [each.gpus for each in hosts()] == gpus
    assert run("add", "node1", "--no-check", "--folder", "~/env") == COMPLETED
    assert [each.folder for each in hosts()] == ["~/env"]
    assert run("add", "node1", "--no-check", "--folder", "") == COMPLETED
    assert [each.folder for each in hosts()] == [""]
    assert [each.gpus for each in hosts()] == (gpus or [None]), "other values are kept"


def test_list_is_empty_valid_or_damaged(capsys: pytest.CaptureFixture[str], separate_home: Path) -> None:
    for arguments in ((), ("check",)):
        assert run(*arguments) == COMPLETED
        assert capsys.readouterr().out == "No machines are listed. Add one with `footplate hosts add NAME`.\n"
    put_host(Host(name="node1"))
    put_host(Host(name="node2", port=30000, gpus=0))
    assert run() == COMPLETED
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["GPUS", "–", "0"]
    assert run("--json") == COMPLETED
    decoded = [msgspec.json.decode(line, type=Host) for line in capsys.readouterr().out.splitlines()]
    assert decoded == [Host(name="node1"), Host(name="node2", port=30000, gpus=0)]
    assert run("add", ".", "--no-check") == COMPLETED
    assert [each.name for each in hosts()] == ["node1", "node2", ""]
    assert run("remove", ".") == COMPLETED
    assert capsys.readouterr().out == "Added this machine, unchecked.\nRemoved this machine.\n"
    (separate_home / "hosts.toml").write_text("[[")
    assert [run(), run("check"), run("remove", "node1")] == [BAD_REQUEST] * 3
    assert capsys.readouterr().err.count("Correct or remove the file.") == 3


def test_list_that_cannot_be_written_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_new: Host) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hosts_command, "put_host", refuse)
    assert run("add", "node1", "--no-check") == BAD_REQUEST
    message = "The list can't be written: [Errno 28] No space left on device."
    assert capsys.readouterr() == ("", f"footplate: {message}\n  Check FOOTPLATE_HOME.\n")


@pytest.mark.parametrize(
    ("flags", "function", "given"),
    [
        ("", "node.serve", ()),
        ("--slurm a", "slurm.supervise_slurm", (Path("a"),)),
        ("--facts --dataset d --address 10.0.0.2", "probe.print_facts", ("d", "10.0.0.2")),
        ("--facts", "probe.print_facts", ("", "")),
        ("--test-connections --address 10.0.0.2", "connection_test.serve", ("10.0.0.2", True)),
        ("--test-connections --no-infiniband", "connection_test.serve", ("", False)),
        ("--relay r", "relay.relay", ("r",)),
        ("--files r", "fetch.list_files", ("r",)),
        ("--send r", "fetch.send_files", ("r",)),
        ("--exchange r", "files.exchange", ("r",)),
    ],
)
def test_node_carries_out_the_requested_action(
    flags: str, function: str, given: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[object, ...]] = []

    def act(*arguments: object, **options: object) -> int:
        called.append((*arguments, *options.values()))
        return 7

    monkeypatch.setattr(f"engine.machines.{function}", act)
    assert main(["node", *flags.split()]) == 7
    assert called == [given]


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
        unknown = msgspec.structs.replace(FACTS, driver="", address="")
        return [CheckedHost(each, FACTS if each.name == "node1" else unknown, -0.5, []) for each in machines]

    monkeypatch.setattr(host_checks, "check_hosts", check)
    monkeypatch.setattr(host_checks, "check_connections", lambda _checked: connections)
    for name in ("node1", "node2"):
        put_host(Host(name=name))
    assert run("check", *arguments) == code
    assert found == [(name, arguments[-1] if "--dataset" in arguments else "") for name in checked]
    out, err = capsys.readouterr()
    lines: list[str] = []
    for name in checked:
        driver, address = (", driver 580.1", "10.0.0.9") if name == "node1" else ("", "unknown")
        lines += [
            f"{name}: 2 GPUs{driver}; timm 1.0, torch 2.9; 5.0 GiB free; clock -0.5 s; address {address}, port 29400",
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
