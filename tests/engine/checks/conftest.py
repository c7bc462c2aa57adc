"""Fixtures for checks: the NVML stub for child processes, and supervisors with the tiny worker."""

from tests.engine.cli.conftest import nvml_stub
from tests.engine.supervisor.conftest import start

__all__ = ["nvml_stub", "start"]
