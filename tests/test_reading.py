"""Check that untrusted files and the output of commands are read only by modules that limit how much they read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(file for room in ("engine", "gui") for file in (ROOT / room).rglob("*.py"))
READERS = {
    "engine/system/files.py": "the bounded reader",
    "engine/system/regular_files.py": "its counterpart for datasets",
    "engine/data/decoding/header_check.py": "opens as it does, without its error texts",
    "engine/data/cache/cache_space.py": "locks and files of Footplate's cache",
    "engine/data/cache/cached_images.py": "files of Footplate's cache",
    "engine/system/file_locks.py": "locks",
    "engine/system/paths.py": "opens files to write them",
    "engine/supervisor/event_log.py": "reads its own descriptor",
    "engine/supervisor/execution.py": "locks the run's folder",
    "engine/advisor/memory.py": "/proc and /sys",
    "engine/supervisor/environment.py": "/proc and /sys",
    "engine/system/loopback.py": "/proc",
    "engine/gpus/nvml/driver_files.py": "/proc and /sys",
    "engine/training/checkpointing/checkpoint_files.py": "flushes folders",
    "engine/advisor/advice/trial_worker.py": "flushes a file that it has written",
    "engine/catalogue.py": "a file of Footplate",
    "engine/processes/group.py": "opens a device of the driver without reading it",
    "engine/system/numa.py": "/sys",
}


def find_read_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that open a file for reading, except files of the system and of Footplate's package."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node)
        if "'/proc/" in text or "os.devnull" in text or "files(" in text or ".joinpath(" in text:
            continue
        texts = [value.value for value in node.args if isinstance(value, ast.Constant)]
        modes = [each for each in texts[-1:] if isinstance(each, str)]
        is_written = any(mode.startswith(("w", "a", "x")) and "+" not in mode for mode in modes)
        match node.func:
            case ast.Attribute(attr="read_bytes" | "read_text"):
                yield node
            case ast.Attribute(attr="open", value=ast.Name(id="os")):
                yield node
            case ast.Name(id="open") if not is_written:
                yield node
            case ast.Attribute(attr="open") if modes and modes[0] in ("r", "rb", "rt"):
                yield node


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("path.read_bytes()", True),
        ("path.open('rb')", True),
        ("open(path)", True),
        ("open(path, 'r+b')", True),
        ("os.open(path, os.O_RDONLY)", True),
        ("open(path, 'wb', opener=open_private)", False),
        ("read_text(path)", False),
        ("Path('/proc/cpuinfo').read_text()", False),
    ],
)
def test_rule_finds_unbounded_readers(code: str, found: bool) -> None:
    assert bool(list(find_read_calls(ast.parse(code)))) is found


def test_only_bounded_readers_open_files() -> None:
    found = {
        f"{name}:{call.lineno}: {ast.unparse(call)}"
        for file in FILES
        if (name := file.relative_to(ROOT).as_posix()) not in READERS
        for call in find_read_calls(ast.parse(file.read_text()))
    }
    assert found == set()


def find_captured_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield calls that capture the output of a command."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="check_output" | "communicate")):
                yield node
            case ast.Call(func=ast.Attribute(attr="run", value=ast.Name(id="subprocess")), keywords=keywords):
                if any(each.arg == "capture_output" or "PIPE" in ast.unparse(each.value) for each in keywords):
                    yield node


def test_only_bounded_reader_captures_output() -> None:
    found = {
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for file in FILES
        for call in find_captured_calls(ast.parse(file.read_text()))
    }
    assert found == set()


def test_rule_finds_unbounded_captures() -> None:
    for code in (
        "subprocess.run(x, capture_output=True)",
        "subprocess.run(x, stderr=subprocess.PIPE)",
        "p.communicate()",
    ):
        assert list(find_captured_calls(ast.parse(code)))
    assert not list(find_captured_calls(ast.parse("subprocess.run(x, check=False)")))
