"""The slow imports, made once before workers are forked, so that these have them at once."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import threading
import traceback
from collections.abc import Sequence

from engine.system import compile_cache

LIGHT = ("torch", "torchvision", "engine.training.worker")
"""What every worker needs."""

DISTRIBUTED = ("torch.distributed", "torch.nn.parallel", "torch._dynamo", "torch.distributed.pipelining")
"""What several workers need besides; DistributedDataParallel alone imports torch._dynamo, over a second."""

SOME = ("timm", "segmentation_models_pytorch")
"""What the models of some jobs need, over half a second together: a parent that waits for jobs has time for it."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def modules_for(world_size: int) -> tuple[str, ...]:
    return LIGHT + DISTRIBUTED if world_size > 1 else LIGHT


def import_all(names: Sequence[str]) -> None:
    """Imports `names` so that the process may be forked afterwards: without leaving a thread behind."""
    compile_cache.use_private_folders()
    # numpy's OpenBLAS starts its threads when it is loaded, unless it is told that it has one.
    before = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        os.environ.pop(_BLAS_THREADS)
        if before is not None:
            os.environ[_BLAS_THREADS] = before
    # What is there by now will stay: keeping the collector off it keeps its pages shared after a fork.
    gc.collect()
    gc.freeze()


class ImportThread:
    """Imports `names` in the background. `done` becomes readable at the end; `fault` then tells what went wrong."""

    def __init__(self, names: Sequence[str]) -> None:
        self.done, self._end = socket.socketpair()
        self.fault: str | None = None
        self._names = names
        self._thread = threading.Thread(target=self._work, name="imports", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the end of the thread, after which the process may fork."""
        self._thread.join()
        self.done.close()
        self._end.close()

    def _work(self) -> None:
        try:
            import_all(self._names)
        except BaseException as error:
            traceback.print_exc()
            self.fault = f"{type(error).__name__}: {error}"
        finally:
            self._end.send(b"1")
