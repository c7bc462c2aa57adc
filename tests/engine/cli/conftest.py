"""The stub of NVIDIA's library, for commands in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nvml_stub import NvmlStub


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path) -> NvmlStub:
    """The stub with a profile of this test's own."""
    return NvmlStub(compiled_stub.folder, tmp_path / "profile")
