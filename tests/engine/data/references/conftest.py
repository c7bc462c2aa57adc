"""Settings of the libraries that Footplate is compared with."""

from __future__ import annotations

import pytest
import tqdm


@pytest.fixture(autouse=True)
def without_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent tqdm from starting a thread that outlives the test."""
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
