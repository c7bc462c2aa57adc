"""Fixtures for conversions inside the test process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def disable_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the progress bars of the exporter and the quantizer, whose monitor thread would leak."""
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)
