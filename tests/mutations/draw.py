"""Random selection of functions for mutation tests: ``python tests/mutations/draw.py --seed N [--count 64]``.

Each draw picks a folder of `engine` or `gui` with a probability proportional to its number of lines. Then it picks one
of its functions that have at least four lines of code, all with the same probability. Before you read a function's
tests, put a plausible fault into the function. Save the fault with ``git diff`` as a patch whose first line explains
it. Pass the folder with the patches to `run.py`.
"""

from __future__ import annotations

import argparse
import ast
import random
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAST_LINES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=64)
    options = parser.parse_args()
    for path, name, line in draw_functions(random.Random(options.seed), options.count):
        print(f"{path}:{line} {name}")


def draw_functions(generator: random.Random, count: int) -> list[tuple[Path, str, int]]:
    """Draw `count` different functions of the engine and the window. Return (file, qualified name, first line) of each."""
    rooms: dict[Path, list[Path]] = {}
    for path in sorted([*ROOT.glob("engine/*/**/*.py"), *ROOT.glob("gui/*/**/*.py")]):
        rooms.setdefault(Path(*path.relative_to(ROOT).parts[:2]), []).append(path)
    functions = {room: [found for path in paths for found in find_functions(path)] for room, paths in rooms.items()}
    lines = {room: sum(len(path.read_text().splitlines()) for path in paths) for room, paths in rooms.items()}
    names = [room for room in rooms if functions[room]]
    drawn: list[tuple[Path, str, int]] = []
    while len(drawn) < min(count, sum(map(len, functions.values()))):
        (room,) = generator.choices(names, [lines[name] for name in names])
        found = generator.choice(functions[room])
        if found not in drawn:
            drawn.append(found)
    return drawn


def find_functions(path: Path) -> list[tuple[Path, str, int]]:
    """Find the functions in a file that have at least `LEAST_LINES` lines of code below their docstring.

    Returns (file, qualified name, first line) of each.
    """
    found = []

    def visit(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef):
                continue
            name = f"{scope}{child.name}"
            if isinstance(child, ast.FunctionDef):
                body = child.body[1:] if ast.get_docstring(child) else child.body
                if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 >= LEAST_LINES:
                    found.append((path.relative_to(ROOT), name, child.lineno))
            else:
                visit(child, f"{name}.")

    visit(ast.parse(path.read_text()), "")
    return found


if __name__ == "__main__":
    main()
