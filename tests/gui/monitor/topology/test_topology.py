"""GPU interconnect: texts, matrix and advice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract.devices import GpuAffinity, GpuPair, Mig, Snapshot, Topology
from gui.monitor.topology import connections
from gui.monitor.topology.view import ConnectionModel, TopologyView, cell_color
from gui.sources.devices.hosts import Hosts
from gui.style import theme
from gui.titles import format_gpu_names
from tests.gui.monitor.machines import deliver_snapshot, make_gpu, make_topology, pairs_within
from tests.gui.sources.devices.snapshots import UUIDS, snapshot
from tests.support.contrast import compute_contrast
from tests.support.golden import check_file
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import NvmlStub
from tests.support.widgets import ShowWidget, join_visible_texts

GOLDEN = Path(__file__).with_name("golden_advice.txt")
HALVES = pairs_within(range(4), range(4, 8))


@pytest.fixture
def view(show_widget: ShowWidget, hosts: Hosts) -> TopologyView:
    return show_widget(TopologyView(hosts), 1100, 600)


def machine(count: int, topology: Topology | None) -> Snapshot:
    return msgspec.structs.replace(snapshot(*(make_gpu(n) for n in range(count))), topology=topology)


def advice_for(count: int, topology: Topology) -> str:
    return connections.recommend_strategies(
        connections.make_connected_gpus([make_gpu(n) for n in range(count)], topology)
    )


def cell(view: TopologyView, row: int, column: int, role: int = Qt.ItemDataRole.DisplayRole) -> str:
    return view.model.index(row, column).data(role)


# Advice

NEAR = make_topology(4, path="PIX", peers=True)
CHAIN = {(0, 1): 2, (1, 2): 2, (2, 3): 2}
ADVISED: dict[str, tuple[int, Topology]] = {
    "NVLink everywhere": (8, make_topology(8, nvlinks=18)),
    "two GPUs with NVLinks": (2, make_topology(2, nvlinks=4)),
    "two groups with NVLinks": (8, make_topology(8, nvlinks=dict.fromkeys(HALVES, 4))),
    "groups that are close to each other in part": (
        4,
        make_topology(4, nvlinks={(0, 1): 4, (2, 3): 4}, path={(0, 2): "PIX", (1, 3): "PIX"}),
    ),
    "crossed groups": (4, make_topology(4, nvlinks={(0, 3): 4, (1, 2): 4})),
    "groups of different sizes": (5, make_topology(5, nvlinks={(0, 1): 1, (2, 3): 1, (2, 4): 1}, path="PHB")),
    "one separate GPU": (3, make_topology(3, nvlinks={(0, 1): 4}, path="PHB")),
    "two separate GPUs, and one that joins others": (5, make_topology(5, nvlinks={(0, 2): 4, (1, 2): 4}, path="PHB")),
    "a chain": (4, make_topology(4, nvlinks=CHAIN)),
    "a chain in which other pairs are unknown": (
        4,
        Topology(tuple(GpuPair(one=a, other=b, nvlinks=2) for a, b in CHAIN), ()),
    ),
    "different numbers of NVLinks": (3, make_topology(3, nvlinks={(0, 1): 4, (0, 2): 12, (1, 2): 8})),
    "PCIe switches": (4, NEAR),
    "two groups with PCIe switches": (8, make_topology(8, path=dict.fromkeys(HALVES, "PXB"))),
    "two processors": (8, make_topology(8, path=dict.fromkeys(HALVES, "NODE"))),
    "two GPUs of one processor and one of another": (3, make_topology(3, path={(0, 1): "PHB"})),
    "one processor": (2, make_topology(2, path="PHB", peers=True)),
    "different processors": (2, make_topology(2, path="SYS", peers=False)),
    "different processors, and an unknown pair": (
        3,
        Topology(tuple(GpuPair(one=0, other=other, path="SYS") for other in (1, 2)), ()),
    ),
    "unknown": (2, Topology((GpuPair(one=0, other=1),), ())),
    "one pair without peer access, one unknown": (
        4,
        Topology(
            tuple(
                msgspec.structs.replace(pair, peer_access=access)
                for pair, access in zip(NEAR.pairs, (False, None, True, True, True, True), strict=True)
            ),
            (),
        ),
    ),
}
"""Number of GPUs and their topology, by title in the golden file."""


def test_advice_matches_golden_file() -> None:
    check_file(GOLDEN, "".join(f"[{title}]\n{advice_for(*machine)}\n\n" for title, machine in ADVISED.items()))


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        (["GPU 0"], "GPU 0"),
        (["GPU 1", "GPU 0"], "GPU 0, 1"),
        (["GPU 0", "GPU 1", "GPU 2", "GPU 5", "GPU 7", "GPU 8"], "GPU 0–2, 5, 7, 8"),
        (["GPU 6", "GPU 3", "GPU 1", "GPU 2", "GPU 8", "GPU 9"], "GPU 1–3, 6, 8, 9"),
        (["GPU 0 MIG 1", "GPU 2"], "GPU 0 MIG 1, GPU 2"),
        ([], ""),
    ],
)
def test_advice_shortens_gpu_ranges(titles: list[str], expected: str) -> None:
    assert format_gpu_names(titles) == expected


# The matrix


def test_matrix_cells_and_tool_tips(hosts: Hosts, view: TopologyView) -> None:
    topology = make_topology(4, nvlinks={(0, 1): 18}, path={(2, 3): "PIX"}, peers=True)
    deliver_snapshot(hosts, machine(4, topology))
    assert cell(view, 0, 1) == cell(view, 1, 0) == "NV18\n18 NVLinks"
    assert cell(view, 3, 2) == "PIX\none switch"
    assert cell(view, 0, 2) == "SYS\nprocessors"
    assert cell(view, 2, 2) == ""
    tip = view.model.headerData(1, Qt.Orientation.Vertical, Qt.ItemDataRole.ToolTipRole)
    assert tip.splitlines() == ["NVIDIA H200", make_gpu(1).uuid]
    colors = [
        view.model.index(row, column).data(Qt.ItemDataRole.BackgroundRole).color()
        for row, column in ((0, 1), (3, 2), (2, 2))
    ]
    assert colors == [cell_color("nvlink"), cell_color("switch"), QColor(theme.colors().grid)]
    for role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
        assert cell(view, 0, 1, role) == (
            "GPU 0 and GPU 1 are connected over 18 NVLinks. Each can read the other's memory directly."
        )
        assert "the link between them" in cell(view, 0, 2, role)


def test_matrix_follows_card_order(hosts: Hosts, view: TopologyView) -> None:
    gpus = [make_gpu(n, cuda_index=2 - n, pci_bus_id=f"0000:0{n}:00.0") for n in range(3)]
    sample = msgspec.structs.replace(snapshot(*gpus), topology=make_topology(3, nvlinks={(0, 1): 4}))
    deliver_snapshot(hosts, sample)
    for roomy, titles in ((True, ["GPU 0", "GPU 1", "GPU 2"]), (False, ["0", "1", "2"])):
        view.model.set_roomy(roomy)
        assert [view.model.headerData(n, Qt.Orientation.Horizontal) for n in range(3)] == titles
        assert [view.model.headerData(n, Qt.Orientation.Vertical) for n in range(3)] == ["GPU 0", "GPU 1", "GPU 2"]
    tip = view.model.headerData(0, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)
    assert tip.splitlines()[1:] == [gpus[2].uuid, "PCI 0000:02:00.0"]
    assert cell(view, 1, 2) == "NV4"
    assert cell(view, 0, 1).startswith("SYS")
    assert [cell(view, row, 4) for row in range(3)] == ["16-23", "8-15", "0-7"], "the cores are those of the GPU"


def test_matrix_marks_missing_peer_access(hosts: Hosts, view: TopologyView, qtbot: QtBot) -> None:
    pairs = (*make_topology(2, path="PHB", peers=False).pairs, GpuPair(one=0, other=2, path="PHB", peer_access=True))
    deliver_snapshot(hosts, machine(3, Topology(pairs, ())))
    assert [cell(view, 0, column).partition("\n")[0] for column in range(3)] == ["", "PHB ✕", "PHB"]
    assert "Neither can read the other's memory directly" in cell(view, 0, 1, Qt.ItemDataRole.ToolTipRole)
    view.table.setCurrentIndex(view.model.index(0, 1))
    qtbot.keyClick(view.table, Qt.Key.Key_Tab)  # leaves the table
    assert view.table.currentIndex().column() == 1
    qtbot.waitUntil(lambda: "neither can read" in join_visible_texts(view))


def test_matrix_shows_known_affinities(hosts: Hosts, view: TopologyView) -> None:
    deliver_snapshot(hosts, machine(5, make_topology(5)))
    extra = [view.model.headerData(n, Qt.Orientation.Horizontal) for n in range(5, view.model.columnCount())]
    assert extra == ["NUMA", "Cores"]
    assert [cell(view, row, 5) for row in range(5)] == ["0", "0", "0", "0", "1"]
    assert cell(view, 1, 6) == "8-15"
    for affinities, titles in (((), []), ((GpuAffinity(index=0, cores="0-7"), GpuAffinity(index=1)), ["Cores"])):
        deliver_snapshot(hosts, machine(5, Topology(make_topology(5).pairs, affinities)))
        extra = [view.model.headerData(n, Qt.Orientation.Horizontal) for n in range(5, view.model.columnCount())]
        assert extra == titles
    assert [cell(view, row, 5) for row in range(3)] == ["0-7", "–", "–"]


def test_matrix_unknown_pair(hosts: Hosts, view: TopologyView, qtbot: QtBot) -> None:
    deliver_snapshot(hosts, machine(3, Topology((*make_topology(2, nvlinks=4).pairs, GpuPair(one=1, other=2)), ())))
    assert [cell(view, row, 2) for row in range(3)] == ["–", "–\nunknown", ""]
    unknown = [cell(view, row, 2, Qt.ItemDataRole.ToolTipRole) for row in range(2)]
    qtbot.waitUntil(lambda: "number of NVLinks" in join_visible_texts(view))
    legend = join_visible_texts(view)
    assert "–" not in legend.splitlines()
    assert "neither can read" not in legend
    assert unknown[0] == unknown[1].replace("GPU 1", "GPU 0") != cell(view, 0, 1, Qt.ItemDataRole.ToolTipRole)


def test_legend_explains_present_codes(
    hosts: Hosts, view: TopologyView, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = {(0, 1): 18, (0, 2): 9}
    deliver_snapshot(hosts, machine(4, make_topology(4, nvlinks=links, path={(2, 3): "NODE"})))
    qtbot.waitUntil(lambda: "number of NVLinks" in join_visible_texts(view))
    codes = [
        text for text in join_visible_texts(view).splitlines() if text in ("NV#", "NV18", "NV9", "NODE", "SYS", "✕")
    ]
    assert codes == ["NV#", "NODE", "SYS"]
    assert "several PCIe bridges of one processor" in join_visible_texts(view)
    assert "through one PCIe switch" not in join_visible_texts(view)
    deliver_snapshot(hosts, machine(2, make_topology(2, path="PIX")))
    qtbot.waitUntil(lambda: "through one PCIe switch" in join_visible_texts(view))
    assert "number of NVLinks" not in join_visible_texts(view)
    monkeypatch.setattr(theme, "is_dark", lambda: True)
    theme.notifier.changed.emit()  # colors only the present swatches
    swatch = next(label for label in view.findChildren(QLabel) if label.text() == "PIX")
    assert swatch.grab().toImage().pixelColor(1, 1) == cell_color("switch")


def test_matrix_leaves_out_mig_instances(hosts: Hosts, view: TopologyView) -> None:
    instance = make_gpu(1, nvml_index=0, mig=Mig(parent_uuid=UUIDS[0], gpu_instance=1))
    deliver_snapshot(hosts, msgspec.structs.replace(snapshot(make_gpu(0), instance), topology=make_topology(1)))
    assert "single GPU" in join_visible_texts(view)


def test_matrix_leaves_out_lost_gpu(hosts: Hosts, view: TopologyView) -> None:
    gpus = [make_gpu(n, lost=n == 1) for n in range(3)]
    pairs = (GpuPair(one=0, other=2, nvlinks=18),)
    deliver_snapshot(hosts, msgspec.structs.replace(snapshot(*gpus), topology=Topology(pairs, ())))
    assert [view.model.headerData(n, Qt.Orientation.Horizontal) for n in range(2)] == ["GPU 0", "GPU 2"]
    assert view.advice.text().startswith("The two GPUs are connected by 18 NVLinks")
    assert view.advice.text().endswith("GPU 1 is lost and not shown here.")
    deliver_snapshot(hosts, snapshot(gpus[1], make_gpu(2)))
    assert "single GPU" in join_visible_texts(view)
    assert "GPU 1 is lost" in join_visible_texts(view)
    deliver_snapshot(hosts, snapshot(gpus[1], make_gpu(2, lost=True)))
    assert "GPU 1, 2 are lost and not shown here." in join_visible_texts(view)


def test_matrix_sixteen_gpus_shows_codes(hosts: Hosts, view: TopologyView) -> None:
    deliver_snapshot(hosts, machine(16, make_topology(16, nvlinks=18)))
    assert cell(view, 0, 15) == "NV18"
    height = view.table.height()
    view.resize(600, 600)
    assert view.table.width() <= view.width() == 600
    assert view.table.height() > height  # room for the scroll bar
    view.resize(1100, 600)
    tight, lines = view.table.rowHeight(0), view.table.fontMetrics().height()
    view.resize(2400, 900)
    assert cell(view, 0, 15) == "NV18\n18 NVLinks"
    assert view.table.rowHeight(0) == tight + lines


def test_matrix_passes_model_tester(styled: QApplication, qtmodeltester: ModelTester) -> None:
    model = ConnectionModel()
    qtmodeltester.check(model)
    for count in (2, 8):
        topology = make_topology(count)
        model.show_gpus(
            connections.make_connected_gpus([make_gpu(n) for n in range(count)], topology),
            {p.index: p for p in topology.affinities},
        )
        qtmodeltester.check(model)


def test_matrix_fills_have_contrast(styled: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    for dark, scheme in ((False, theme.LIGHT), (True, theme.DARK)):
        monkeypatch.setattr(theme, "is_dark", lambda dark=dark: dark)
        grounds = [cell_color(kind) for kind in ("nvlink", "switch", "bridge", "nodes", "unknown")]
        assert all(compute_contrast(QColor(scheme.text), ground) >= 4.5 for ground in grounds)
        assert len({ground.name() for ground in grounds}) == 5


# Missing matrix


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (snapshot(), "has no NVIDIA GPU"),
        (snapshot(status="no_driver", message="NVIDIA's driver is not loaded."), "driver is not loaded"),
        (machine(1, make_topology(1)), "This machine has a single GPU, the NVIDIA H200.\n\nThe nearest CPU cores are 0-7 (NUMA node 0)."),
        (msgspec.structs.replace(snapshot(make_gpu(1, cuda_index=0)), topology=make_topology(2)), "nearest CPU cores are 8-15"),
        (machine(1, None), "single GPU"),
        (machine(2, None), "does not report how the 2 GPUs are connected"),
    ],
)  # fmt: skip
def test_view_explains_missing_matrix(hosts: Hosts, view: TopologyView, sample: Snapshot, expected: str) -> None:
    assert "Looking for devices" in join_visible_texts(view)
    deliver_snapshot(hosts, sample)
    assert expected in join_visible_texts(view)
    assert not view.table.isVisible()


def test_view_offers_other_host(hosts: Hosts, view: TopologyView) -> None:
    hosts.add("ws2")
    deliver_snapshot(hosts, machine(2, make_topology(2, nvlinks=4)))
    assert not view.host.isVisible()
    assert view.table.columnWidth(0) < view.width() / 3
    deliver_snapshot(
        hosts, msgspec.structs.replace(machine(4, make_topology(4, path="PIX")), host="workstation 2"), host="ws2"
    )
    assert view.model.rowCount() == 2
    view.host.setCurrentIndex(view.host.findText("workstation 2"))
    assert view.model.rowCount() == 4
    hosts.remove("ws2")
    assert view.model.rowCount() == 2
    assert not view.host.isVisible()


def test_view_refreshes_on_change_only(hosts: Hosts, view: TopologyView, qtbot: QtBot) -> None:
    deliver_snapshot(hosts, machine(2, make_topology(2)))
    with qtbot.assertNotEmitted(view.model.modelReset):
        deliver_snapshot(hosts, machine(2, make_topology(2)))
    with qtbot.waitSignal(view.model.modelReset):
        deliver_snapshot(hosts, machine(2, make_topology(2, nvlinks=2)))
    renumbered = snapshot(*(make_gpu(n, cuda_index=n + 2) for n in range(2)))
    deliver_snapshot(hosts, msgspec.structs.replace(renumbered, topology=make_topology(2, nvlinks=2)))
    assert view.model.headerData(0, Qt.Orientation.Vertical) == "GPU 2"


def test_topology_from_real_sampler(hosts: Hosts, view: TopologyView, nvml_stub: NvmlStub, qtbot: QtBot) -> None:
    MACHINES["eight"].write(nvml_stub)
    hosts.start()
    qtbot.waitUntil(lambda: view.model.rowCount() == 8)
    assert "All 8 GPUs" in join_visible_texts(view)
    assert cell(view, 0, 7).split("\n")[0] == connections.code(hosts.latest[""].topology.pairs[6])  # type: ignore[union-attr]
