"""Hostile names that a command prints. They must not control the terminal."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

import engine.cli
from engine.cli import train
from engine.cli.gpus import csv_lines
from engine.cli.gpus.table import View
from engine.cli.main import main
from engine.cli.progress import ProgressDisplay
from engine.cli.terminal import StatusLine, print_lines, report
from engine.contract.dataset import DatasetReport
from engine.contract.devices import Gpu, GpuProcess, Snapshot
from engine.contract.events import CheckpointSaved, Failed, LogLine, Planned, RunFinished, Warned
from engine.contract.problems import Problem
from engine.contract.recipes import recipe_path
from engine.runs.folder import RunFolder
from engine.runs.notes import change_notes
from engine.system.plain_text import escape
from tests.attacks.hostile_names import NAMES
from tests.engine.cli.machines import gpu, machine
from tests.engine.cli.terminal import TerminalStream
from tests.gui.sources.written_runs import write_run

pytestmark = pytest.mark.attacks

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\rroot\x08\n\u2028FORGED\u202e\u2066\x7f\0\udcff"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Out = pytest.CaptureFixture[str]


def assert_names_are_escaped(text: str, lines: int | None = None) -> None:
    """Check that `text` contains the hostile name, but no control characters and no line that starts with the name.

    `lines` is the expected number of lines, or None for any number.
    """
    assert OBEYED.findall(text) == []
    assert all(not line.startswith("FORGED") for line in text.split("\n"))
    assert "FORGED" in text
    if lines is not None:
        assert len(text.splitlines()) == lines


def make_hostile_run() -> RunFolder:
    """Create a run whose name, cause, dataset and notes contain terminal control codes."""
    name = EVIL.removesuffix("\udcff")
    run = write_run(4, "failed", cause=name, name=name, dataset=f"/data/{name}")
    change_notes(run.path, tags=(name,), text=name)
    return run


def test_printed_text_has_no_control_characters(capsys: Out) -> None:
    print_lines(EVIL, "\tFORGED, indented")
    output = capsys.readouterr().out
    assert_names_are_escaped(output, 2)
    assert output.startswith(r"\u001b[2J\u001b]0;title\u0007\u009b31m\u000droot\u0008\u000a\u2028FORGED")
    assert output.endswith("\n\tFORGED, indented\n")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_escaped_json_decodes_to_same_value(name: str) -> None:
    assert json.loads(escape(json.dumps(name, ensure_ascii=False))) == name


@pytest.mark.parametrize("command", [["runs"], ["runs", "--json"], ["attach", "last"], ["attach", "last", "--json"]])
def test_run_commands_print_no_control_characters(command: list[str], capsys: Out) -> None:
    make_hostile_run()
    main(command)
    output = capsys.readouterr()
    assert_names_are_escaped(output.out)
    assert OBEYED.findall(output.err) == []


def test_recipes_print_no_control_characters(capsys: Out) -> None:
    recipe_path("evil").parent.mkdir(parents=True)
    recipe_path("evil").write_text(
        'title = "\\u001b[2JFORGED"\nabout = "\\nFORGED"\ntasks = ["classification"]\n# \x9b\n'
    )
    recipe_path("broken").write_text('title = "FORGED"\nabout = "x"\ntasks = ["\\u001b\\nFORGED"]\n')
    main(["recipes"])
    output = capsys.readouterr()
    assert_names_are_escaped(output.out)
    assert OBEYED.findall(output.err) == []
    main(["recipes", "show", "evil"])
    assert OBEYED.findall(capsys.readouterr().out) == []


def test_dataset_prints_no_control_characters(capsys: Out) -> None:
    print_lines(*train.dataset_lines(DatasetReport(folder=EVIL, format="imagefolder", title=EVIL)))
    assert_names_are_escaped(capsys.readouterr().out, 1)
    report([Problem("dataset", EVIL, EVIL)])
    assert_names_are_escaped(capsys.readouterr().err, 2)


def test_progress_prints_no_control_characters(tmp_path: Path) -> None:
    out = io.StringIO()
    progress = ProgressDisplay(RunFolder(tmp_path), out, io.StringIO())
    for event in (
        Planned(
            epochs=1, from_step=0, steps_per_epoch=1, train_images=1, val_images=1, classes=(EVIL,), image_size=8,
            parameters=1, trainable_parameters=1,
        ),
        LogLine(text=EVIL, rank=0),
        Warned(code="x", message=EVIL),
        Failed(cause=EVIL),
        CheckpointSaved(kind="best", path=EVIL, epoch=1, step=1, bytes=1, seconds=0.1),
        RunFinished(outcome="failed", cause=EVIL, checkpoints=(EVIL,)),
    ):  # fmt: skip
        progress.show(event)
    assert_names_are_escaped(out.getvalue(), 7)


def test_moving_line_escapes_control_characters() -> None:
    terminal = TerminalStream()
    StatusLine(terminal).show(EVIL)
    allowed = "\r\x1b[K"
    assert terminal.getvalue().startswith(allowed)
    assert OBEYED.findall(terminal.getvalue().removeprefix(allowed)) == []


def hostile_gpu() -> Gpu:
    process = GpuProcess(7, memory_used_bytes=1 << 30, user=EVIL, name=EVIL, command=EVIL)
    return structs.replace(gpu(0), name=f"FORGED {EVIL}", processes=(process,))


@pytest.mark.parametrize(
    "printed",
    [
        lambda snapshot, out: Console(file=out, width=2000).print(View(snapshot, details=True)),
        lambda snapshot, out: print_lines(*csv_lines.format_lines(snapshot), to=out),
    ],
    ids=["table", "csv"],
)
def test_gpus_print_no_control_characters(
    printed: Callable[[Snapshot, io.StringIO], None],
) -> None:
    out = io.StringIO()
    printed(structs.replace(machine(hostile_gpu()), host=EVIL), out)
    assert_names_are_escaped(out.getvalue())


OUTPUT_MODULES = {"terminal.py", "gpus/screen.py"}
"""Modules that may write to the terminal."""
NO_TEXT = {"probe.py": "says one line to its parent", "gpus/metrics.py": "answers over a socket"}


def test_only_one_module_prints() -> None:
    root = Path(engine.cli.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in OUTPUT_MODULES | NO_TEXT.keys():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            allowed = isinstance(called, ast.Name) and called.id in ("print", "Console")
            writes = isinstance(called, ast.Attribute) and called.attr in ("write", "writelines")
            if allowed or (writes and "std" in ast.unparse(called) and "stdin" not in ast.unparse(called)):
                found.append(f"{name}, line {node.lineno}")
    assert found == []
