"""The stub of NVIDIA's library, for commands in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nvml_stub import NvmlStub, compile_stub, why_not


@pytest.fixture(scope="session")
def compiled_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    if reason := why_not():
        pytest.skip(reason)
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_stub(compiled_stub: NvmlStub, tmp_path: Path) -> NvmlStub:
    """The stub with a profile of this test's own."""
    return NvmlStub(compiled_stub.folder, tmp_path / "profile")
