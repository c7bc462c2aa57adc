"""Status of a hyperparameter search, from its driver's process and files."""

from __future__ import annotations

import os
import time

import pytest

from engine.contract.search import DRIVER_LOG, DriverFile
from engine.runs.folder import process_start
from tests.support.made_searches import a_state, make_search


@pytest.mark.parametrize(
    ("log_age_s", "driver", "ended", "expected"),
    [
        (None, None, "", "interrupted"),
        (None, None, "failed", "failed"),
        (5, None, "", "running"),
        (5, None, "completed", "running"),
        (60, None, "", "interrupted"),
        (5, "dead", "", "interrupted"),
        (5, "dead", "completed", "completed"),
        (60, "alive", "completed", "running"),
    ],
)
def test_search_status(log_age_s: int | None, driver: str | None, ended: str, expected: str) -> None:
    folder = make_search("flowers", 2)
    folder.save_state(a_state(2, ended=ended))
    if log_age_s is not None:
        (folder.path / DRIVER_LOG).touch()
        os.utime(folder.path / DRIVER_LOG, (time.time() - log_age_s,) * 2)
    if driver is not None:
        start = process_start(os.getpid())
        folder.save_driver(DriverFile(pid=os.getpid(), start_time=start if driver == "alive" else start - 60))
    assert folder.status() == expected
