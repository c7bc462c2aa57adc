"""Modules imported by the process that forks the agent, which forks the workers."""

from __future__ import annotations

import signal

from engine.processes import imports
from engine.system import linux

linux.signal_at_parents_death(signal.SIGKILL)
linux.name_process("footplate-pre")
imports.import_all((*imports.BASIC, *imports.DISTRIBUTED, "torch.distributed.launcher.api", "engine.machines.worker"))
