"""Model file whose activations are large (20 times its input, 5 MB for an image of 256 px) but need few operations."""

from __future__ import annotations

from pathlib import Path

from tests.support.consent import permit_model_file

_DEEP = """
import torch
from torch import nn

class Deep(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(())), nn.Linear(1, classes)

    def forward(self, x):
        x = x * self.scale
        for _ in range(20):
            x = torch.sigmoid(x)
        return self.last(x.mean((2, 3)))

def build_model(num_classes):
    return Deep(num_classes)
"""


def write_deep_model(folder: Path) -> dict[str, str]:
    """Write deep.py, the file of a custom model, and return the job fields that select it and permit its execution."""
    file = folder / "deep.py"
    file.write_text(_DEEP)
    return {"model": str(file), "model_file_sha256": permit_model_file(file)}
