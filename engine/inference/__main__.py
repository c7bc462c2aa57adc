"""``python -m engine.inference``: read an order as JSON, print a `Message` per line, the answer last.

Ctrl+C, SIGTERM and the end of its parent or of the reader of its output end it with its workers.
"""

from __future__ import annotations

import importlib
import os
import sys

import msgspec

from engine.contract.inference.conversion import ConvertOrder
from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.explanation import ExplainOrder
from engine.contract.inference.live import LiveOrder
from engine.contract.inference.messages import Done, Order, Refused
from engine.contract.inference.prediction import PredictOrder
from engine.contract.inference.review import ReviewOrder
from engine.contract.inference.showing import ShowOrder
from engine.contract.problems import Problem
from engine.inference.devices import OnProgress
from engine.inference.trained_model import CannotLoad
from engine.system.child_work import serve_order

_ORDER = msgspec.json.Decoder(
    EvaluateOrder | PredictOrder | ExplainOrder | ConvertOrder | ReviewOrder | ShowOrder | LiveOrder
)
_WORK: dict[type[Order], str] = {
    EvaluateOrder: "engine.inference.evaluation.evaluate:evaluate",
    PredictOrder: "engine.inference.prediction.predict:predict",
    ExplainOrder: "engine.inference.explanation.explain:explain",
    ConvertOrder: "engine.inference.conversion.convert:convert",
    ReviewOrder: "engine.inference.review.review:review",
    ShowOrder: "engine.inference.showing.show:show",
    LiveOrder: "engine.inference.live:live",
}
"""Function for each order, as MODULE:NAME, which takes the order and an `OnProgress`, and returns the path of its result file.

Raises CannotLoad."""


def main() -> int:
    return serve_order("footplate-infer", _answer)


def _answer(order: bytes, on_progress: OnProgress) -> Done | Refused:
    try:
        decoded = _ORDER.decode(order)
        module, _, name = _WORK[type(decoded)].partition(":")
        return Done(path=str(getattr(importlib.import_module(module), name)(decoded, on_progress)))
    except msgspec.DecodeError as error:
        return Refused(problems=(Problem("", f"Invalid request: {error}.", "Pass one as JSON."),))
    except CannotLoad as error:
        return Refused(problems=error.problems)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of PyTorch may delay an orderly exit
