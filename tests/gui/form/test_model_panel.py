"""Model list: content, search, filters, order and keyboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.runs.estimates import Estimate
from gui.form.form import JobForm
from gui.form.model_panel import ModelPanel, OfferedModel, WeightsState, describe_all_weights, describe_model
from tests.support.widgets import ShowWidget

MODELS = load_catalogue().models_of("classification")
TITLES = {entry.id: entry.title for entry in MODELS}
NAME, FAMILY, PARAMETERS, WEIGHTS, ACCURACY, ESTIMATE = range(6)


@pytest.fixture
def panel(form: JobForm) -> ModelPanel:
    """Open the model list of the form and return it."""
    form.fields.model.open_panel()
    return form.fields.model.panel


def column(panel: ModelPanel, number: int) -> list[str]:
    return [panel.model.index(row, number).data() for row in range(panel.model.rowCount())]


def current(panel: ModelPanel) -> str:
    return panel.model.rows[panel.table.currentIndex().row()].entry.id


def is_current_row_visible(panel: ModelPanel) -> bool:
    row = panel.table.visualRect(panel.table.currentIndex())
    return panel.table.viewport().rect().contains(row.center())


def test_list_begins_with_recommended_models(panel: ModelPanel) -> None:
    assert column(panel, NAME)[:3] == ["EfficientNet-Lite0", "ResNet-50", "AlexNet"]
    assert len(column(panel, NAME)) == len(MODELS)
    assert panel.table.rowHeight(0) >= 28
    fonts = [[panel.model.index(row, column).data(Qt.ItemDataRole.FontRole) for column in (0, 1)] for row in (0, 2)]
    assert panel.model.index(0, WEIGHTS).data(Qt.ItemDataRole.ToolTipRole) == describe_model(panel.model.rows[0])
    families = [panel.family.itemText(row) for row in range(panel.family.count())]
    assert families == ["All families", *sorted({entry.family for entry in MODELS})]
    assert [[font is not None and font.bold() for font in row] for row in fonts] == [[True, False], [False, False]]
    panel.table.sortByColumn(PARAMETERS, Qt.SortOrder.DescendingOrder)
    assert {row.entry.id for row in panel.model.rows[:2]} == {"resnet50", "timm:tf_efficientnet_lite0"}
    sizes = [row.entry.parameters for row in panel.model.rows[2:]]
    assert sizes == sorted(sizes, reverse=True)


def test_accuracy_is_sorted_by_number_and_unknown_last(panel: ModelPanel) -> None:
    panel.table.sortByColumn(ACCURACY, Qt.SortOrder.DescendingOrder)
    texts = column(panel, ACCURACY)[2:]
    known = [text for text in texts if text]
    assert texts[: len(known)] == known
    values = [float(text.split()[1].removesuffix("%")) for text in known if text.startswith("ImageNet")]
    assert values == sorted(values, reverse=True)


def test_order_is_chosen_by_keyboard(panel: ModelPanel, qtbot: QtBot) -> None:
    initial = [row.entry.id for row in panel.model.rows]
    panel.order.setFocus()
    qtbot.keyClick(panel.order, Qt.Key.Key_End)
    assert panel.order.currentText() == "Estimate"
    panel.order.setCurrentIndex(panel.order.findData(PARAMETERS))
    sizes = [row.entry.parameters for row in panel.model.rows[2:]]
    assert sizes == sorted(sizes)
    panel.order.setCurrentIndex(0)
    assert [row.entry.id for row in panel.model.rows] == initial


def test_search_and_family_filter_the_list(panel: ModelPanel, qtbot: QtBot) -> None:
    qtbot.keyClicks(panel.search, "resnet 50")
    assert "ResNet-50" in column(panel, NAME)
    assert len(column(panel, NAME)) < 12
    panel.search.clear()
    panel.family.setCurrentIndex(panel.family.findData("VGG"))
    assert set(column(panel, FAMILY)) == {"VGG"}
    about_vgg = panel.about.text()
    qtbot.keyClicks(panel.search, "zebra")
    assert column(panel, NAME) == []
    assert panel.about.text() not in ("", about_vgg)


def test_list_is_used_by_keyboard(form: JobForm, panel: ModelPanel, qtbot: QtBot) -> None:
    qtbot.keyClicks(panel.search, "vgg")
    first, second = (row.entry.id for row in panel.model.rows[:2])
    assert current(panel) == first
    qtbot.keyClick(panel.search, Qt.Key.Key_Down)
    assert current(panel) == second
    for _press in range(2):
        qtbot.keyClick(panel.search, Qt.Key.Key_Up)
    assert current(panel) == first
    qtbot.keyClick(panel.search, Qt.Key.Key_Down)
    qtbot.keyClick(panel.search, Qt.Key.Key_Return)
    assert not panel.isVisible()
    assert form.field_value("model") == second
    assert form.fields.model.line.text() == TITLES[second]
    qtbot.keyClick(form.fields.model.line, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    assert panel.isVisible()
    assert (current(panel), panel.search.text(), panel.model.rowCount()) == (second, "", len(MODELS))
    assert is_current_row_visible(panel)
    qtbot.keyClick(panel.search, Qt.Key.Key_PageDown)
    below = panel.table.currentIndex().row()
    qtbot.keyClick(panel.search, Qt.Key.Key_PageUp)
    assert panel.table.currentIndex().row() < below - 1
    for _page in MODELS:
        qtbot.keyClick(panel.search, Qt.Key.Key_PageDown)
    assert panel.table.currentIndex().row() == len(MODELS) - 1
    qtbot.keyClick(panel.search, Qt.Key.Key_Escape)
    assert not panel.isVisible()


def test_list_chooses_by_click_or_return(form: JobForm, panel: ModelPanel, qtbot: QtBot) -> None:
    table = panel.table
    for row in (1, 2):
        form.fields.model.open_panel()
        index = panel.model.index(row, NAME)
        expected = panel.model.rows[row].entry.id
        if row == 1:
            qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=table.visualRect(index).center())
        else:
            table.setCurrentIndex(index)
            qtbot.keyClick(table, Qt.Key.Key_Return)
        assert (form.field_value("model"), panel.isVisible()) == (expected, False)


def test_facts_appear_once_they_are_known(panel: ModelPanel, qtbot: QtBot) -> None:
    row = panel.model.position("timm:tf_efficientnet_lite0")
    assert row is not None
    qtbot.waitUntil(lambda: column(panel, WEIGHTS)[row] == "included")
    for seconds, text in ((720.0, "12 min, 9.0 GiB"), (None, "9.0 GiB")):
        estimate = Estimate(seconds=seconds, memory_bytes=9 << 30)
        panel.set_facts({"vgg16": WeightsState("none", 0.0)}, {"vgg16": estimate})
        row = panel.model.position("vgg16")
        assert row is not None
        assert (column(panel, WEIGHTS)[row], column(panel, ESTIMATE)[row]) == ("none", text)


def test_facts_about_other_models_do_not_hide_known_ones(panel: ModelPanel, qtbot: QtBot) -> None:
    row = panel.model.position("timm:tf_efficientnet_lite0")
    assert row is not None
    qtbot.waitUntil(lambda: column(panel, WEIGHTS)[row] == "included")
    qtbot.keyClick(panel.search, Qt.Key.Key_Down)
    chosen = current(panel)
    panel.set_facts({}, {MODELS[0].id: Estimate(seconds=720.0)})
    facts = sorted(column(panel, ESTIMATE))
    panel.set_facts({"maskrcnn": WeightsState("none", 0.0)}, {})  # of a task that was selected before
    assert column(panel, WEIGHTS)[row] == "included"
    assert sorted(column(panel, ESTIMATE)) == facts == [*[""] * (len(MODELS) - 1), "12 min"]
    panel.set_facts({}, {MODELS[0].id: Estimate(seconds=840.0)})
    assert "14 min" in column(panel, ESTIMATE)
    assert current(panel) == chosen


def test_estimates_are_requested_for_each_models_image_size(panel: ModelPanel) -> None:
    requests: list[object] = []

    def estimate(image_sizes: Mapping[str, int]) -> Callable[[], Mapping[str, Estimate]]:
        requests.append(image_sizes)
        return dict

    panel.request_facts(MODELS, load_catalogue(), "", estimate)
    assert requests == [{entry.id: entry.image_size for entry in MODELS}]
    assert len(set(requests[0].values())) > 1  # type: ignore[attr-defined]


def test_list_opens_on_the_screen(form: JobForm) -> None:
    screen = form.screen().availableGeometry()
    form.window().move(screen.right() - 40, screen.bottom() - 40)
    form.set_field("model", "vgg16")
    form.fields.model.open_panel()
    panel = form.fields.model.panel
    assert screen.adjusted(0, 0, 4, 4).contains(panel.geometry())  # the platform adds a frame
    assert is_current_row_visible(panel)


def test_weights_are_included_downloaded_or_none() -> None:
    catalogue = load_catalogue()
    entries = [catalogue.model(name) for name in ("mnist_cnn", "timm:tf_efficientnet_lite0", "resnet18")]
    states = describe_all_weights([entry for entry in entries if entry is not None], catalogue, "")
    unet = [entry for entry in catalogue.models if entry.id == "unet"]
    texts = [
        describe_all_weights(unet, catalogue, name)["unet"].text for name in ("tu-tf_efficientnet_lite0", "resnet18")
    ]
    assert texts == ["included", "to download"]
    assert [state.text for state in states.values()][:2] == ["none", "included"]
    assert states["resnet18"].text == "44.7 MiB to download"
    assert (
        states["mnist_cnn"].missing_bytes
        > states["resnet18"].missing_bytes
        > states["timm:tf_efficientnet_lite0"].missing_bytes
        == 0
    )
    resnet = OfferedModel(entries[2], is_recommended=True)  # type: ignore[arg-type]
    assert describe_model(resnet) == (
        "Recommended · resnet18 · 11,689,512 parameters · 224 px by default · ImageNet 69.8% top-1, torchvision"
    )
    included = OfferedModel(entries[1], weights=states["timm:tf_efficientnet_lite0"])  # type: ignore[arg-type]
    assert states["timm:tf_efficientnet_lite0"].license in describe_model(included).split(": ")[-1].split(" · ")


def test_accuracy_needs_no_percent_sign(show_widget: ShowWidget) -> None:
    panel = show_widget(ModelPanel(None))  # type: ignore[arg-type]
    accuracies = ("COCO AP 46.2", "COCO AP 46.9", "COCO AP 46.4", "COCO AP 7.1", "ImageNet 9.8%", "")
    panel.offer([msgspec.structs.replace(MODELS[0], id=text, published=text) for text in accuracies], [], "")
    panel.order.setCurrentIndex(panel.order.findData(ACCURACY))
    assert column(panel, ACCURACY) == [
        "ImageNet 9.8%",
        *(f"COCO AP {number}" for number in (46.9, 46.4, 46.2, 7.1)),
        "",
    ]


def test_model_without_its_extra_cannot_be_chosen(show_widget: ShowWidget, qtbot: QtBot) -> None:
    panel = show_widget(ModelPanel(None))  # type: ignore[arg-type]
    entry = msgspec.structs.replace(MODELS[0], id="detr", title="DETR")
    panel.offer([entry], [], "")
    (row,) = panel.model.rows
    panel.model.set_rows([replace(row, command="pip install x")])
    assert not panel.model.flags(panel.model.index(0, 0)) & Qt.ItemFlag.ItemIsEnabled
    with qtbot.assertNotEmitted(panel.chosen):
        qtbot.keyClick(panel.search, Qt.Key.Key_Return)
    assert "pip install x" in describe_model(OfferedModel(entry, command="pip install x"))


def test_field_shows_titles_and_keeps_ids(form: JobForm) -> None:
    form.set_job(Job.from_fields(model="resnet50"))
    line = form.fields.model.line
    assert (line.text(), form.field_value("model")) == ("ResNet-50", "resnet50")
    assert (line.toolTip(), line.cursorPosition()) == ("resnet50", 0)
    line.setText("vgg-16")
    assert form.field_value("model") == "vgg16"
    for typed in ("timm:vit_tiny_patch16_224.augreg_in21k", "/models/net.py", "resnet81"):
        line.setText(typed)
        assert form.field_value("model") == typed
