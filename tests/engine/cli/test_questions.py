"""Questions about an ambiguous dataset folder in the terminal, and the flags that answer them."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cli.terminal import report
from engine.contract.catalogue import load_catalogue
from engine.data.formats.registry import recognize
from tests.support.dataset_formats import coco
from tests.support.dataset_formats.truth import TRUTH
from tests.support.images import write_noise


def two_columns(folder: Path) -> None:
    images = [each.save(folder / f"images/{each.name}.png") for each in TRUTH.images]
    rows = [f"images/{path.name},{'ab'[number % 2]},{'cd'[number % 2]}" for number, path in enumerate(images)]
    (folder / "labels.csv").write_text("\n".join(["file,shape,the taste", *rows]))


def boxes(folder: Path) -> None:
    coco.write(TRUTH, folder)


def roles(folder: Path) -> None:
    for number in range(8):
        write_noise(folder / ("images", "labels")[number % 2] / f"{number}.png", seed=number)


@pytest.mark.parametrize("make", [two_columns, boxes, roles])
def test_report_names_the_flags_of_every_choice(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    found = recognize(str(tmp_path), val_fraction=0.25, seed=0)
    choices = [choice for problem in found.problems for choice in problem.choices]
    assert choices
    report([*found.problems])
    flags = re.findall(r"^  .*: (--format .*)$", capsys.readouterr().err, re.MULTILINE)
    assert len(flags) == len(choices)
    parser = argparse.ArgumentParser()
    parser.add_argument("--format")
    parser.add_argument("--task", default="classification")
    for line in flags:
        given = parser.parse_args(shlex.split(line))
        task = load_catalogue().task(given.task)
        assert task is not None
        chosen = recognize(str(tmp_path), val_fraction=0.25, seed=0, kinds=task.annotations, format=given.format)
        assert chosen.format == given.format
