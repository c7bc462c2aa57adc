"""Settings for libraries whose results are compared with Footplate's."""

from __future__ import annotations

import pytest
import tqdm


@pytest.fixture(autouse=True)
def without_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent tqdm from starting its monitor thread, which would outlive the test."""
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
