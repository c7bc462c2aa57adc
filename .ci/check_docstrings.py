"""Report docstrings that start with a word that hides what the code does.

.ci/check_docstrings.py [PATH ...]

ruff's D401 requires imperatives for functions, but accepts "What the job needs" or "Whether it runs", which describe
neither an action nor a value.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_BANNED = re.compile(
    r"(What|Whatever|Whoever|Where|Whether|How (many|much|long|far|often)|The one|The same|That which|Those|Of|"
    r"As (much|many)|Says|Tells|Lets|Has|Gives|Takes|Goes|Comes|Besides?)\b"
)
_STRAY_QUOTE = re.compile(r'\s"\s|""\s"|\s"$')


def _list_docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                value = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value


def _findings(path: Path) -> Iterator[str]:
    for docstring in _list_docstrings(ast.parse(path.read_text(encoding="utf-8"))):
        text = str(docstring.value)
        if match := _BANNED.match(text.strip()):
            yield f'{path}:{docstring.lineno}: a docstring opens with "{match.group()}": begin with a verb or a noun'
        if _STRAY_QUOTE.search(text):
            yield f"{path}:{docstring.lineno}: a docstring holds a stray quotation mark"


def main() -> int:
    """Print all findings, and return 1 if there are any."""
    roots = [Path(argument) for argument in sys.argv[1:]] or [Path(name) for name in ("engine", "gui", "tests", ".ci")]
    paths = [path for root in roots for path in (sorted(root.rglob("*.py")) if root.is_dir() else [root])]
    findings = [finding for path in paths for finding in _findings(path)]
    print("\n".join(findings) or f"{len(paths)} files: no docstring opens with a banned word.")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
