"""Tests of the script that measures the benchmarks again and updates the table of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import report

UNCHANGED = {"name": "kept", "what": "What is kept", "aim": "1", "command": "-c 1/0", "line": "", "measured": "0.9", "date": "2026-01-02", "machine": "an old one"}  # fmt: skip


def entry(name: str, command: str, line: str = "") -> dict[str, str]:
    return {**UNCHANGED, "name": name, "command": command, "line": line}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    made = tmp_path / "README.md"
    made.write_text(f"# Figures\n\n{report.START}old\n{report.END}\nMore.\n")
    return made


def rows(page: Path) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    return {line[0]: line for line in lines}


def test_report_updates_chosen_lines_only(page: Path, tmp_path: Path) -> None:
    figures_file = tmp_path / "figures.json"
    quick = entry("quick", """-c 'print("a"); print("half: 0.5"); print("last | 0.7")'""")
    missed = entry("missed", """-c 'print("half: 0.5"); print("rest"); exit(1)'""", "^half")
    figures_file.write_text(json.dumps([UNCHANGED, quick, missed]))
    assert report.update_report(page, figures_file, ["quick", "missed"], "a new one") == 0
    text = page.read_text()
    assert text.startswith("# Figures\n\n")
    assert text.endswith(f"{report.END}\nMore.\n")
    assert "old\n<" not in text
    assert rows(page)["kept"][3:5] == ["0.9", "2026-01-02, machine 1"]
    assert rows(page)["quick"][3] == "last / 0.7"
    assert rows(page)["quick"][4].endswith(", machine 2")
    assert rows(page)["missed"][3] == "half: 0.5 (aim missed)"
    assert "1. an old one\n2. a new one\n" in text
    before = page.read_text()
    assert report.update_report(page, figures_file, [], "another") == 0
    assert page.read_text() == before


def test_failed_command_keeps_its_line(page: Path, tmp_path: Path) -> None:
    figures_file = tmp_path / "figures.json"
    figures_file.write_text(json.dumps([UNCHANGED]))
    assert report.update_report(page, figures_file, ["kept"], "a new one") == 1
    assert rows(page)["kept"][3:5] == ["0.9", "2026-01-02, machine 1"]


def test_table_shows_saved_results() -> None:
    figures = json.loads(report.FIGURES.read_text())
    assert report.START + report.format_table(figures) + report.END in report.PAGE.read_text()
    assert len({figure["name"] for figure in figures}) == len(figures)
    assert all("|" not in value for figure in figures for key, value in figure.items() if key != "line")


def test_commands_name_existing_scripts() -> None:
    for figure in json.loads(report.FIGURES.read_text()):
        arguments = (
            argument.replace(".", "/") + ".py" if argument.startswith("tests.") else argument
            for argument in figure["command"].split()
        )
        assert (report.ROOT / next(argument for argument in arguments if argument.endswith(".py"))).is_file()
