"""Faults of each kind at random times. The module `faults` can run more of them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.engine.machines.faults import KINDS, FaultyMachines, draw_faults, train_with_fault
from tests.support.machines import find_obstacle

SEED = 5


@pytest.mark.long
@pytest.mark.timeout(600)
def test_random_faults_keep_weights_or_fail_clearly() -> None:
    if why := find_obstacle():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="fpb"))
    bed = FaultyMachines(folder)
    try:
        for fault in draw_faults(SEED, len(KINDS), bed.names, bed.seconds):
            train_with_fault(bed, fault)
    finally:
        bed.close()
        shutil.rmtree(folder)
