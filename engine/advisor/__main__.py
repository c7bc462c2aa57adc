"""Program ``python -m engine.advisor``, which executes a `FinderRequest`.

The process and its workers exit on Ctrl+C, on SIGTERM, and when the parent process exits or closes the output. They
leave no files behind.
"""

from __future__ import annotations

from engine.advisor.batch_finder import find_batch
from engine.advisor.rate_finder import OnProgress, find_rate
from engine.contract.advice import BatchFound, FinderRequest, RateFound
from engine.processes.requests import serve_request


def _find(request: FinderRequest, send: OnProgress) -> RateFound | BatchFound:
    return find_rate(request.job, send) if request.finder == "rate" else find_batch(request.job, send)


if __name__ == "__main__":
    serve_request("footplate-find", FinderRequest, _find)
