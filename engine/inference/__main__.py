"""``python -m engine.inference``: carry out an order such as an evaluation or predictions with a trained model.

The process and its workers exit on Ctrl+C, on SIGTERM, and when the parent process exits or closes the output.
"""

from __future__ import annotations

import importlib
from functools import reduce
from operator import or_

from engine.contract.inference.conversion import ConvertOrder
from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.explanation import ExplainOrder
from engine.contract.inference.messages import LiveOrder, Order, ShowOrder
from engine.contract.inference.prediction import PredictOrder
from engine.contract.inference.review import ReviewOrder
from engine.inference.devices import OnProgress
from engine.processes.requests import serve_request
from engine.system import compile_cache

_FUNCTIONS: dict[type[Order], str] = {
    EvaluateOrder: "engine.inference.evaluation.evaluate:evaluate",
    PredictOrder: "engine.inference.prediction.predict:predict",
    ExplainOrder: "engine.inference.explanation.explain:explain",
    ConvertOrder: "engine.inference.conversion.convert:convert",
    ReviewOrder: "engine.inference.review.review:review",
    ShowOrder: "engine.inference.showing.show:show",
    LiveOrder: "engine.inference.live:live",
}
"""Function that carries out each type of order, as MODULE:NAME.

It takes the order and an `OnProgress`, and returns the path of its result. It raises CannotLoad.
"""


def _carry_out(order: Order, on_progress: OnProgress) -> str:
    """Call the function that executes this type of order, and return the path of its result."""
    compile_cache.use_private_folders()  # before torch is imported
    module, _, name = _FUNCTIONS[type(order)].partition(":")
    return str(getattr(importlib.import_module(module), name)(order, on_progress))


if __name__ == "__main__":
    serve_request("footplate-infer", reduce(or_, _FUNCTIONS), _carry_out)
