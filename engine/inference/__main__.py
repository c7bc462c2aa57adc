"""``python -m engine.inference``: carry out a request such as an evaluation or predictions with a trained model.

The process and its workers exit on Ctrl+C, on SIGTERM, and when the parent process exits or closes the output.
"""

from __future__ import annotations

import importlib
from functools import reduce
from operator import or_

from engine.contract.inference.conversion import ConvertRequest
from engine.contract.inference.evaluation import EvaluateRequest
from engine.contract.inference.explanation import ExplainRequest
from engine.contract.inference.messages import InferenceRequest, LiveRequest, ShowRequest
from engine.contract.inference.prediction import PredictRequest
from engine.contract.inference.review import ReviewRequest
from engine.inference.devices import OnProgress
from engine.processes.requests import serve_request
from engine.system import compile_cache

_FUNCTIONS: dict[type[InferenceRequest], str] = {
    EvaluateRequest: "engine.inference.evaluation.evaluate:evaluate",
    PredictRequest: "engine.inference.prediction.predict:predict",
    ExplainRequest: "engine.inference.explanation.explain:explain",
    ConvertRequest: "engine.inference.conversion.convert:convert",
    ReviewRequest: "engine.inference.review.review:review",
    ShowRequest: "engine.inference.showing.show:show",
    LiveRequest: "engine.inference.live:live",
}
"""Function that carries out each type of request, as MODULE:NAME.

It takes the request and an `OnProgress`, and returns the path of its result. It raises CannotLoad.
"""


def _handle_request(request: InferenceRequest, on_progress: OnProgress) -> str:
    """Call the function that executes this type of request, and return the path of its result."""
    compile_cache.use_private_folders()  # before torch is imported
    module, _, name = _FUNCTIONS[type(request)].partition(":")
    return str(getattr(importlib.import_module(module), name)(request, on_progress))


if __name__ == "__main__":
    serve_request("footplate-infer", reduce(or_, _FUNCTIONS), _handle_request)
