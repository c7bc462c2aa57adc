"""Details of one GPU."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame
from pytestqt.qtbot import QtBot

from engine.contract.devices import Ecc, Gpu, GpuProcess, Mig, Nvml, Pcie, RetiredMemory, Xid
from engine.gpus.quantities import BY_ID, QUANTITIES
from gui.format import clock
from gui.monitor.gpus.gpu_fields import GROUPS, list_groups, make_current_reader
from gui.monitor.toolbar import GPUS
from gui.plots.view import PlotView
from gui.style import theme
from tests.gui.monitor.watching import GIB, START, Watching, full_gpu, make_watched_gpu, plain_gpu, read_texts
from tests.support.painted import describe_painting
from tests.support.widgets import join_visible_texts

WORN = Ecc(enabled=False, corrected=1, uncorrected=2, total_corrected=3, total_uncorrected=4)


def read_descriptions(watching: Watching) -> dict[str, str]:
    """Return the descriptions of the visible groups for screen readers, by title."""
    cards = {card.accessibleName(): card for card in watching.page.gpus.detail.findChildren(QFrame, "card")}
    return {
        title: cards[title].accessibleDescription()
        for title in GROUPS
        if title in cards and not cards[title].isHidden()
    }


def open_detail(watching: Watching, *gpus: Gpu, nvml: Nvml | None = None) -> dict[str, str]:
    watching.deliver(*gpus, nvml=nvml)
    watching.page.show_gpu(gpus[0].uuid)
    return read_descriptions(watching)


def test_detail_values_have_meanings() -> None:
    figures = {
        figure.id: figure
        for group in list_groups(make_watched_gpu(full_gpu(), host="ws2"), make_current_reader(full_gpu()), None)
        for figure in group.figures
    }
    assert figures["host"].text == "ws2"
    for quantity in QUANTITIES:
        assert figures[quantity.id].meaning.startswith(quantity.meaning)
        value = quantity.read(full_gpu())
        assert figures[quantity.id].text.startswith(quantity.write(value).removesuffix(f" {quantity.unit}"))


def test_detail_counts_energy_from_the_reset_on(watching: Watching) -> None:
    open_detail(watching, full_gpu(energy_j=1e6))
    texts = []
    for second, joules in ((60, 1.04e6), (90, 1.05e6)):
        watching.deliver(full_gpu(energy_j=joules, throttled=()), at=second)
        texts.append(read_descriptions(watching)["Power and heat"])
        watching.page.gpus.detail.reset.click()
    assert "40.0 kJ" in texts[0]
    assert "10.0 kJ" in texts[1]
    assert read_descriptions(watching)["Work"].endswith("Clocks nothing")


def test_detail_shows_all_groups(watching: Watching) -> None:
    gpu = full_gpu(
        throttled=("power_cap", "thermal"),
        pcie=Pcie(generation=4, max_generation=5, width=8, max_width=16, received_bytes_per_s=1.2e9, sent_bytes_per_s=4e8, replays=3),
        ecc=Ecc(enabled=True, corrected=1, uncorrected=2, total_corrected=3, total_uncorrected=4),
        retired=RetiredMemory(pages_single_bit=5, pages_double_bit=6, rows_corrected=7, rows_uncorrected=8, rows_failed=False),
    )  # fmt: skip
    assert open_detail(watching, gpu) == {
        "Work": "Utilization 87%, SM activity 64%, Tensor activity 22%, Memory bandwidth 31%, Video encoder 0%, "
        "Video decoder 12%, Compute mode default, Clocks limited by the power limit; throttling: hot",
        "Memory": "In use 41.0 GiB, Free 99.0 GiB, Reserved 0.5 GiB, Total 141.0 GiB",
        "Power and heat": f"Power 512 W, Power limit 700 W, Energy since {clock(START).rpartition(':')[0]} 0.0 kJ, "
        "Since the driver started 0.28 kWh, GPU temp. 61 °C, Slows down at 87 °C, Shuts down at 92 °C, "
        "Memory temp. 70 °C, Memory allowed 95 °C, Fan 35%",
        "Clocks": "SM clock 1,755 of 1,980 MHz, Memory clock 3,201 of 3,201 MHz, Performance state P0",
        "Links": "PCIe generation 4 of 5, PCIe lanes 8 of 16, PCIe in 1.20 GB/s, PCIe out 0.40 GB/s, PCIe replays 3, "
        "NVLinks active 3 of 4, NVLink in 12.0 GB/s, NVLink out 4.0 GB/s",
        "Memory errors": "ECC on, Corrected 1, Uncorrected 2, Corrected, all 3, Uncorrected, all 4, "
        "Pages retired (1 bit) 5, Pages retired (2 bit) 6, Rows remapped (corrected) 7, Rows remapped (uncorr.) 8, "
        "Remapping failed no",
        "Identity": "Chip NVIDIA H200, Numbers CUDA and NVML call it 0, UUID GPU-00000000-1111-2222-3333-444444444444, "
        "PCI address 00000000:1B:00.0, MIG off, Persistence on, Driver 570.86, CUDA 12.8",
    }


def test_detail_leaves_out_unreported_values(watching: Watching) -> None:
    bare = Gpu(uuid="GPU-a", name="A GPU", nvml_index=0)
    texts = open_detail(watching, bare, nvml=Nvml("ok"))
    assert list(texts) == ["Identity"]
    assert "None" not in texts["Identity"]
    assert "Driver" not in texts["Identity"]
    detail = watching.page.gpus.detail
    assert detail.reset.isHidden()
    tables = (detail.processes, detail.instances, detail.links, detail.xids)
    assert all(table.isHidden() for table in tables)
    assert not {table.accessibleName() for table in tables} & {*join_visible_texts(detail).splitlines()}


@pytest.mark.parametrize(
    ("gpu", "alarming"),
    [
        (full_gpu(), set()),
        (full_gpu(ecc=Ecc(uncorrected=2)), {"uncorrected"}),
        (full_gpu(ecc=Ecc(corrected=2, total_uncorrected=2)), set()),
        (full_gpu(retired=RetiredMemory(rows_failed=True)), {"rows_failed"}),
        (full_gpu(retired=RetiredMemory(rows_pending=True, pages_pending=True)), {"rows_pending", "pages_pending"}),
        (
            full_gpu(ecc=WORN, retired=RetiredMemory(pages_double_bit=1, pages_pending=True, rows_pending=False)),
            {"uncorrected", "pages_pending"},
        ),
        (
            full_gpu(ecc=WORN, retired=RetiredMemory(pages_pending=False, rows_pending=True, rows_failed=True)),
            {"uncorrected", "rows_pending", "rows_failed"},
        ),
        (full_gpu(temperature_c=87.0, memory_temperature_c=94.0), {"temperature_c"}),
        (full_gpu(temperature_c=86.0, memory_temperature_c=95.0), {"memory_temperature_c"}),
    ],
)
def test_detail_marks_faults(gpu: Gpu, alarming: set[str]) -> None:
    figures = [
        figure
        for group in list_groups(make_watched_gpu(gpu), make_current_reader(gpu), None)
        for figure in group.figures
    ]
    assert {figure.id for figure in figures if figure.alarming} == alarming


def test_detail_tables(watching: Watching) -> None:
    process = GpuProcess(
        pid=4711, user="anna", name="python", command="python train.py", sm_percent=71.0, memory_used_bytes=2 * GIB
    )
    bare = GpuProcess(pid=12, name="Xorg", kind="graphics")
    gpu = full_gpu(processes=(process, bare), xids=(Xid(START - 60, 31), Xid(START - 5, 79)))
    open_detail(watching, gpu)
    detail = watching.page.gpus.detail
    assert {"GPU 0", "NVIDIA H200"} <= set(read_texts(detail).splitlines())
    assert all(text in read_texts(detail) for text in ("Xid 79", "anna"))
    assert detail.links.texts()[0] == ["0", "active", "4", "3.00 GB/s", "1.00 GB/s", "0:2:0"]
    titles = [detail.links.horizontalHeaderItem(column).text() for column in range(6)]
    assert titles == ["Link", "State", "Version", "In", "Out", "Leads to"]
    assert detail.links.texts()[1][1] == "not active"
    assert [row[0] for row in detail.xids.texts()] == [clock(START - 5), clock(START - 60)]
    assert detail.xids.texts()[0][1] == "Xid 79: the GPU has fallen off the bus"
    assert detail.processes.texts() == [
        ["4711", "anna", "python train.py", "Compute", "2.0 GiB", "71%"], ["12", "", "Xorg", "Graphics", "", ""],
    ]  # fmt: skip
    assert detail.instances.isHidden()
    height = detail.xids.height()
    watching.deliver(msgspec.structs.replace(gpu, xids=gpu.xids[:1], nvlinks=()), at=1)
    assert ([row[0] for row in detail.xids.texts()], detail.links.texts()) == ([clock(START - 60)], [])
    assert detail.links.isHidden()
    assert detail.xids.height() < height


def test_detail_lists_mig_instances(watching: Watching) -> None:
    parent = full_gpu(0, mig_enabled=True, utilization_percent=None)
    instances = [
        plain_gpu(
            0, uuid=f"MIG-{n}", memory_total_bytes=16 * GIB, memory_used_bytes=n * GIB, utilization_percent=None,
            mig=Mig(parent_uuid=parent.uuid, gpu_instance=7 + n, profile="1g.18gb"),
        )
        for n in range(2)
    ]  # fmt: skip
    watching.deliver(instances[1], parent, instances[0], full_gpu(1))
    titles = [tile.title.text() for tile in watching.page.gpus.tiles.tiles.values()]
    assert titles == ["GPU 0", "GPU 0 MIG 7", "GPU 0 MIG 8", "GPU 1"]
    watching.deliver(parent, *instances, host="ws2")
    texts = open_detail(watching, parent, *instances)
    assert "MIG on" in texts["Identity"]
    assert watching.page.gpus.detail.instances.texts() == [
        ["GPU 0 MIG 7", "1g.18gb", "0.0 of 16.0 GiB", ""],
        ["GPU 0 MIG 8", "1g.18gb", "1.0 of 16.0 GiB", ""],
    ]
    watching.page.show_gpu("MIG-0")
    assert "MIG profile 1g.18gb" in read_descriptions(watching)["Identity"]
    watching.deliver(parent, *instances, full_gpu(1), at=1)
    watching.page.show_gpu(full_gpu(1).uuid)
    assert watching.page.gpus.detail.instances.isHidden()


def test_detail_refreshes(watching: Watching) -> None:
    open_detail(watching, full_gpu())
    watching.deliver(full_gpu(power_w=333.0), at=1)
    assert "Power 333 W" in read_descriptions(watching)["Power and heat"]
    watching.deliver(plain_gpu(), at=2)
    assert "Memory errors" not in read_descriptions(watching)
    assert "limited by" not in join_visible_texts(watching.page.gpus.detail).lower()


def test_detail_shows_values_at_crosshair(watching: Watching, qtbot: QtBot) -> None:
    for second in range(5):
        watching.deliver(full_gpu(power_w=100.0 + second), at=second)
    (tile,) = watching.page.gpus.tiles.tiles.values()
    for cursor, watts in ((1.0, 101), (None, 104)):
        watching.page.group.set_cursor(cursor)
        assert f"Power {watts} of 700 W" in tile.figures.text()
    watching.page.show_gpu(full_gpu().uuid)
    for cursor, watts in ((-1.0, 100), (1.6, 102), (2.4, 102), (9.0, 104), (1.0, 101), (None, 104)):
        watching.page.group.set_cursor(cursor)
        assert f"Power {watts} W" in read_descriptions(watching)["Power and heat"]


def test_detail_draws_the_lines_of_its_gpu_and_fits_its_width(watching: Watching, qtbot: QtBot) -> None:
    for second in range(5):
        watching.deliver(full_gpu(0), full_gpu(1), at=second)
    detail, colors = watching.page.gpus.detail, []
    for number in (1, 0, 1):
        watching.page.show_gpu(full_gpu(number).uuid)
        detail.plot.redraw()
        colors.append(describe_painting(detail.plot.findChild(PlotView)))
    assert colors[0] == colors[2] != colors[1]
    limits = [(limit.label, limit.color()) for limit in detail.plot.findChild(PlotView).annotations.thresholds]
    scheme = theme.colors()
    assert limits == [("shuts down 92 °C", scheme.error), ("slows down 87 °C", scheme.warning)]
    for width, count in ((1440, 4), (700, 2)):
        watching.page.resize(width, 780)
        cards = [card for card in detail.findChildren(QFrame, "card") if card.accessibleName() in GROUPS]
        qtbot.waitUntil(lambda cards=cards, count=count: len({card.x() for card in cards}) == count)


def test_detail_escape_returns_to_tile(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0), full_gpu(1))
    watching.page.activateWindow()
    tile = watching.page.gpus.tiles.tiles[full_gpu(1).uuid]
    qtbot.waitUntil(tile.isVisible)
    tile.setFocus()
    qtbot.keyClick(tile.plot, Qt.Key.Key_Return)
    detail = watching.page.gpus.detail
    qtbot.waitUntil(detail.isVisible)
    assert detail.key == full_gpu(1).uuid
    assert watching.page.focusWidget() is detail.back
    qtbot.keyClick(detail.back, Qt.Key.Key_Escape)
    qtbot.waitUntil(tile.isVisible)
    assert watching.page.focusWidget() is tile.plot


def test_detail_of_removed_gpu_closes(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0), full_gpu(1))
    tabs = watching.page.bar.tabs
    watching.page.show_gpu(full_gpu(1).uuid)
    qtbot.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs.tabRect(GPUS).center())
    assert watching.page.gpus.currentWidget() is watching.page.gpus.tiles
    watching.page.show_gpu(full_gpu(1).uuid)
    watching.page.gpus.detail.back.click()
    assert watching.page.gpus.currentWidget() is watching.page.gpus.tiles
    watching.page.show_gpu(full_gpu(1).uuid)
    assert watching.page.gpus.currentWidget() is watching.page.gpus.detail
    watching.deliver(full_gpu(0), at=1)
    assert watching.page.gpus.currentWidget() is watching.page.gpus.tiles


def test_quantity_meaning_differs_from_title() -> None:
    assert all(quantity.meaning != quantity.title for quantity in BY_ID.values())
