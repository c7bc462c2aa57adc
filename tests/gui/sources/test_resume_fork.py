"""Folders and job files that the user drops on the window or opens by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.job import Job, save_job
from gui.sources.resume_fork import read_paths


@pytest.mark.parametrize(
    ("names", "folder", "phrase"),
    [
        (("a.txt", "other", "images"), "other", ""),
        (("a.txt",), "", "a.txt can't be opened"),
        (("a.txt", "b.txt", "c.txt"), "", "a.txt and b.txt can't be opened"),
        (("damaged.toml", "images"), "", "damaged.toml can't be used"),
    ],
)
def test_read_paths_takes_the_first_folder_or_job(
    tmp_path: Path, names: tuple[str, ...], folder: str, phrase: str
) -> None:
    for name in ("images", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged.toml").write_text("[")
    opened = read_paths([str(tmp_path / name) for name in names])
    assert opened.folder == (str(tmp_path / folder) if folder else "")
    assert opened.prefill is None
    assert phrase in opened.problem
    assert bool(opened.problem) == bool(phrase)


def test_read_paths_reads_a_job(tmp_path: Path) -> None:
    job = Job.from_fields(dataset="/data/flowers", epochs=7, model="net.py", model_file_sha256="0" * 64)
    save_job(job, tmp_path / "job.toml")
    prefill = read_paths([str(tmp_path / "a.txt"), str(tmp_path / "job.toml")]).prefill
    assert prefill is not None
    assert prefill.job == job.with_fields(model_file_sha256="")  # only the user allows code to run
