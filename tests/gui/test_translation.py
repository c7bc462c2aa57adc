"""Check that texts of the window are passed to `tr`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

GUI = Path(__file__).parents[2] / "gui"
SHOWN = re.compile(
    "setText|setToolTip|setAccessibleName|setAccessibleDescription|setTitle|setWindowTitle|setStatusTip|setTabText|"
    "setTabToolTip|setPlaceholderText|setSuffix|addAction|addMenu|addTab|QLabel|QPushButton|QCheckBox|QRadioButton|"
    "QGroupBox|QAction|push_button|heading_label|muted_label|caption|show_message|show_note|show_text|set_suffix|"
    "show_idle|set_headline"
)
"""Functions whose positional arguments are displayed, apart from icons and severities."""
NOT_SHOWN = re.compile(
    "tr|counted|cast|Thread|setObjectName|setProperty|debug|info|warning|error|critical|log|strftime|setStyleSheet"
)
"""Functions whose arguments are translated or not displayed."""
ALLOWED = {
    "Footplate", "{}% · {} · Footplate", "info", "ok", "warning", "error", "accent", "welcome", "night shift", "to do",
    "model file", "unreadable file", "standard error", "{} min", "search {}", "Read as ",
    "footplate: opening another window, since {}.",
}  # fmt: skip
"""Names, severities, values that aren't displayed, units, and texts of the terminal."""
WORD = re.compile(r"[A-Za-z][a-z]{2,}")
PHRASE = re.compile(r"[A-Za-z][a-z]+ [a-z]{2,}")


def find_untranslated(node: ast.AST, is_shown: bool = False) -> Iterator[str]:
    """Yield the texts in `node` that should be passed to `tr`. `is_shown` is True for arguments of such functions."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        has_words = WORD.search(text) and (is_shown or " " in text) and "\n" not in text and "<" not in text
        if has_words or re.search(r"\btr\(", ast.unparse(node)):  # lupdate doesn't find tr in f-strings
            yield text
        for part in [part for part in node.values if isinstance(part, ast.FormattedValue)]:
            yield from find_untranslated(part.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if "\n" not in node.value and (PHRASE.search(node.value) or (is_shown and WORD.search(node.value))):
            yield node.value
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if not NOT_SHOWN.fullmatch(name):
            for child in ast.iter_child_nodes(node):
                yield from find_untranslated(child, child in node.args and bool(SHOWN.fullmatch(name)))
    elif not isinstance(node, ast.Raise | ast.Assert | ast.Constant):
        is_choice = isinstance(node, ast.IfExp | ast.BoolOp | ast.BinOp)
        for child in ast.iter_child_nodes(node):
            yield from find_untranslated(child, is_shown and is_choice)


def test_texts_are_passed_to_tr() -> None:
    found = {str(file): set(find_untranslated(ast.parse(file.read_text()))) - ALLOWED for file in GUI.rglob("*.py")}
    assert {file: texts for file, texts in found.items() if texts} == {}
