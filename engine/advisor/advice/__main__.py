"""``python -m engine.advisor.advice``: carry out an `AdviceOrder`.

Ctrl+C and SIGTERM end the trials; the answer then covers the measurements made by then. If its parent or the reader
of its output ends, it ends with its workers. It leaves no files behind.
"""

from __future__ import annotations

from engine.advisor.advice.advisor import advise
from engine.contract.advice import AdviceOrder
from engine.processes.orders import serve_order

if __name__ == "__main__":
    serve_order("footplate-advise", AdviceOrder, advise)
