"""Editors for the model and for its split into pipeline stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QEvent, QObject, QStringListModel, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QBoxLayout, QCompleter, QLineEdit, QPushButton

from engine.contract.catalogue import ModelEntry
from engine.contract.job import TIMM
from gui.format import counted, millions
from gui.style import icons
from gui.titles import model_title
from gui.translation import tr
from gui.widgets import file_dialogs
from gui.widgets.buttons import tool_button
from gui.widgets.editors import Editor, PathLine

if TYPE_CHECKING:
    from gui.form.model_panel import ModelPanel

AUTOMATIC = "automatic"
_COMPLETIONS_WIDTH = 480


class SplitPointsEditor(Editor):
    """Summary of the model's split into pipeline stages, with a button that opens the page for changing it.

    Signals:
        requested(): the user wants to open the page with the stages.
    """

    requested = Signal()

    def __init__(self) -> None:
        self.line = QLineEdit()
        self.line.setReadOnly(True)
        self.line.setMinimumWidth(56)
        self.line.setAcceptDrops(False)  # a dropped folder belongs to the window
        super().__init__(self.line)
        self._split_points: tuple[str, ...] = ()
        self.show_button = QPushButton(tr("Show split points…"))
        self.show_button.setToolTip(tr("Measure the model and show its split points, which you can move"))
        self.show_button.clicked.connect(self.requested)
        layout = self.layout()
        assert isinstance(layout, QBoxLayout)
        layout.setDirection(QBoxLayout.Direction.TopToBottom)
        layout.addWidget(self.show_button)
        self.set_value(())

    def value(self) -> tuple[str, ...]:
        return self._split_points

    def set_value(self, value: Any) -> None:
        """Set the modules at which pipeline stages are split, or () for automatic ones, and describe them."""
        self._split_points = tuple(value)
        self.line.setText(describe_split_points(self._split_points))
        self.line.setToolTip(", ".join(self._split_points))
        self.edited.emit()


def describe_split_points(split_points: tuple[str, ...]) -> str:
    """Describe where pipeline stages are split, as in "automatic" or "moved by hand (2 split points)"."""
    if not split_points:
        return AUTOMATIC
    return tr("moved by hand ({split_points})").format(split_points=counted(len(split_points), "split point"))


class ModelPicker(Editor):
    """Field for the model. It shows titles. Its value is the id of a model or the path of a file.

    Signals:
        facts_requested(): the model list has been opened. The owner looks up facts about the models.
    """

    facts_requested = Signal()

    def __init__(self, models: tuple[ModelEntry, ...]) -> None:
        self.line = PathLine()
        self.line.setAcceptDrops(False)
        super().__init__(self.line)
        self._completer = self._make_completer()
        self.line.setCompleter(self._completer)
        self.line.textChanged.connect(lambda _text: self.edited.emit())
        self.line.installEventFilter(self)
        tip = tr("Compare all models (Alt+Down)")
        self.list_button = tool_button(
            self.open_panel, icon=icons.icon("down", "muted"), name=tr("All models"), tip=tip
        )
        self.file_button = tool_button(
            self.choose_file, icon=icons.icon("file", "muted"), name=tr("Choose a Python file")
        )
        self.add_button(self.list_button)
        self.add_button(self.file_button)
        self._file_tip = ""
        self._titles = {entry.id: entry.title for entry in models}
        self._last_text, self._last_value = "", ""
        """Text and value that were set last. The text may be the title of another task's model."""
        self._models: tuple[ModelEntry, ...] = ()
        self._recommended: tuple[str, ...] = ()
        self.set_models(models)

    @cached_property
    def panel(self) -> ModelPanel:
        """List of all models, which is created when it is first opened."""
        from gui.form.model_panel import ModelPanel

        panel = ModelPanel(self)
        panel.chosen.connect(self._on_chosen)
        return panel

    def set_models(
        self, models: tuple[ModelEntry, ...], recommended: Sequence[str] = (), *, of_file: bool = False
    ) -> None:
        """Offer models, with the `recommended` ids first. The value doesn't change.

        `of_file` is True for a task that is defined in a Python file. The hints then ask for this file.
        """
        self._models, self._recommended = models, tuple(recommended)
        if of_file:
            self._file_tip, hint = tr("Choose your task's Python file"), tr("A Python file")
        else:
            self._file_tip = tr("Choose a Python file with build_model(num_classes)")
            has_timm_models = any(model.id.startswith(TIMM) for model in models)
            hint = (
                tr("Type to search, or {prefix}NAME").format(prefix=TIMM)
                if has_timm_models
                else tr("Type to search, e.g. resnet")
            )
        self.line.setPlaceholderText(hint)
        self.list_button.setVisible(bool(models))
        self.file_button.setToolTip(self._file_tip)
        self._titles |= {entry.id: entry.title for entry in models}
        self._ids_by_title = {entry.title.lower(): entry.id for entry in models}
        self._ids_by_completion = {
            f"{entry.title} · {millions(entry.parameters)} · {entry.id}": entry.id for entry in models
        }
        self._completer.setModel(QStringListModel(list(self._ids_by_completion), self._completer))

    def value(self) -> str:
        """Return the id of the model whose title or completion is in the field, otherwise the text: an id or a path."""
        text = self.line.text().strip()
        if text == self._last_text:
            return self._last_value  # its model may not be offered
        return self._ids_by_completion.get(text) or self._ids_by_title.get(text.lower()) or text

    def set_value(self, value: Any) -> None:
        """Show the title of a model, or the id of an unknown model or the path of a file."""
        self._last_value = str(value)
        self._last_text = self._titles.get(self._last_value, self._last_value)
        self.line.setText(self._last_text)
        self.line.setToolTip(self._last_value)
        self.line.setCursorPosition(0)  # show the start of a long name

    def title(self) -> str:
        """Return the title of the model, or the path of a file."""
        return model_title(self.value())

    def open_panel(self) -> None:
        """Open the list of all models."""
        self.panel.offer(self._models, self._recommended, self.value())
        self.panel.open_below(self)
        self.facts_requested.emit()

    def choose_file(self) -> None:
        """Open a dialog for a Python file, whose path becomes the value."""
        file_dialogs.choose_path(self, self._file_tip, self.set_value)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Open the list on Alt+Down, as combo boxes do."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and _is_alt_down(event):
            self.open_panel()
            return True
        return super().eventFilter(watched, event)

    def _on_chosen(self, model: str) -> None:
        """Set the model that was selected in the panel, and return the focus to the text field."""
        self.set_value(model)
        self.line.setFocus(Qt.FocusReason.OtherFocusReason)

    def _make_completer(self) -> QCompleter:
        """Create the completer, which offers models whose titles or ids contain the typed text."""
        completer = QCompleter(self)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.setMaxVisibleItems(14)
        popup = completer.popup()
        assert popup is not None
        popup.setAccessibleName(tr("Models that match"))
        popup.setMinimumWidth(_COMPLETIONS_WIDTH)
        completer.activated.connect(self._on_completed)
        return completer

    def _on_completed(self, text: str) -> None:
        """Set the model whose completion `text` the user has selected."""
        # The completer sets its text after this signal, so set the id in the next iteration of the event loop.
        QTimer.singleShot(0, self, lambda: self.set_value(self._ids_by_completion.get(text, text)))


def _is_alt_down(event: QKeyEvent) -> bool:
    return event.key() == Qt.Key.Key_Down and bool(event.modifiers() & Qt.KeyboardModifier.AltModifier)
