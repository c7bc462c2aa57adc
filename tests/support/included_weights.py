"""Replacement for the installed package with pretrained weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.contract.catalogue import load_catalogue, timm_weights
from engine.contract.weights import Weights


def find_included_weights() -> Weights:
    """Return the catalogue's entry for the weights that come with the installation."""
    weights = timm_weights("tf_efficientnet_lite0", load_catalogue())
    assert weights is not None
    assert weights.is_included
    return weights


def replace_package(folder: Path, patch: pytest.MonkeyPatch, content: bytes | None) -> Path:
    """Create a stand-in in `folder` for the installed package with pretrained weights. Return the path of its weights file.

    This process and its children find the stand-in instead of the installed package. The weights file has this
    `content`, or doesn't exist if it is None. Importing the stand-in raises an error.
    """
    weights = find_included_weights()
    file = folder / weights.package / weights.path
    file.parent.mkdir(parents=True)
    (folder / weights.package / "__init__.py").write_text("raise RuntimeError('nobody needs to import this')\n")
    if content is not None:
        file.write_bytes(content)
    patch.syspath_prepend(folder)
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))
    return file
