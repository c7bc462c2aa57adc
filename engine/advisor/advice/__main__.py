"""``python -m engine.advisor.advice``: carry out an `AdviceOrder`.

Ctrl+C and SIGTERM stop the trials, and the answer then covers the measurements made until then. The process and its
workers exit when the parent process exits or nobody reads the output any more. They leave no files behind.
"""

from __future__ import annotations

from engine.advisor.advice.advisor import advise
from engine.contract.advice import AdviceOrder
from engine.processes.orders import serve_order

if __name__ == "__main__":
    serve_order("footplate-advise", AdviceOrder, advise)
