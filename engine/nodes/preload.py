"""Imported by the process that workers are forked from: what each of them needs, so that they have it at once."""

from __future__ import annotations

from engine.supervisor.workers import imports
from engine.system import linux

linux.name_process("footplate-pre")
imports.import_all((*imports.LIGHT, *imports.DISTRIBUTED, "engine.nodes.worker"))
