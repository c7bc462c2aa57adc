"""Program ``python -m engine.advisor.advice``, which executes an `AdviceRequest`.

On Ctrl+C and SIGTERM, the trials stop, and the answer is based on the measurements made until then. The process and its
workers exit when the parent process exits or closes the output. They leave no files behind.
"""

from __future__ import annotations

from engine.advisor.advice.advisor import advise
from engine.contract.advice import AdviceRequest
from engine.processes.requests import serve_request

if __name__ == "__main__":
    serve_request("footplate-advise", AdviceRequest, advise)
