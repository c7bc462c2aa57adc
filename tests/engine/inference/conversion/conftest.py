"""What conversions need of the tests that run them in this process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_monitor_of_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter's and the quantiser's bars, which nobody sees, would start a thread that stays."""
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)
