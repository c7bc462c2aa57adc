"""Program ``python -m engine.advisor``, which executes a `FinderOrder`.

The process and its workers exit on Ctrl+C, on SIGTERM, and when the parent process exits or closes the output. They
leave no files behind.
"""

from __future__ import annotations

from engine.advisor.batch_finder import find_batch
from engine.advisor.rate_finder import OnProgress, find_rate
from engine.contract.advice import BatchFound, FinderOrder, RateFound
from engine.processes.orders import serve_order


def _find(order: FinderOrder, send: OnProgress) -> RateFound | BatchFound:
    return find_rate(order.job, send) if order.finder == "rate" else find_batch(order.job, send)


if __name__ == "__main__":
    serve_order("footplate-find", FinderOrder, _find)
