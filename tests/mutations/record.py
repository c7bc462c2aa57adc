"""Record which tests execute each function: ``pytest -p tests.mutations.record``, then ``run.py --recorded``.

Each function of `engine` and `gui` gets a call at its start when Python compiles it, which costs far less time than
tracing. Only calls in the test's own process are recorded. Each process of pytest appends lines "FILE:LINE", a tab and
the name of a test to a file of its own in `RECORDED`, where LINE is the first line of the function.
"""

from __future__ import annotations

import ast
import builtins
import os
import shutil
from collections.abc import Generator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from tests.mutations.run import RECORDED, ROOT

_executed: set[str] = set()
"""Functions that the current test has executed, as "FILE:LINE"."""


def _insert_calls(tree: ast.Module, file: Path) -> None:
    """Insert a call at the start of each function in the syntax tree of `file` that adds it to `_executed`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            (call,) = ast.parse(f"__record__({f'{file}:{node.lineno}'!r})").body
            for child in ast.walk(call):
                ast.copy_location(child, node.body[0])
            node.body.insert(0 if ast.get_docstring(node, clean=False) is None else 1, call)


def _get_code(loader: SourceFileLoader, module: str) -> Any:
    """Return the code of a module, with recording calls if it is one of `engine` or `gui`."""
    path = Path(loader.get_filename(module))
    if not path.is_relative_to(ROOT / "engine") and not path.is_relative_to(ROOT / "gui"):
        return _get_unchanged_code(loader, module)
    tree = ast.parse(path.read_bytes())
    _insert_calls(tree, path.relative_to(ROOT))
    return compile(tree, path, "exec", dont_inherit=True)


_get_unchanged_code: Any = SourceFileLoader.get_code
setattr(SourceFileLoader, "get_code", _get_code)  # noqa: B010 - mypy refuses the assignment
setattr(builtins, "__record__", _executed.add)  # noqa: B010


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(RECORDED, ignore_errors=True)
    RECORDED.mkdir(parents=True, exist_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _executed.clear()
    result = yield
    with (RECORDED / f"{os.getpid()}.txt").open("a") as file:
        file.writelines(f"{function}\t{item.nodeid}\n" for function in sorted(_executed))
    return result
