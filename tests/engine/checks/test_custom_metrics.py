"""Metrics of a custom task. They must be found in its file without executing the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import resources
from engine.checks.disk import MAX_BYTES, ModelFile, RealDisk, parse_metrics
from engine.contract.catalogue import Measure

ROW = 'Measure("a", "A", higher_is_better=True)'


def test_measures_in_reads_the_example() -> None:
    assert parse_metrics((Path(resources.__path__[0]) / "examples/counting.py").read_bytes()) == (
        Measure("mean_error", "Mean error", higher_is_better=False),
        Measure("exact", "Counted exactly", higher_is_better=True, percent=True),
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"class A(CustomTask):\n    metrics: tuple = [{ROW}]", 1),
        (f"class A(interface.CustomTask):\n    metrics = ({ROW},)", 1),
        (f"class A(CustomTask):\n    pass\nclass B(CustomTask):\n    metrics = ({ROW}, {ROW})", 2),
        (f"class A(Other):\n    metrics = ({ROW},)", 0),
        (f"class A(CustomTask):\n    metrics = ({ROW}, *more)", 0),
        (f'class A(CustomTask):\n    metrics = ({ROW}, Measure(name, "B", True))', 0),
        ('class A(CustomTask):\n    metrics = (Measure("a", "A"),)', 0),
        ("class A(CustomTask):\n    metrics = made()", 0),
        ("class A(CustomTask):\n    pass", 0),
        ("class A(CustomTask:", 0),
        ("raise SystemExit", 0),
        ("\0", 0),
    ],
)
def test_measures_in_reads_only_literals(text: str, found: int) -> None:
    assert parse_metrics(text.encode()) == (Measure("a", "A", higher_is_better=True),) * found


def test_measures_in_ignores_missing_and_large_files(tmp_path: Path) -> None:
    assert RealDisk().model_file(str(tmp_path / "none.py")) == RealDisk().model_file(str(tmp_path)) == ModelFile(None)
    text = f"class A(CustomTask):\n    metrics = ({ROW},)\n".encode()
    assert parse_metrics(text.ljust(MAX_BYTES, b"#"))
    assert not parse_metrics(text.ljust(MAX_BYTES + 1, b"#"))
