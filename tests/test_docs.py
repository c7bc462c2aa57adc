"""Check that links, commands and paths in the README and the user guide are valid."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cli.main import create_parser

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "resources" / "docs"
PAGES = sorted(DOCS.glob("*.md"))
PICTURES = sorted(DOCS.glob("images/*.png"))
TEXTS = [ROOT / "README.md", ROOT / "tests/benchmarks/README.md", *PAGES]
LINK = re.compile(r"\]\(([^)]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?:engine|gui|resources|tests|\.ci)/[\w./-]*\w")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def list_code(path: Path) -> Iterator[str]:
    """Yield all code on a page, including inline code."""
    for block in CODE.findall(path.read_text()):
        yield from (line.strip() for line in block.strip("`").splitlines())


def list_headings(path: Path) -> set[str]:
    """Return the anchors of the headings on a page."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w]+", "-", title.lower()) for title in titles}


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_links_resolve(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith("https://"):
            continue
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        assert target.is_file(), link
        assert not heading or heading in list_headings(target), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_help_follows_links(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        target = DOCS / link.partition("#")[0]
        assert link.startswith(("https://", "#")) or target in PAGES or target in PICTURES, link


def test_images_are_small_and_used() -> None:
    linked = {DOCS / link for page in PAGES for link in LINK.findall(page.read_text()) if link.endswith(".png")}
    assert linked == set(PICTURES)
    assert [picture.name for picture in PICTURES if picture.stat().st_size > 120_000] == []


def test_pages_are_in_the_contents() -> None:
    listed = set(LINK.findall((DOCS / "index.md").read_text()))
    assert listed == {page.name for page in PAGES} - {"index.md"}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_source_paths_exist(page: Path) -> None:
    """Check the paths in code on `page`. Paths that contain NAME are placeholders."""
    for line in list_code(page):
        for path in PATH.findall(line):
            assert "NAME" in path or (ROOT / path).exists(), path


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_commands_parse(page: Path) -> None:
    commands = create_parser()
    for line in list_code(page):
        if line.startswith("footplate "):
            check_command(commands, shlex.split(line.partition(" > ")[0], comments=True)[1:], line)
        elif line.startswith("--"):
            assert re.match(r"--[\w-]+", line)[0] in list_flags(commands), line


def check_command(commands: argparse.ArgumentParser, arguments: list[str], line: str) -> None:
    """Check that the command line `line` consists of known subcommands and flags.

    `arguments` is the command line as a list, without the program.
    """
    while arguments and (subcommands := subcommands_of(commands)) and not arguments[0].startswith("-"):
        assert arguments[0] in subcommands, line
        commands = subcommands[arguments.pop(0)]
    known = commands._option_string_actions
    assert [
        argument for argument in arguments if argument.startswith("--") and argument.partition("=")[0] not in known
    ] == [], line


def subcommands_of(commands: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(a.choices) for a in commands._actions if isinstance(a, argparse._SubParsersAction)), {})


def list_flags(commands: argparse.ArgumentParser) -> set[str]:
    """Return the flags of all Footplate commands, and of the scripts in `tests` that pages mention."""
    deeper = [list_flags(each) for each in subcommands_of(commands).values()]
    scripts = ("tests/gpu/runner.py", "tests/long", "tests/benchmarks/report.py")
    of_scripts = {flag for name in scripts for flag in re.findall(r'"(--[\w-]+)"', (ROOT / name).read_text())}
    return set(commands._option_string_actions).union(of_scripts, *deeper)


@pytest.mark.parametrize(
    "line", ["footplate trian DATASET", "footplate train DATASET --modle resnet18", "footplate queue upp RUN"]
)
def test_invalid_command_is_noticed(line: str) -> None:
    with pytest.raises(AssertionError):
        check_command(create_parser(), line.split()[1:], line)
