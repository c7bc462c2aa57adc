"""`footplate hosts` with simulated machines."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.engine.machines.conftest import SimulatedMachines, events_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def test_hosts_check_accepts_equal_machines(bed: SimulatedMachines) -> None:
    done = bed.footplate("hosts", "check", "--dataset", str(bed.images))
    assert done.returncode == 0, done.stderr
    assert "These machines can train together." in done.stdout
    for name in bed.names:
        assert re.search(rf"^{name}: 0 GPUs; .*\bfootplate \d", done.stdout, re.MULTILINE), done.stdout
        assert f"address {bed.address(name)}, port 29400" in done.stdout
    assert "dataset: 93 files" in done.stdout
    assert bed.list_leftovers() == []


def test_hosts_check_reports_all_differences(bed: SimulatedMachines, tmp_path: Path) -> None:
    other = shutil.copytree(bed.images, tmp_path / "other")
    next((other / "train" / "red").iterdir()).unlink()
    package = tmp_path / "packages" / "footplate-9.9.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: footplate\nVersion: 9.9\n")
    root = Path(__file__).parents[3]
    bed.reboot("node2", over=(other, bed.images), PYTHONPATH=f"{package.parent}:{root}")
    bed.block_traffic("node1", "node2")
    try:
        done = bed.footplate("hosts", "check", "--dataset", str(bed.images))
        assert done.returncode == 2
        assert "node2 has Footplate 9.9, and this machine" in done.stderr
        assert "node2 has a different dataset: 92 files" in done.stderr
        assert "node1 does not reach node2 at 10.77.0.12" in done.stderr
        assert "rsync" in done.stderr
        refused = bed.footplate(
            "train", str(bed.images), "--model", "mnist_cnn", "--recipe", "", "--strategy", "ddp",
            "--devices", "node1:cpu,node2:cpu",
        )  # fmt: skip
        assert refused.returncode == 3
        [failed] = events_of(bed.runs()[-1], "failed")
        assert "node2 has Footplate 9.9" in str(failed)
        assert "node2 has a different dataset" in str(failed)
    finally:
        bed.unblock_traffic("node1", "node2")
        bed.reboot("node2")
    assert bed.list_leftovers() == []


def test_hosts_check_reports_firewall_that_opens_only_first_ports(bed: SimulatedMachines) -> None:
    bed.block_ephemeral_ports("node1")
    try:
        done = bed.footplate("hosts", "check")
    finally:
        bed.unblock_ports("node1")
    assert done.returncode == 2
    assert "node2 reaches node1 at port 294" in done.stderr
    assert "ip_local_port_range" in done.stderr
    assert "does not reach" not in done.stderr
    assert bed.list_leftovers() == []


def test_hosts_add_rejects_unreachable_host(bed: SimulatedMachines) -> None:
    for name, why in (
        ("node3", "can't be resolved"),
        ("-oProxyCommand=reboot", "start with a dash"),
        ("a:b;c", "port"),
    ):
        done = bed.footplate("hosts", "add", "--", name)
        assert done.returncode == 2
        assert why in done.stderr
    listed = bed.footplate("hosts").stdout
    assert "node3" not in listed
    done = bed.footplate("train", str(bed.images), "--model", "mnist_cnn", "--devices", "node3:cpu")
    assert done.returncode == 2
    assert "node3 is not among your hosts" in done.stderr
