"""Tables, problems and files of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cli.terminal import (
    BAD_REQUEST,
    FAILED,
    CommandError,
    flag_of,
    format_table,
    report,
    require_writable,
    write_csv,
)
from engine.contract.problems import Choice, Problem


def test_columns_are_two_spaces_apart() -> None:
    assert format_table(("A", "B"), [("xx", "y")]) == ["A   B", "xx  y"]


@pytest.mark.parametrize(
    ("field", "flag"),
    [("dataset", "DATASET"), ("options.width", "--option width"), ("batch_size", "--batch-size"), ("--tile", "--tile")],
)
def test_problem_names_its_flag(field: str, flag: str) -> None:
    assert flag_of(Problem(field, "It is wrong.")) == flag


def test_report_prints_severity_remedy_and_format_choices(capsys: pytest.CaptureFixture[str]) -> None:
    choices = (
        Choice("As COCO", {"format": "coco 2", "task": "detection"}),
        Choice("A smaller batch", {"batch_size": 1}),
    )
    assert report([Problem("epochs", "Odd.", "Lower it.", "warning", choices), Problem("", "Bad.")]) == BAD_REQUEST
    lines = ["footplate: warning: --epochs: Odd.", "  Lower it.", "  As COCO: --format 'coco 2' --task detection"]
    assert capsys.readouterr().err.splitlines() == [*lines, "footplate: Bad."]


def test_unwritable_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (None, tmp_path / "new.csv", Path("~/new.csv")):
        require_writable("--csv", path)
    for path, reason in ((tmp_path, f"{tmp_path} is a folder"), (Path("~/a/b"), f"there is no folder {tmp_path}/a")):
        with pytest.raises(CommandError) as error:
            require_writable("--csv", path)
        message = f"footplate: --csv: The file can't be written: {reason}. Choose another file.\n"
        assert (error.value.code, capsys.readouterr().err) == (BAD_REQUEST, message)
    write_csv(Path("~/new.csv"), [("a", "b"), (1, "x,y")])
    assert (tmp_path / "new.csv").read_text() == 'a,b\n1,"x,y"\n'
    with pytest.raises(CommandError) as error:
        write_csv(tmp_path, [])
    assert (error.value.code, f"footplate: {tmp_path} can't be written: " in capsys.readouterr().err) == (FAILED, True)
