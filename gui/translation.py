"""Translation of the window's texts.

`pyside6-lupdate FILES -ts FILE` collects every text that is passed to `tr`, with an empty context.
"""

from PySide6.QtCore import QCoreApplication


def tr(text: str) -> str:
    """Translate a text with the installed translator, or return it unchanged.

    Tables at module and class level are translated at import, so install the translator before importing pages.
    """
    return QCoreApplication.translate("", text)
