"""Colors, fonts and style sheet of the light and dark themes, with an accent color and a color per device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from string import Template

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QFontMetrics, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QLabel

from engine.contract.devices import CPU, is_gpu


@dataclass(frozen=True)
class Colors:
    """Colors of a theme as hex strings. Text colors have a contrast of at least 4.5 to 1 on `panel`."""

    window: str
    panel: str
    raised: str
    border: str
    grid: str
    text: str
    muted: str
    accent: str
    accent_text: str
    ok: str
    warning: str
    error: str


LIGHT = Colors(
    window="#eceff3",
    panel="#ffffff",
    raised="#f4f6f9",
    border="#cdd4de",
    grid="#e2e7ee",
    text="#1b222d",
    muted="#5a6678",
    accent="#1f5fd0",
    accent_text="#ffffff",
    ok="#1a7a45",
    warning="#8f5a00",
    error="#c0262d",
)
DARK = Colors(
    window="#12161c",
    panel="#1a2029",
    raised="#242c38",
    border="#364152",
    grid="#2a3340",
    text="#e6eaf0",
    muted="#9aa7b8",
    accent="#6ea4ff",
    accent_text="#0c1422",
    ok="#57c98a",
    warning="#f0b44c",
    error="#ff7b7b",
)

# Colors by Okabe and Ito (2008), which people with color blindness can distinguish, made darker or lighter for contrast with
# the panel. Black and yellow are missing, because they are used for text and warnings. The single CPU is gray.
_DEVICES_LIGHT = ("#0072b2", "#d55e00", "#008f6b", "#b3568f", "#2f93c8", "#a86f00", "#6a51a3", "#6b7a00")
_DEVICES_DARK = ("#4da3e0", "#ff8a3c", "#2fc79b", "#e08fbd", "#8fd0f5", "#e5b24a", "#b09ce6", "#c3cf4e")
_CPU_LIGHT, _CPU_DARK = "#4d5666", "#a9b4c4"


class Notifier(QObject):
    """Source of theme changes.

    Signals:
        changed(): palette, font and style sheet have been replaced.
    """

    changed = Signal()


notifier = Notifier()
_color_indices: dict[str, int] = {}
"""Indices of the devices' colors in the sequence of colors, by key."""


_USUAL_PIXELS = 12
"""Font size in pixels at a scale of 1: 9 points at 96 dots per inch. Pixel sizes in the code are for this font size."""


@dataclass
class _Choices:
    """User's choices: the scheme ("light", "dark" or "system") and the text size in percent.

    `base` is the font at 100%, or None before `initialize` is called. `base_pixels` is its size.
    """

    scheme: str = "system"
    text_percent: int = 100
    base: QFont | None = None
    base_pixels: int = _USUAL_PIXELS


_chosen = _Choices()


def choose(scheme: str, text_percent: int) -> None:
    """Set the scheme ("system", "light" or "dark") and the text size, and redraw the window."""
    if (scheme, text_percent) == (_chosen.scheme, _chosen.text_percent):
        return
    _chosen.scheme, _chosen.text_percent = scheme, text_percent
    app = QApplication.instance()
    if isinstance(app, QApplication) and _chosen.base is not None:
        _repaint(app)


def is_dark() -> bool:
    """Return True if the theme is dark, by the user's choice or the desktop's."""
    if _chosen.scheme != "system":
        return _chosen.scheme == "dark"
    app = QGuiApplication.instance()
    if not isinstance(app, QGuiApplication):
        return False
    scheme = app.styleHints().colorScheme()
    return _first_palette_is_dark() if scheme == Qt.ColorScheme.Unknown else scheme == Qt.ColorScheme.Dark


@lru_cache(maxsize=1)
def _first_palette_is_dark() -> bool:
    """Return True if the palette was dark at the start. Used on desktops that don't report their scheme."""
    initial = QGuiApplication.palette()
    return initial.window().color().lightness() < initial.windowText().color().lightness()


def colors() -> Colors:
    """Return the colors of the current scheme."""
    return DARK if is_dark() else LIGHT


def register_devices(keys: Iterable[str]) -> None:
    """Assign colors to devices in the order of `keys`. Devices that have a color keep it."""
    for key in keys:
        _color_indices.setdefault(key, len(_color_indices))


def device_color(key: str) -> str:
    """Return the color of a device, which is the same in all graphs.

    The key is a GPU's UUID or "cpu", with the prefix "host:" on a remote host. A GPU without a color gets the next one.
    """
    if not is_gpu(key):
        return _CPU_DARK if is_dark() else _CPU_LIGHT
    register_devices([key])
    return series_color(_color_indices[key])


def device_is_dashed(key: str) -> bool:
    """Return True if the device's lines are dashed because another device has the same color.

    This applies to remote CPUs, and from the ninth GPU on.
    """
    if not is_gpu(key):
        return key != CPU
    register_devices([key])
    return series_is_dashed(_color_indices[key])


def series_color(index: int) -> str:
    """Return the color of the series at `index`. Colors repeat from the ninth series on."""
    device_colors = _DEVICES_DARK if is_dark() else _DEVICES_LIGHT
    return device_colors[index % len(device_colors)]


def series_is_dashed(index: int) -> bool:
    """Return True if the lines of the series are dashed because another series has the same color."""
    return index // len(_DEVICES_LIGHT) % 2 == 1


def with_tabular_digits(font: QFont) -> QFont:
    """Return `font` with digits of equal width, so that changing numbers don't move."""
    copy = QFont(font)
    copy.setFeature(QFont.Tag("tnum"), 1)
    return copy


def scale_pixels(pixels: int) -> int:
    """Scale a number of pixels with the size of texts: the desktop's font and the user's percentage."""
    return round(pixels * _chosen.text_percent / 100 * _chosen.base_pixels / _USUAL_PIXELS)


def scale_with_text(set_size: Callable[[int], object], pixels: int) -> None:
    """Set a size of a widget now and whenever the text size changes.

    `set_size` is a bound method of the widget, such as its `setFixedWidth`. `pixels` is the size at a text size of
    100%.
    """
    _ScaledSize(set_size, pixels)


class _ScaledSize(QObject):
    """Child object that scales a size of its parent widget when the text size changes."""

    def __init__(self, set_size: Callable[[int], object], pixels: int) -> None:
        """Set the size. `set_size` is a bound method of the widget, which becomes the parent of this object.

        This object is therefore deleted with the widget.
        """
        super().__init__(set_size.__self__)  # type: ignore[attr-defined]
        self._set_size, self._pixels = set_size, pixels
        notifier.changed.connect(self._apply)
        self._apply()

    def _apply(self) -> None:
        self._set_size(scale_pixels(self._pixels))


def set_kind(label: QLabel, kind: str) -> None:
    """Set the style of a label, such as "muted" or "warning", or "" for plain text."""
    if label.objectName() != kind:
        label.setObjectName(kind)
        label.style().polish(label)


def initialize(app: QApplication, scheme: str, text_percent: int) -> None:
    """Set Qt's style, the scheme ("light", "dark" or "system") and the font, scaled to `text_percent`.

    Call this before the first widget is created, because Qt passes a new font on to existing widgets only while its
    event loop runs.
    """
    app.setStyle("Fusion")
    _chosen.base = _chosen.base or with_tabular_digits(app.font())
    _chosen.base_pixels = QFontInfo(_chosen.base).pixelSize()
    _chosen.scheme, _chosen.text_percent = scheme, text_percent
    app.setFont(_make_font())


def apply(app: QApplication) -> None:
    """Set the style, font, palette and style sheet, and follow the desktop's color scheme."""
    if _chosen.base is None:  # a second style would cost as much as the style sheet
        initialize(app, _chosen.scheme, _chosen.text_percent)
    _apply_to_widgets(app)
    app.styleHints().colorSchemeChanged.connect(lambda _scheme: _repaint(app))


def _repaint(app: QApplication) -> None:
    """Apply the current theme to all widgets, and emit `notifier.changed`."""
    _apply_to_widgets(app)
    notifier.changed.emit()


def _apply_to_widgets(app: QApplication) -> None:
    """Apply the font, the palette and the style sheet to all widgets."""
    # Qt gives all widgets a style sheet in a third of the time that it takes to replace theirs.
    app.setStyleSheet("")
    app.setFont(_make_font())
    app.setPalette(palette(colors()))
    app.setStyleSheet(style_sheet(colors()))


def _make_font() -> QFont:
    """Return the font of the application, in the size that the user has chosen."""
    font = QFont(_chosen.base or QFont())
    font.setPointSizeF(font.pointSizeF() * _chosen.text_percent / 100)
    return font


def palette(scheme: Colors) -> QPalette:
    """Create a Qt palette with the colors of `scheme`."""
    result = QPalette()
    role = QPalette.ColorRole
    for color_role, color in (
        (role.Window, scheme.window),
        (role.WindowText, scheme.text),
        (role.Base, scheme.panel),
        (role.AlternateBase, scheme.raised),
        (role.Text, scheme.text),
        (role.Button, scheme.raised),
        (role.ButtonText, scheme.text),
        (role.BrightText, scheme.error),
        (role.ToolTipBase, scheme.raised),
        (role.ToolTipText, scheme.text),
        (role.PlaceholderText, scheme.muted),
        (role.Highlight, scheme.accent),
        (role.HighlightedText, scheme.accent_text),
        (role.Link, scheme.accent),
        (role.Light, scheme.raised),
        (role.Midlight, scheme.raised),
        (role.Mid, scheme.border),
        (role.Dark, scheme.border),
        (role.Shadow, scheme.border),
        (role.Accent, scheme.accent),
    ):
        result.setColor(color_role, QColor(color))
    for color_role in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, color_role, QColor(scheme.muted))
    return result


def style_sheet(scheme: Colors) -> str:
    """Create the application's style sheet with the colors of `scheme`."""
    icons = Path(str(files("resources"))).as_posix() + "/icons"
    font = _make_font()
    points = font.pointSizeF()
    # Qt uses it as the minimum height of a control, even if the text needs more. Fields are as high as icon buttons.
    line = max(20, QFontMetrics(font).height(), scale_pixels(16) + 4)
    sizes = {
        "title": f"{1.2 * points:.1f}pt",
        "welcome": f"{1.7 * points:.1f}pt",
        "line": f"{line}px",
        "code": QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family(),
    }
    sizes |= {f"px{pixels}": f"{scale_pixels(pixels)}px" for pixels in _SCALED_PIXELS}
    return Template(_STYLE).substitute(
        asdict(scheme) | sizes, icons=icons, check="check-dark" if scheme is DARK else "check-light"
    )


_SCALED_PIXELS = (9, 10, 12, 14, 16, 18, 22)
"""Sizes of icons and indicators that grow with the text. The style sheet refers to them as in "$px14"."""

# Names can come from anywhere, and Qt renders whatever looks like HTML: an <img> that refers to a FIFO would block the window
# forever. Therefore, all labels and tool tips draw plain text. The format is set before their text is first laid out.
_STYLE = """
QLabel, QToolTip { qproperty-textFormat: PlainText; }
RichLabel { qproperty-textFormat: RichText; }
QWidget { color: $text; }
QDialogButtonBox { dialogbuttonbox-buttons-have-icons: 0; }
QMainWindow, QWidget#window { background: $window; }
QFrame#panel, QWidget#panel, QScrollArea#panel, QScrollArea#panel > QWidget > QWidget { background: $panel; }
QFrame#card { background: $raised; border: 1px solid $border; border-radius: 6px; }
QFrame#row, QFrame#checked-row { background: $panel; border: 1px solid $border; border-radius: 5px; }
QFrame#row:hover { background: $raised; }
QFrame#checked-row { background: $raised; border-color: $accent; }
QFrame#card QLabel, QFrame#row QLabel, QFrame#checked-row QLabel { background: transparent; }
QLabel#muted { color: $muted; }
QLabel#heading { font-weight: 600; }
QLabel#title { font-weight: 600; font-size: $title; }
QLabel#welcome { font-weight: 600; font-size: $welcome; }
QLabel#section { font-weight: 600; color: $accent; border-bottom: 1px solid $border; padding: 10px 0 4px 0; }
#code { font-family: "$code"; }
QDialog#palette { background: $panel; border: 1px solid $border; }
QDialog#palette QListView { border: none; }
QLabel#error { color: $error; }
QLabel#warning { color: $warning; }
QLabel#ok { color: $ok; }
QLabel#drop { background: $raised; border: 3px dashed $accent; font-weight: 600; font-size: $title; }
QLabel#badge { background: $warning; color: $panel; border-radius: 7px; padding: 0 6px; font-weight: 600; }
QSplitter::handle { background: $window; }
QSplitter::handle:hover { background: $accent; }
QLineEdit, QComboBox, QSpinBox, QDoubleSpinBox, QPlainTextEdit {
    background: $panel; border: 1px solid $border; border-radius: 5px; padding: 4px 7px; min-height: $line;
    selection-background-color: $accent; selection-color: $accent_text;
}
QLineEdit:focus, QComboBox:focus, QSpinBox:focus, QDoubleSpinBox:focus, QPlainTextEdit:focus {
    border: 2px solid $accent; padding: 3px 6px;
}
QLineEdit { padding: 4px 5px; }
QLineEdit:focus { padding: 3px 4px; }
QLineEdit[severity="error"], QComboBox[severity="error"], QSpinBox[severity="error"] { border-color: $error; }
QLineEdit[severity="warning"], QComboBox[severity="warning"], QSpinBox[severity="warning"] { border-color: $warning; }
QLineEdit:disabled, QComboBox:disabled, QSpinBox:disabled { color: $muted; background: $raised; }
QLineEdit:read-only { background: $raised; }
QComboBox { combobox-popup: 0; }
QComboBox QAbstractItemView::item { min-height: $line; padding: 2px 6px; }
QComboBox::drop-down { border: none; width: $px22; }
QComboBox::down-arrow { image: url($icons/arrow-down.svg); width: $px12; height: $px12; }
QSpinBox, QDoubleSpinBox { padding: 2px $px18 3px 0; }
QSpinBox:focus, QDoubleSpinBox:focus { padding: 1px $px18 2px 0; }
QSpinBox::up-button, QDoubleSpinBox::up-button {
    subcontrol-origin: border; subcontrol-position: top right; border: none; background: transparent; width: $px18;
}
QSpinBox::down-button, QDoubleSpinBox::down-button {
    subcontrol-origin: border; subcontrol-position: bottom right; border: none; background: transparent; width: $px18;
}
QSpinBox::up-arrow, QDoubleSpinBox::up-arrow { image: url($icons/arrow-up.svg); width: $px10; height: $px10; }
QSpinBox::down-arrow, QDoubleSpinBox::down-arrow { image: url($icons/arrow-down.svg); width: $px10; height: $px10; }
QTabBar { background: transparent; }
QTabBar::tab {
    background: transparent; border: 2px solid transparent; border-bottom: 2px solid transparent;
    color: $muted; font-weight: 600; padding: 7px 14px; margin: 0;
}
QTabBar#runs::tab { padding: 7px 8px 7px 14px; }
QTabBar#parts::tab { padding: 7px 9px; }
QTabBar::tab:hover { color: $text; }
QTabBar::tab:selected { color: $text; border-bottom: 2px solid $accent; }
QTabBar::tab:selected:focus { border: 2px solid $accent; border-radius: 4px; }
QComboBox QAbstractItemView { background: $panel; border: 1px solid $border; outline: none; }
QPushButton, QToolButton {
    background: $raised; border: 1px solid $border; border-radius: 5px; padding: 5px 12px; min-height: $line;
}
QToolButton { padding: 3px 7px 2px 7px; qproperty-iconSize: $px16 $px16; }
QPushButton, QTabBar { icon-size: $px16; }
QPushButton:hover, QToolButton:hover { border-color: $accent; }
QPushButton:pressed, QToolButton:pressed { background: $border; }
QPushButton:focus, QToolButton:focus { border: 2px solid $accent; padding: 4px 11px; }
QToolButton:focus { padding: 2px 6px 1px 6px; }
QPushButton:disabled, QToolButton:disabled { color: $muted; background: $panel; }
QPushButton#primary {
    background: $accent; color: $accent_text; border: 2px solid $accent; font-weight: 600; padding: 7px 14px;
}
QPushButton#primary:focus { border: 2px solid $text; }
QPushButton#primary:disabled { background: $raised; color: $muted; border: 2px solid $border; }
QToolButton#flat, QToolButton#fold { background: transparent; border: 2px solid transparent; padding: 2px 4px 1px 4px; }
QToolButton#link { background: transparent; border: 2px solid transparent; padding: 0; min-height: 0; color: $accent; }
QToolButton#link:hover { background: $raised; }
QToolButton#link:focus { border-color: $accent; }
QToolButton#link:disabled { color: $muted; }
QToolButton#fold { font-weight: 600; text-align: left; padding: 3px 0; margin: 0; }
QToolButton#flat:hover, QToolButton#fold:hover { background: $raised; }
QToolButton#flat:focus { border: 2px solid $accent; padding: 2px 4px 1px 4px; }
QToolButton#fold:focus { border: 2px solid $accent; padding: 3px 0; }
QToolButton#flat:checked { color: $text; }
QToolButton:checked { border-color: $accent; color: $accent; }
QToolButton::menu-indicator { image: none; }
QCheckBox, QRadioButton { spacing: 6px; border: 2px solid transparent; border-radius: 4px; }
QRadioButton:focus { border-color: $accent; }
QCheckBox::indicator {
    width: $px14; height: $px14; border: 1px solid $muted; border-radius: 3px; background: $panel;
}
QCheckBox::indicator:hover { border-color: $accent; }
QCheckBox::indicator:checked {
    background: $accent; border-color: $accent; image: url($icons/$check.svg);
}
QCheckBox::indicator:focus { border: 2px solid $accent; }
QCheckBox::indicator:checked:focus { border: 2px solid $text; }
QCheckBox::indicator:disabled { border-color: $border; background: $raised; }
QSlider { border: 2px solid transparent; border-radius: 4px; }
QSlider:focus { border-color: $accent; }
QProgressBar { background: $raised; border: 1px solid $border; border-radius: 4px; text-align: center; }
QProgressBar::chunk { background: $accent; border-radius: 3px; }
QScrollArea { border: none; background: transparent; }
QHeaderView { background: $panel; border: none; }
QTableCornerButton::section { background: $raised; border: none; border-bottom: 1px solid $border; }
QHeaderView::section {
    background: $raised; color: $muted; border: none; border-bottom: 1px solid $border; padding: 5px 8px;
}
QHeaderView::up-arrow, QHeaderView::down-arrow {
    subcontrol-position: top center; subcontrol-origin: padding; width: $px9; height: $px9;
}
QHeaderView::up-arrow { image: url($icons/arrow-up.svg); }
QHeaderView::down-arrow { image: url($icons/arrow-down.svg); }
QTableView, QTreeView, QListView {
    qproperty-iconSize: $px16 $px16; background: $panel; alternate-background-color: $raised;
    border: 1px solid $border; padding: 1px; outline: none;
    gridline-color: $grid; selection-background-color: $accent; selection-color: $accent_text;
}
QTableView:focus, QTreeView:focus, QListView:focus { border: 2px solid $accent; padding: 0; }
QTextBrowser { border: 2px solid transparent; }
QTextBrowser:focus { border-color: $accent; }
QTreeView#settings::item { padding: 3px 0; }
QToolTip { background: $raised; color: $text; border: 1px solid $border; padding: 4px; }
QMenuBar { background: $panel; border-bottom: 1px solid $border; padding: 2px 8px; }
QMenuBar::item { background: transparent; padding: 4px 10px; border-radius: 4px; }
QMenuBar::item:selected { background: $raised; }
QMenu { background: $panel; border: 1px solid $border; padding: 4px 0; }
QMenu::item { padding: 5px 24px 5px 12px; }
QMenu { icon-size: $px16; }
QMenu::icon { padding-left: 10px; }
QMenu::item:selected { background: $accent; color: $accent_text; }
QMenu::item:disabled { color: $muted; }
QMenu::separator { background: $border; height: 1px; margin: 4px 10px; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; }
QScrollBar::handle { background: $border; border-radius: 4px; min-height: 24px; min-width: 24px; }
QScrollBar::handle:hover { background: $muted; }
QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {
    background: transparent; width: 0; height: 0;
}
"""
