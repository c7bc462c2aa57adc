"""Warnings about names of classes. Torch-free."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from engine.contract.problems import Problem
from engine.data.splits import warn

_MOST_SHOWN = 3
_BETWEEN_WORDS = re.compile(r"[\s_-]+")


def similar_names(classes: Sequence[str]) -> list[Problem]:
    """Return a warning about names that differ only in case, in their Unicode form or between their words.

    Names of one letter are left alone: letters to recognize differ in their case.
    """
    groups: dict[str, list[str]] = {}
    for name in classes:
        if len(name) > 1:
            groups.setdefault(_key(name), []).append(name)
    similar = [" and ".join(map(_visible, group)) for group in groups.values() if len(group) > 1]
    if not similar:
        return []
    named = "; ".join(similar[:_MOST_SHOWN]) + ("; …" if len(similar) > _MOST_SHOWN else "")
    message = f"Some classes have nearly the same name: {named}."
    return [warn(message, "They are learned as different classes; give them one name if they are the same.")]


def _key(name: str) -> str:
    return _BETWEEN_WORDS.sub(" ", unicodedata.normalize("NFKC", name).casefold()).strip()


def _visible(name: str) -> str:
    """Return a name in quotes, with accents that are separate characters as codes."""
    return "“" + "".join(f"\\u{ord(each):04x}" if unicodedata.combining(each) else each for each in name) + "”"
