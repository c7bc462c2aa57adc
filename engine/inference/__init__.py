"""Use of trained models: loading, evaluation, explanation, conversion, review and prediction.

`Run` opens a run from Python, and `frames` reads a video or a camera. Both need torch and are imported on demand.
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
