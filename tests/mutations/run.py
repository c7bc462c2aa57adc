"""Mutation tests: ``python tests/mutations/run.py [PATCH …]``, by default with all patches in `faults`.

Each patch puts a fault into a copy of the source tree. The lines before its first "diff" explain the fault. Lines that
begin with "tests:" name tests that must fail with the fault and pass without it. A patch without such lines, e.g. for a
function that `draw.py` has drawn, runs the daily tests related to the changed files: first the test files with the same
names, then the folders that mirror theirs, then the test files that mention the changed modules, if they are few, and
with ``--complete`` the entire daily suite. A test that also fails without the fault does not count.

With ``--recorded``, tests that executed the changed functions run after the test files with the same names, which detects
more faults with fewer tests. `record.py` records them, best of all for the entire daily suite.

The tests run in a fork of this process, which has imported the large libraries. The exit code is 1 if no test fails
with a fault, or if a patch can't be applied.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).parent / "faults"
RECORDED = ROOT / ".pytest_cache" / "recorded"
"""Folder of the tests that `record.py` has recorded."""
SOURCES = ("engine", "gui", "resources", "tests", "footplate.py", "pyproject.toml")
LIBRARIES = ("numpy", "scipy.optimize", "PIL.Image", "torchvision", "msgspec", "psutil", "pyqtgraph", "PySide6.QtTest")
"""Libraries that most tests need. Their import takes seconds."""
MOST_MENTIONS = 8
"""Maximum number of test files that may mention a module for these files to be run."""
MOST_TESTS = 300
"""Maximum number of recorded tests that are run for a fault."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "patches", nargs="*", type=Path, help="patches or folders of patches; the names of faults do, too"
    )
    parser.add_argument(
        "--complete", action="store_true", help="run the complete daily suite for faults not noticed before"
    )
    parser.add_argument("--recorded", action="store_true", help="run the tests that record.py has recorded")
    options = parser.parse_args()
    recorded = read_recorded_tests() if options.recorded else {}
    faults = list(find_patches(options.patches or [FAULTS]))
    with tempfile.TemporaryDirectory(prefix="footplate-mutation-") as folder:
        os.chmod(folder, 0o755)  # some tests run as another user
        tree = copy_tree(Path(folder))
        preload()
        declared = sorted({test for fault in faults for test in read_declared_tests(fault)})
        if declared and (result := run_tests(tree, ["-m", "", *declared]))[0]:
            print(f"The tests fail without any fault:\n{result[1][-5000:]}")
            return 1
        noticed = 0
        for fault in faults:
            start = time.monotonic()
            verdict = try_fault(tree, fault, recorded, complete=options.complete)
            if not read_declared_tests(fault):
                verdict = reject_broken_test(tree, verdict)
            noticed += verdict.startswith("noticed")
            print(f"{fault.stem:40} {time.monotonic() - start:5.0f} s  {verdict}", flush=True)
    print(f"{noticed} of {len(faults)} faults were noticed ({100 * noticed / len(faults):.0f}%).")
    return 0 if noticed == len(faults) else 1


def find_patches(arguments: Iterable[Path]) -> Iterator[Path]:
    for argument in arguments:
        if argument.is_dir():
            yield from sorted(argument.glob("*.patch"))
        else:
            yield argument if argument.is_file() else FAULTS / f"{argument}.patch"


def read_declared_tests(fault: Path) -> list[str]:
    head = fault.read_text().partition("diff --git")[0]
    return [line.partition("tests:")[2].strip() for line in head.splitlines() if line.startswith("tests:")]


def has_test(tree: Path, test: str) -> bool:
    """Return True if a test exists, given as FILE or FILE::FUNCTION, with or without parameters."""
    file, _, function = test.partition("::")
    path = tree / file
    return path.is_file() and (not function or f"def {function.partition('[')[0]}(" in path.read_text())


def read_recorded_tests() -> dict[str, list[str]]:
    """Return the tests that executed each function, those that execute the fewest functions first."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    counts: defaultdict[str, int] = defaultdict(int)
    for path in RECORDED.glob("*.txt"):
        for line in path.read_text().splitlines():
            function, _, test = line.partition("\t")
            tests[function].append(test)
            counts[test] += 1
    return {function: sorted(names, key=lambda name: (counts[name], name)) for function, names in tests.items()}


def find_recorded_tests(patch: str, recorded: dict[str, list[str]]) -> list[str]:
    """Return the recorded tests of the functions that a patch changes. Tests in the folder of a changed file come first."""
    tests: dict[str, None] = {}
    rooms: set[str] = set()
    for path, lines in list_replaced_lines(patch):
        rooms.add(str(Path("tests", *path.parts[:2])))
        for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
            if isinstance(node, ast.FunctionDef) and any(
                node.lineno <= line <= (node.end_lineno or 0) for line in lines
            ):
                tests.update(dict.fromkeys(recorded.get(f"{path}:{node.lineno}", ())))
    return sorted(tests, key=lambda test: not test.startswith(tuple(rooms)))


def list_replaced_lines(patch: str) -> Iterator[tuple[Path, list[int]]]:
    """Yield (file, line numbers) for each file in a patch: the removed lines, and those next to inserted lines."""
    for file in re.split(r"^--- a/", patch, flags=re.MULTILINE)[1:]:
        name, _, hunks = file.partition("\n")
        removed: list[int] = []
        for first, hunk in re.findall(r"^@@ -(\d+).*\n((?:[-+ ].*\n?|\n)+)", hunks, re.MULTILINE):
            number = int(first)
            for line in hunk.splitlines():
                if line.startswith("+"):
                    removed += [number - 1, number]
                else:
                    removed += [number] if line.startswith("-") else []
                    number += 1
        yield Path(name.strip()), removed


def try_fault(tree: Path, fault: Path, recorded: dict[str, list[str]], *, complete: bool) -> str:
    """Apply the patch `fault`, run tests until one fails, and restore the source tree.

    If the patch declares its tests, only these run. Otherwise, those that `find_related_tests` returns for the changed
    files run, or only its first group and then those of `recorded` that executed the changed functions. If
    `complete` is True, all tests follow. Returns "noticed by" and the failed test, or the reason why none failed.
    """
    applied = subprocess.run(
        ["git", "apply", str(fault.resolve())], cwd=tree, capture_output=True, text=True, check=False
    )
    if applied.returncode:
        return f"doesn't apply: {applied.stderr.strip()}"
    try:
        if tests := read_declared_tests(fault):
            groups = [["-m", "", *tests]]
        else:
            changed = [Path(name) for name in re.findall(r"^\+\+\+ b/(.+)$", fault.read_text(), re.MULTILINE)]
            groups = find_related_tests(tree, changed)
            if tests := [test for test in find_recorded_tests(fault.read_text(), recorded) if has_test(tree, test)]:
                groups = [*groups[:1], tests[:MOST_TESTS]]
            groups += [["-n", "3"]] if complete else []
        for group in groups:
            exit_code, output = run_tests(tree, ["-x", *group])
            if exit_code == pytest.ExitCode.USAGE_ERROR:  # recorded parameters don't exist any more
                functions = dict.fromkeys(test.partition("[")[0] for test in group)
                exit_code, output = run_tests(tree, ["-x", *functions])
            if failed := find_first_failure(output):
                return f"noticed by {failed}"
            if exit_code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return f"pytest exited with {exit_code}: {output[-500:]}"
        return "NOT NOTICED"
    finally:
        subprocess.run(["git", "apply", "-R", str(fault.resolve())], cwd=tree, check=True)


def reject_broken_test(tree: Path, verdict: str) -> str:
    """Return `verdict`, or another one if the test that it names also fails in the unchanged source tree."""
    if not verdict.startswith("noticed by "):
        return verdict
    test = verdict.removeprefix("noticed by ").partition("[")[0]  # with all parameters, since these may contain spaces
    return verdict if run_tests(tree, [test])[0] == pytest.ExitCode.OK else f"UNKNOWN: {test} fails without the fault"


def find_related_tests(tree: Path, changed: Iterable[Path]) -> list[list[str]]:
    """Return groups of test files or folders that are related to the changed files.

    The first groups are the most likely to notice a fault.
    """
    modules = {".".join(path.with_suffix("").parts): path for path in changed}
    mention = re.compile("|".join(rf"\b{re.escape(name)}\b|{make_import_pattern(name)}" for name in modules))
    tests = [test.relative_to(tree) for test in sorted((tree / "tests").rglob("test_*.py"))]
    rooms = {Path("tests", *path.parts[:2]) for path in modules.values()}
    stems = {path.stem for path in modules.values()}
    named = [test for test in tests if test.stem.removeprefix("test_") in stems and rooms.intersection(test.parents)]
    mirrored = [room for room in sorted(rooms) if (tree / room).is_dir()]
    mentioning = [test for test in tests if mention.search((tree / test).read_text())]
    outside = [test for test in mentioning if not rooms.intersection(test.parents)]
    groups = (named, mirrored, outside if len(outside) <= MOST_MENTIONS else [])
    return [[str(test) for test in group] for group in groups if group]


def make_import_pattern(module: str) -> str:
    """Return a regular expression that matches `from PACKAGE import MODULE` for the module with this dotted name."""
    package, _, name = module.rpartition(".")
    return rf"from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b"


def copy_tree(folder: Path) -> Path:
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "mutations"))
        else:
            shutil.copy(source, folder / name)
    return folder


def preload() -> None:
    """Import large libraries, after setting the environment variables that tests/conftest.py sets before imports."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for name in LIBRARIES:
        importlib.import_module(name)


def run_tests(tree: Path, arguments: Iterable[str]) -> tuple[int, str]:
    """Run pytest for the source tree in a forked process, and return its exit code and output."""
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            exit_code = int(pytest.ExitCode.INTERNAL_ERROR)
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os.chdir(tree)
                os.environ["PYTHONPATH"] = str(tree)
                sys.path.insert(0, str(tree))
                exit_code = int(pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", *arguments]))
            finally:
                sys.stdout.flush()
                os._exit(exit_code)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode(errors="replace")


def find_first_failure(output: str) -> str:
    """Return the first test that pytest's summary reports as failed, or "" if there is none."""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed[1] if failed else ""


if __name__ == "__main__":
    sys.exit(main())
