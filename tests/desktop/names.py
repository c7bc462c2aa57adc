"""Search for controls that lack the names that screen readers need."""

from __future__ import annotations

from collections.abc import Iterator

from tests.desktop.window import Node

CONTROLS = frozenset((
    "button", "push button", "check box", "radio button", "toggle button", "combo box", "text", "entry", "spin box", "button menu",
    "slider", "page tab", "page tab list", "list", "table", "tree table", "menu item", "link", "progress bar",
))  # fmt: skip
VAGUE = frozenset(("", "invalid", "unknown", "filler", "panel", "client"))
"""Roles that don't describe the purpose of an object."""
_PARTS_OF = frozenset(("combo box", "spin box", "table", "list", "tree table"))
"""Roles whose components don't need a separate name, such as the text field of a combo box."""


def find_unnamed_controls(window: Node) -> Iterator[str]:
    """Yield a message for each control without a name, and for each custom-drawn widget without a description.

    Qt has no accessibility role for custom-drawn widgets such as plots.
    """
    for node, above in _with_ancestors(window, ()):
        surface = node.role in VAGUE and not node.children and above and above[-1].name
        if surface or (above and above[-1].role in _PARTS_OF):
            continue
        # Its accessible name is the selected entry.
        if node.role == "combo box" and not (node.labeled or node.description):
            yield f"without a label: {node} {node.box} in {_where(above)}"
        reached = "focusable" in node.states
        if (node.role in CONTROLS or reached) and not node.name.strip():
            yield f"without a name: {node.role} {node.box} in {_where(above)}"
        elif reached and node.role in VAGUE and not (node.children or node.description.strip()):
            yield f"without a role or a description: {node} {node.box} in {_where(above)}"


def _with_ancestors(node: Node, above: tuple[Node, ...]) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    yield node, above
    for child in node.children:
        yield from _with_ancestors(child, (*above, node))


def _where(above: tuple[Node, ...]) -> str:
    return " › ".join(str(node) for node in above if node.name)
