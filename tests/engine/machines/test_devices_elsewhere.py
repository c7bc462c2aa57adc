"""Devices of other machines in a job, the list of hosts, and paths on other machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from engine.checks import node_checks
from engine.checks.job_checks import problems
from engine.checks.node_checks import digest_inputs, host_problems, machine_problems, versions
from engine.checks.torch_support import TorchBuild
from engine.cli.arguments import needs_gpus, resolve_devices
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Cpu, Gpu, Nvml, Snapshot, host_of, is_gpu, local_device
from engine.contract.hosts import Host, host, hosts, put_host, read_hosts, remove_host
from engine.contract.job import Job
from engine.contract.nodes import ConnectionTest, ConnectionTestResult, NodeFacts
from engine.contract.worker import WorkerSpec
from engine.machines import addresses, connection_test, host_checks
from engine.machines.connection_test import _test_exchange
from engine.machines.host_checks import CheckedHost, check_connections
from engine.machines.transfer import is_inside
from engine.system import paths
from engine.system.plugins import installed_versions
from tests.engine.checks.machines import gpu, machine


@pytest.mark.parametrize(
    ("device", "where", "what"),
    [
        ("cpu", "", "cpu"),
        ("node1:cpu", "node1", "cpu"),
        ("a@fe80::1:GPU-7", "a@fe80::1", "GPU-7"),
        ("GPU-7", "", "GPU-7"),
    ],
)
def test_device_name_contains_machine(device: str, where: str, what: str) -> None:
    assert (host_of(device), local_device(device), is_gpu(device)) == (where, what, what != "cpu")


def test_worker_indexes_devices_of_its_machine() -> None:
    devices = ("node1:GPU-a", "node1:GPU-b", "node2:GPU-c", "node2:GPU-d")
    specs = [
        WorkerSpec(run_folder="", job=Job(), rank=rank, world_size=4, devices=devices, rendezvous="", threads=1)
        for rank in range(4)
    ]
    assert [spec.device_index for spec in specs] == [0, 1, 0, 1]
    assert specs[3].local_devices == ("GPU-c", "GPU-d")


def test_resolve_devices_groups_machines_and_finds_uuids() -> None:
    cpu = Cpu(name="c", core_load_percent=(), load_percent=0.0, memory_used_bytes=0, memory_total_bytes=1)
    here = Snapshot(
        time=0.0, host="h", nvml=Nvml("ok"), cpu=cpu, gpus=(Gpu(uuid="GPU-h", name="x", nvml_index=0, cuda_index=0),)
    )
    remote = {
        name: msgspec.structs.replace(here, gpus=(Gpu(uuid=f"GPU-{name}", name="x", nvml_index=0, cuda_index=0),))
        for name in ("node1", "node2")
    }
    values: dict[str, Any] = {"devices": ["node1:cuda:0", "cuda:0", "node2:0", "node1:GPU-x"]}
    assert needs_gpus(values)
    assert needs_gpus({"devices": ["node1:0"]})
    assert resolve_devices(values, here, remote.__getitem__) == []
    assert values["devices"] == ["node1:GPU-node1", "node1:GPU-x", "GPU-h", "node2:GPU-node2"]
    assert not needs_gpus({"devices": ["node1:cpu", "cpu", "node1:GPU-x"]})

    def unreachable(name: str) -> Snapshot:
        if name == "node1":
            raise OSError("node1 has not answered.")
        return remote[name]

    values = {"devices": ["node1:0", "node2:0", "cpu"]}
    assert [problem.message for problem in resolve_devices(values, here, unreachable)] == ["node1 has not answered."]
    assert values["devices"] == ["node2:GPU-node2", "cpu"]
    [problem] = resolve_devices({"devices": ["node2:3"]}, here, remote.__getitem__)
    assert problem.message == "CUDA finds no GPU 3 on node2."


def test_damaged_host_list_is_not_overwritten() -> None:
    put_host(Host(name="node1", port=30000))
    put_host(Host(name="node2"))
    put_host(Host(name="node1", folder="~/venv"))
    assert [one.name for one in hosts()] == ["node1", "node2"]
    assert host("node1") == Host(name="node1", folder="~/venv")
    assert hosts()[0].command("node") == ["venv/bin/footplate", "node"]
    assert remove_host("node1")
    assert not remove_host("node1")
    assert hosts() == (Host(name="node2"),)
    assert (host("node1"), host("")) == (None, Host(name=""))
    put_host(Host(name="", address="10.0.0.7"))
    assert host("") == Host(name="", address="10.0.0.7")
    assert [remove_host(name) for name in ("node2", "", "")] == [True, True, False]
    assert hosts() == ()
    file = paths.home() / "hosts.toml"
    for damaged in ("host = 3", '[[host]]\nname = "-oProxyCommand=x"', "[["):
        file.write_text(damaged)
        found, problem = read_hosts()
        assert (found, problem is None) == ((), False)
        with pytest.raises(OSError, match=r"hosts\.toml"):
            put_host(Host(name="node3"))
        assert file.read_text() == damaged
    file.unlink()
    file.mkdir()
    assert read_hosts()[0] == ()
    assert read_hosts()[1] is not None


@pytest.mark.parametrize(
    ("values", "field"),
    [({"name": "a b"}, "name"), ({"name": "a", "destination": "-x"}, "ssh"), ({"name": "a", "address": "-h"}, "address"),
     ({"name": "a", "folder": "venv"}, "folder"), ({"name": "a", "folder": "~ada/venv"}, "folder"), ({"name": "a", "folder": "/venv\nreboot"}, "folder"), ({"name": "a", "environment": ("A=1", "-S")}, "environment"),
     ({"name": "a", "environment": ("A=1\nB=2",)}, "environment")],
)  # fmt: skip
def test_host_problems_reject_values_unsafe_for_ssh(values: dict[str, Any], field: str) -> None:
    assert [problem.field for problem in Host(**values).problems()] == [field]


def test_host_problems_of_job() -> None:
    for name in ("node1", "node2"):
        put_host(Host(name=name))
    catalogue = load_catalogue()

    def find_problems(devices: tuple[str, ...], strategy: str = "ddp", **fields: Any) -> list[str]:
        job = Job.from_fields(devices=devices, strategy=strategy, **fields)
        return [f"{problem.field} {problem.severity}" for problem in host_problems(job, catalogue.strategy(strategy))]

    assert find_problems(("node1:cpu", "node2:cpu")) == []
    assert find_problems(("slurm:1:gpu0", "slurm:2:gpu0")) == []
    assert find_problems(("node1:cpu", "node3:cpu")) == ["devices error"]
    assert find_problems(("node1:cpu", "node2:cpu", "node1:cpu")) == ["devices error"]
    assert find_problems(("node1:cpu", "node2:cpu"), "dp") == ["strategy error"]
    elsewhere = Job.from_fields(devices=("node1:GPU-x", "node2:GPU-x"), strategy="ddp")
    assert not any("on this machine" in problem.message for problem in problems(elsewhere, catalogue, machine(gpu(0))))
    two = ("node1:cpu", "node1:cpu", "node2:cpu", "node2:cpu")
    assert find_problems(two, "hsdp", replicas=2) == []
    crossing = ("node1:cpu",) * 3 + ("node2:cpu",) * 3
    assert find_problems(crossing, "hsdp", replicas=3) == ["replicas warning"]


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a" / "1.png").write_bytes(b"22"),
        lambda folder: (folder / "a" / "2.png").write_bytes(b""),
        lambda folder: (folder / "a" / "1.png").unlink(),
        lambda folder: (folder / "a").rename(folder / "b"),
    ],
    ids=["size", "added", "removed", "moved"],
)
def test_differences_find_other_dataset(tmp_path: Path, change: Callable[[Path], object]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"1")
    (tmp_path / "a" / "above").symlink_to(tmp_path)
    inputs = digest_inputs(Job.from_fields(dataset=str(tmp_path)))
    assert (inputs["dataset"].files, inputs["dataset"].size_bytes) == (1, 1)
    facts = NodeFacts(versions={}, inputs=inputs, time=0.0, free_bytes=1)
    assert machine_problems(facts, "node1", inputs, facts, "this machine") == []
    (tmp_path / "a" / "2.txt").touch()
    with pytest.MonkeyPatch.context() as patch:
        scandir, files = os.scandir, digest_inputs(Job.from_fields(dataset=str(tmp_path)))
        patch.setattr(os, "scandir", lambda folder: reversed(list(scandir(folder))))
        assert digest_inputs(Job.from_fields(dataset=str(tmp_path))) == files, "in any order of the disk"
    (tmp_path / "a" / "2.txt").unlink()
    change(tmp_path)
    [problem] = machine_problems(
        facts, "node1", digest_inputs(Job.from_fields(dataset=str(tmp_path))), facts, "this machine"
    )
    assert (problem.field, "different dataset: 1 file of 1 byte, " in problem.message) == ("dataset", True)
    absent = msgspec.structs.replace(facts, inputs={})
    [problem] = machine_problems(absent, "node1", inputs, facts, "this machine")
    assert problem.field == "dataset"


def test_differences_find_other_and_missing_files(tmp_path: Path) -> None:
    model, weights = tmp_path / "net.py", tmp_path / "net.pt"
    model.write_bytes(b"net")
    weights.write_bytes(b"1234")
    job = Job.from_fields(dataset="", model=str(model), weights_file=str(weights))
    inputs = digest_inputs(job)
    sizes = {field: (digest.files, digest.size_bytes) for field, digest in inputs.items()}
    assert sizes == {"model": (1, 3), "weights_file": (1, 4)}
    facts = NodeFacts(versions={}, inputs=inputs, time=0.0, free_bytes=1)
    weights.write_bytes(b"4321")
    [problem] = machine_problems(facts, "node1", digest_inputs(job), facts, "this machine")
    assert (problem.field, "a different file of the job's weights_file" in problem.message) == ("weights_file", True)
    model.unlink()
    assert digest_inputs(job)["model"].files == 0


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "", "a/../../b", "a\0b"])
def test_is_inside_rejects_paths_outside_of_run_folder(path: str) -> None:
    assert not is_inside(path)
    assert is_inside("checkpoints/last.pt")


@pytest.mark.parametrize(
    ("address", "infiniband", "expected"),
    [
        ("127.0.0.1", True, {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_IB_DISABLE": None}),
        ("127.0.0.1", False, {"NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_IB_DISABLE": "1"}),
        ("::1", True, {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET6"}),
    ],
)
def test_collectives_use_chosen_interface(
    monkeypatch: pytest.MonkeyPatch, address: str, infiniband: bool, expected: dict[str, str | None]
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_DISABLE"):
        monkeypatch.setenv(name, "")  # monkeypatch then restores the variable
        monkeypatch.delenv(name)
    try:
        addresses.bind_collectives(address, infiniband=infiniband)
    except ValueError as error:
        pytest.skip(str(error))
    assert {name: os.environ.get(name) for name in expected} == expected
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    addresses.bind_collectives(address, infiniband=infiniband)
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7"


def test_versions_cover_packages_that_runs_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "plugin_packages", lambda: ["pytest"])
    monkeypatch.setattr(node_checks, "find_installed_torch", lambda: TorchBuild("2.15.0", cuda="13.0"))
    monkeypatch.setattr(metadata, "distributions", lambda: [SimpleNamespace(name="nvidia-nccl-cu13", version="2.30")])
    packages = {"torch", "torchvision", "timm", "segmentation-models-pytorch", "numpy", "pillow", "pytest"}
    found = versions()
    assert packages | installed_versions(["transformers", "tifffile"]).keys() <= set(found)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (found["python"], found["torch"], found["nccl"]) == (python, "2.15.0", "2.30")


@pytest.mark.parametrize(
    ("package", "installed", "differs"),
    [("timm", "1", True), ("timm", None, True), ("transformers", "1", True), ("transformers", None, False)],
)
def test_differences_require_equal_versions(package: str, installed: str | None, differs: bool) -> None:
    reference = NodeFacts(versions={package: "2"}, inputs={}, time=0.0, free_bytes=1)
    facts = msgspec.structs.replace(reference, versions={} if installed is None else {package: installed})
    assert bool(machine_problems(facts, "node1", {}, reference, "this machine")) == differs
    assert machine_problems(reference, "node1", {}, reference, "this machine") == []


def test_machines_connect_over_gloo() -> None:
    facts = NodeFacts(versions={}, inputs={}, time=0.0, free_bytes=1, address="127.0.0.1")
    machines = [CheckedHost(Host(name="", port=port), facts, 0.0, []) for port in (34400, 34420)]
    assert check_connections(machines) == []
    elsewhere = msgspec.structs.replace(facts, address="192.0.2.1")
    [problem] = check_connections([machines[0], CheckedHost(Host(name=""), elsewhere, 0.0, [])])
    assert "192.0.2.1" in problem.message


def test_machines_are_tested_in_separate_pairs() -> None:
    from torch.distributed import HashStore

    store = HashStore()
    requests = [ConnectionTest(rank=rank, ranks=3, backend="gloo", port=0) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(partial(_test_exchange, store), requests)) == ["", "", ""]


def test_machine_is_tested_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[ConnectionTestResult] = []

    def write_all(_output: object, line: bytes) -> None:
        results.append(msgspec.json.decode(line, type=ConnectionTestResult))

    with addresses.listen("127.0.0.1", 34480) as listener:
        closed_port = listener.getsockname()[1]
    requests = (
        ConnectionTest(rank=1, ranks=2, backend="gloo", address="127.0.0.1", port=closed_port),
        ConnectionTest(ranks=1, backend="gloo", port=34480),
    )
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=map(msgspec.json.encode, requests)))
    monkeypatch.setattr(connection_test, "_STORE_TIMEOUT", timedelta(seconds=0.1))
    for name, value in (("write_all", write_all), ("os", Mock()), ("bind_collectives", Mock()), ("exit_now", Mock())):
        monkeypatch.setattr(connection_test, name, value)
    connection_test.serve("127.0.0.1", infiniband=True)
    assert [bool(result.problem) for result in results] == [False, True, False, False]
    assert (results[2].port > 0, results[3].has_connected) == (True, True)


def test_silent_machine_fails_connection_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_TIMEOUT_S", 0.3)
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    monkeypatch.setattr(host_checks, "command_on", lambda _host, *_arguments: silent)
    facts = NodeFacts(versions={}, inputs={}, time=0.0, free_bytes=1, address="127.0.0.1")
    problems = check_connections([CheckedHost(Host(name=name), facts, 0.0, []) for name in ("node1", "node2")])
    assert [problem.message.partition(":")[0] for problem in problems] == ["node1", "node2"]
