"""Golden files, which contain the expected texts of several tests in sections."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.contract.problems import Problem


def check_file(golden: Path, text: str) -> None:
    """Compare a text with a golden file line by line.

    If the environment variable FOOTPLATE_WRITE_TEXTS is set, write the text to the file first.
    """
    if "FOOTPLATE_WRITE_TEXTS" in os.environ:
        golden.write_text(text, encoding="utf-8")
    _assert_equal_lines(text, golden.read_text(encoding="utf-8"))


def _assert_equal_lines(text: str, expected: str) -> None:
    """Assert that two texts are equal. The error message is a diff, since pytest explains only asserts of test files."""
    lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), "golden file", "text", n=1, lineterm="")
    difference = "\n".join(lines)
    assert not difference, difference


def check_section(golden: Path, name: str, text: str) -> None:
    """Compare a text with the section `name` of a golden file.

    If the environment variable FOOTPLATE_WRITE_TEXTS is set, write the section instead.
    """
    current = f"[{name}]\n{text.rstrip()}\n\n"
    content = golden.read_text(encoding="utf-8") if golden.exists() else ""
    section = re.compile(rf"^\[{re.escape(name)}\]\n.*?\n\n(?=\[|\Z)", re.MULTILINE | re.DOTALL)
    if "FOOTPLATE_WRITE_TEXTS" in os.environ:
        is_known = section.search(content) is not None
        written = section.sub(lambda _match: current, content) if is_known else content + current
        golden.write_text(written, encoding="utf-8")
    else:
        (expected,) = section.findall(content)
        _assert_equal_lines(current, expected)


def check_problems(golden: Path, name: str, cases: Mapping[str, Iterable[Problem]], folder: Path) -> None:
    """Compare the problems of several cases with the section `name` of a golden file.

    `cases` maps a description of each case to its problems. The paths of `folder`, of the source tree and of the Python
    interpreter are replaced by placeholders, because they differ between machines.
    """
    lines: list[str] = []
    for case, problems in cases.items():
        lines.append(f"{case}:")
        for each in problems:
            choices = [f"“{choice.title}” sets {dict(choice.values)}" for choice in each.choices]
            lines.append("; ".join([f"  {each.severity} of {each.field}: {each}", *choices]))
    text = "\n".join(lines)
    paths = {str(folder): "FOLDER", sys.executable: "PYTHON", str(Path(__file__).parents[2]): "ROOT"}
    for path, replacement in paths.items():
        text = text.replace(path, replacement)
    check_section(golden, name, text)
