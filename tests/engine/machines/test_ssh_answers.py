"""Facts about a machine, and checks and copies of files through a stand-in for ssh."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.checks.node_checks import versions
from engine.cli import children
from engine.contract.devices import Nvml, Snapshot
from engine.contract.hosts import Host, put_host
from engine.contract.job import Job
from engine.contract.nodes import ConnectionTest, FetchProgress, NodeFacts, RunFile
from engine.contract.problems import Problem
from engine.contract.protocol import ENCODE
from engine.machines import fetch as fetch_module
from engine.machines import host_checks, probe
from engine.machines.host_checks import MIN_FREE_BYTES, CheckedHost, check_connections, check_hosts
from engine.machines.install import FOLDER, InstallFailed, install
from engine.runs.folder import create_run
from tests.engine.checks.machines import gpu, machine
from tests.support.clock import Clock
from tests.support.scripts import write_script

SetSsh = Callable[[str], None]


@pytest.fixture
def set_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetSsh:
    """Return a function that replaces ssh by a shell script. The clock of this machine stands still."""
    monkeypatch.setattr(host_checks, "time", Clock(1000.0))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "bin").mkdir()

    return partial(write_script, tmp_path / "bin/ssh")


@pytest.mark.parametrize(
    ("facts", "gpus", "messages"),
    [
        ({}, None, []),
        ({"time": 1002.0, "gpus": ("a", "b"), "free_bytes": MIN_FREE_BYTES}, 2, []),
        ({"time": 998.0}, 0, []),
        ({"time": 1012.6}, None, ["The clock of node1 is 13 s ahead."]),
        ({"time": 995.0}, None, ["The clock of node1 is 5 s behind."]),
        ({"free_bytes": MIN_FREE_BYTES // 2}, None, ["node1 has 1.0 GiB left on its disk."]),
        ({"gpus": ("a",)}, 2, ["node1 had 2 GPUs, and has 1 now."]),
        ({"gpus": ("a",)}, 0, ["node1 had 0 GPUs, and has 1 now."]),
    ],
)
def test_warnings_about_a_machine(
    set_ssh: SetSsh, tmp_path: Path, facts: dict[str, Any], gpus: int | None, messages: list[str]
) -> None:
    values = {"versions": versions(), "inputs": {}, "time": 1000.0, "free_bytes": 1 << 40} | facts
    (tmp_path / "facts").write_bytes(ENCODE.encode(NodeFacts(**values)))
    set_ssh(f'echo "$@" > {tmp_path}/words; exec cat {tmp_path}/facts')
    (checked,) = check_hosts([Host(name="node1", address="10.0.0.8", gpus=gpus)])
    assert checked.facts == NodeFacts(**values)
    assert checked.clock_offset_s == values["time"] - 1000.0
    assert [(each.message, each.severity, bool(each.remedy)) for each in checked.problems] == [
        (message, "warning", True) for message in messages
    ]
    assert (tmp_path / "words").read_text().endswith("-- node1 footplate node --facts --address 10.0.0.8\n")


def test_host_check_explains_missing_facts(set_ssh: SetSsh, monkeypatch: pytest.MonkeyPatch) -> None:
    set_ssh('echo "node1: Permission denied (publickey)." >&2; exit 255')
    (checked,) = check_hosts([Host(name="node1")])
    (problem,) = checked.problems
    assert (checked.facts, problem.field, problem.severity) == (None, "hosts", "error")
    assert problem.message.startswith("node1 ")
    set_ssh("exit 127")
    assert "Footplate was not found on node1" in check_hosts([Host(name="node1")])[0].problems[0].message
    set_ssh("exec sleep 60")
    monkeypatch.setattr(host_checks, "_TIMEOUT_S", 0.2)
    (checked,) = check_hosts([Host(name="node1")])
    assert checked.problems[0].message == "node1 has not answered within 0 s."
    monkeypatch.setenv("PATH", "/nowhere")
    (checked,) = check_hosts([Host(name="node1")])
    assert checked.problems[0].message == "node1 can't be checked: No such file or directory."


def run_fetch(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], host_name: str, path: str
) -> list[FetchProgress]:
    monkeypatch.setattr(sys, "argv", ["fetch", host_name, "some-run", path])
    assert fetch_module.main() == 0
    return [msgspec.json.decode(line, type=FetchProgress) for line in capfd.readouterr().out.splitlines()]


def test_fetched_file_is_stored_in_the_mirror(
    set_ssh: SetSsh, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_id = "20260101-000000-net-abcd"
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote/a.log").write_text("last words" * 300_000)
    serve = f"from pathlib import Path; from engine.machines.transfer import serve; serve(Path('{tmp_path}/remote'), '{run_id}')"
    set_ssh(f'echo "$@" > {tmp_path}/words; exec {sys.executable} -c "{serve}"')
    put_host(Host(name="node1"))
    *progress, last = run_fetch(monkeypatch, capfd, "node1", "a.log")
    assert progress[-1] == FetchProgress(done_bytes=3_000_000, total_bytes=3_000_000)
    assert Path(last.path).read_text() == "last words" * 300_000
    assert Path(last.path).parts[-4:] == ("remote", "node1", run_id, "a.log")
    assert os.listdir(Path(last.path).parent) == ["a.log"]
    assert (tmp_path / "words").read_text().endswith("-- node1 footplate node --send some-run\n")
    (refused,) = run_fetch(monkeypatch, capfd, "node1", "b.log")
    assert refused == FetchProgress(problem="node1: No such file or directory.")


def test_file_that_is_not_fetched_has_a_reason(
    set_ssh: SetSsh, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    set_ssh("exit 127")
    put_host(Host(name="node1"))
    for host_name, path, reason in (
        ("node1", "../a.log", "../a.log is not a file of the run's folder."),
        ("node2", "a.log", "node2 is not among your hosts."),
        ("node1", "a.log", "Footplate was not found on node1."),
    ):
        (result,) = run_fetch(monkeypatch, capfd, host_name, path)
        assert result.problem.startswith(reason)


def test_listed_files_are_those_that_can_be_sent(capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run(Job())
    run.checkpoints.mkdir(exist_ok=True)
    for name in ("checkpoints/last.pt", "checkpoints/.last.pt", "worker-0.log", "worker-0-traceback.txt", "job.txt"):
        (run.path / name).write_text(name)
    assert fetch_module.list_files(run.run_id) == 0
    listed = [msgspec.json.decode(line, type=RunFile) for line in capsys.readouterr().out.splitlines()]
    assert listed == [
        RunFile(run_id=run.run_id, path=name, size_bytes=len(name))
        for name in ("checkpoints/last.pt", "worker-0.log", "worker-0-traceback.txt")
    ]
    assert (fetch_module.list_files("nothing"), fetch_module.send_files("nothing")) == (1, 1)
    assert capsys.readouterr() == ("", "There is no run “nothing”.\n")


PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > "$HOME/words"; cp "$6" "$HOME/installed"\\n' > "$3/bin/python"
chmod 700 "$3/bin/python"
"""
"""Stand-in for python3 that creates an environment, whose Python records the arguments and copies the wheel."""


def test_wheel_is_installed_on_another_machine(set_ssh: SetSsh, tmp_path: Path) -> None:
    set_ssh(f'while [ "$1" != node1 ]; do shift; done; shift; export HOME={tmp_path}; exec sh -c "$*"')
    (tmp_path / "bin/python3").write_text(PYTHON)
    (tmp_path / "bin/python3").chmod(0o700)
    wheel = tmp_path / "footplate-1.0-py3-none-any.whl"
    wheel.write_bytes(b"content")
    install(Host(name="node1"), wheel)
    folder = tmp_path / FOLDER
    copied = folder.parent / wheel.name
    assert (tmp_path / "words").read_text() == f"-m pip install --quiet --upgrade {copied}\n"
    assert (tmp_path / "installed").read_bytes() == b"content"
    assert os.listdir(folder.parent) == [folder.name]


@pytest.mark.parametrize(
    ("script", "wheel", "reason"),
    [
        ("", "other-1.0.whl", "is not a wheel of Footplate"),
        ("", "footplate-2.0.whl", "can't be read: No such file or directory"),
        ("echo first >&2; echo no space >&2; exit 1", "footplate-1.0.whl", "installed on node1: no space."),
        ("exit 1", "footplate-1.0.whl", "installed on node1: no reason given."),
        (
            "echo 'node1: Permission denied (publickey).' >&2; exit 255",
            "footplate-1.0.whl",
            "installed on node1: node1 ",
        ),
    ],
)
def test_failed_installation_has_a_reason(
    set_ssh: SetSsh, tmp_path: Path, script: str, wheel: str, reason: str
) -> None:
    set_ssh(script)
    (tmp_path / "footplate-1.0.whl").touch()
    with pytest.raises(InstallFailed, match=re.escape(reason)):
        install(Host(name="node1"), tmp_path / wheel)


def test_devices_of_another_machine_are_read(set_ssh: SetSsh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = machine()
    (tmp_path / "state").write_bytes(ENCODE.encode(state))
    put_host(Host(name="node1"))
    set_ssh(f'echo "$@" > {tmp_path}/words; exec cat {tmp_path}/state')
    assert children.read_remote_snapshot("node1") == state
    assert (tmp_path / "words").read_text().endswith("-- node1 footplate gpus --json\n")
    monkeypatch.setattr(children, "_ANSWER_S", 0.2)
    for name, script, reason in (
        ("node2", "", "node2 is not among your hosts."),
        ("node1", "exit 127", "Footplate was not found on node1"),
        ("node1", "echo 'kex: no match' >&2; exit 255", "kex: no match"),
        ("node1", "exec sleep 60", "node1 has not answered within 0 s."),
    ):
        set_ssh(script)
        with pytest.raises(OSError, match=reason):
            children.read_remote_snapshot(name)


def read_facts(capfd: pytest.CaptureFixture[str], dataset: str, address: str) -> NodeFacts:
    assert probe.print_facts(dataset, address) == 0
    return msgspec.json.decode(capfd.readouterr().out, type=NodeFacts)


def test_facts_are_those_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.9 50022 127.0.0.1 22")
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "not/created/yet"))
    state = machine(gpu(0, name="First"), gpu(1, name="Second"), nvml=Nvml("ok", driver_version="580.1"))
    monkeypatch.setattr(probe, "snapshot", lambda: state)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.png").write_bytes(b"1234")
    facts = read_facts(capfd, str(tmp_path / "data"), "")
    assert (facts.address, facts.client_address, facts.problem) == ("127.0.0.1", "192.0.2.9", "")
    assert (facts.gpus, facts.driver, facts.versions) == (("First", "Second"), "580.1", versions())
    assert (facts.inputs["dataset"].files, facts.inputs["dataset"].size_bytes) == (1, 4)
    assert facts.time == pytest.approx(time.time(), abs=60)
    assert facts.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)

    def fail() -> Snapshot:
        raise OSError("no sampler")

    monkeypatch.setattr(probe, "snapshot", fail)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.9 50022 192.0.2.8 22")
    facts = read_facts(capfd, "", "127.0.0.1")
    assert (facts.address, facts.inputs, facts.gpus, facts.driver) == ("127.0.0.1", {}, (), "")
    assert facts.problem == "Its devices could not be read: no sampler"
    monkeypatch.delenv("SSH_CONNECTION")
    facts = read_facts(capfd, "", "192.0.2.1")
    assert facts.address == "192.0.2.1"
    assert facts.problem.startswith("No interface has the address 192.0.2.1;")


ANSWERS = """
for word; do case $word in m[123]) name=$word;; esac; done
echo "$@" >> FOLDER/words
echo '{}'
while read -r line; do
  echo "$line" >> FOLDER/$name
  case $line in
    *'"address":"10.'*) CONNECTED;;
    *) echo 'OPENED'; echo 'RESULT';;
  esac
done
touch FOLDER/$name.end
"""


@pytest.mark.parametrize("gpus", [("a",), ()])
def test_all_machines_connect_to_each_other(set_ssh: SetSsh, tmp_path: Path, gpus: tuple[str, ...]) -> None:
    def check(
        opened: str,
        result: str = '{"has_connected":true}',
        connected: str = """echo '{"has_connected":true}'""",
    ) -> list[Problem]:
        script = ANSWERS.replace("FOLDER", str(tmp_path)).replace("OPENED", opened)
        set_ssh(script.replace("RESULT", result).replace("CONNECTED", connected))
        facts = NodeFacts(versions={}, inputs={}, time=0.0, free_bytes=1)
        return check_connections([
            CheckedHost(
                Host(name=f"m{number}", port=3000 + number),
                msgspec.structs.replace(
                    facts, address=f"10.0.0.{number}", gpus=("a",) if number < 3 else gpus,
                    infiniband=number < 3 or bool(gpus),
                ), 0.0, [],
            )
            for number in (1, 2, 3)
        ])  # fmt: skip

    assert check('{"port":1234}') == []
    commands = (tmp_path / "words").read_text().splitlines()
    assert [command.endswith("--no-infiniband") for command in commands] == [not gpus] * 3
    assert len(list(tmp_path.glob("m?.end"))) == 3, "the processes exit by themselves"
    first = [msgspec.json.decode(line, type=ConnectionTest) for line in (tmp_path / "m1").read_text().splitlines()]
    last = [msgspec.json.decode(line, type=ConnectionTest) for line in (tmp_path / "m3").read_text().splitlines()]
    assert [(each.backend, each.address, each.rank, each.ranks) for each in first] == [
        ("gloo", "", 0, 3), ("gloo", "10.0.0.2", 1, 3), ("gloo", "10.0.0.3", 1, 3), *[("nccl", "", 0, 3)] * len(gpus)
    ]  # fmt: skip
    assert [(each.backend, each.address, each.rank, each.port) for each in last] == [
        ("gloo", "10.0.0.1", 2, 1234), ("gloo", "10.0.0.2", 2, 1234), ("gloo", "", 0, 3003),
        *[("nccl", "10.0.0.1", 2, 1234)] * len(gpus),
    ]  # fmt: skip
    problems = check('{"problem":"the ports are in use"}')
    assert [problem.message.partition(":")[0] for problem in problems] == ["m1", "m2", "m3"]
    assert all("--port" in problem.remedy for problem in problems)
    problems = check('{"port":1234}', '{"has_connected":true,"problem":"it timed out"}')
    assert [problem.message.partition(" reaches ")[0] for problem in problems] == ["m1", "m2", "m3"]
    refused = check('{"port":1234}', connected="""echo '{"problem":"refused"}'""")
    assert refused[0].message == "m2 does not reach m1 at 10.0.0.1, port 1234: refused."
    assert refused[0].remedy.endswith("`footplate hosts add m1 --address`.")
    assert "m2 reaches m1 at port 1234, but " in check('{"port":1234}', connected="exit")[0].message
