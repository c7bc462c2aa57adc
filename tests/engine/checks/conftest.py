"""The stub of NVIDIA's library for processes of their own, and supervisors with the tiny worker."""

from tests.engine.cli.conftest import compiled_stub, nvml_stub
from tests.engine.supervisor.conftest import start

__all__ = ["compiled_stub", "nvml_stub", "start"]
