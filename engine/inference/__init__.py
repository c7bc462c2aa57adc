"""What is done with a trained model: it is loaded, evaluated, explained, converted, and asked for predictions.

`Run` opens a run from Python, `frames` reads a video or a camera. They need torch, and are imported when they are
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.inference.run import Run
    from engine.inference.video import frames

__all__ = ["Run", "frames"]


def __getattr__(name: str) -> Any:
    if name == "Run":
        from engine.inference.run import Run

        return Run
    if name == "frames":
        from engine.inference.video import frames

        return frames
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
