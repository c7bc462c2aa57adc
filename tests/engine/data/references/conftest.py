"""Settings of the libraries with which the tests compare."""

from __future__ import annotations

import pytest
import tqdm


@pytest.fixture(autouse=True)
def without_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tqdm from starting a thread that outlives a test."""
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
