"""The fixtures of the training's tests, which start workers as real processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_NAME = "footplate_tests_training_fixtures"
if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).parents[1] / "training" / "conftest.py")
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])

_fixtures = sys.modules[_NAME]
forker, pictures, job, model_file, start = (
    getattr(_fixtures, name) for name in ("forker", "pictures", "job", "model_file", "start")
)
make_pictures = _fixtures.make_pictures
