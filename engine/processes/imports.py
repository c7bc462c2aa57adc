"""Slow imports in a parent process, which forked workers then need not repeat."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import threading
import traceback
from collections.abc import Sequence

from engine.system import compile_cache

BASIC = ("torch", "torchvision", "engine.training.worker")
"""Modules that every worker needs."""
DISTRIBUTED = ("torch.distributed", "torch.nn.parallel", "torch._dynamo", "torch.distributed.pipelining")
"""Modules that are also imported if a run has more than one worker.

DistributedDataParallel imports torch._dynamo, which takes over a second.
"""
OPTIONAL = ("timm", "segmentation_models_pytorch")
"""Modules that some models need. Importing them takes over half a second. A parent that waits anyway can afford it."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def modules_for(world_size: int) -> tuple[str, ...]:
    """Return the names of the modules that the workers of a run with `world_size` ranks need."""
    return BASIC + DISTRIBUTED if world_size > 1 else BASIC


def import_all(names: Sequence[str]) -> None:
    """Import modules without starting a thread that remains, so that the process can fork afterwards.

    Before the imports, torch's compile caches are set to private folders. After them, the garbage collector ignores all
    objects that exist.
    """
    compile_cache.use_private_folders()
    # Loading numpy starts the threads of OpenBLAS, unless the environment limits them to one.
    previous_limit = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        os.environ.pop(_BLAS_THREADS)
        if previous_limit is not None:
            os.environ[_BLAS_THREADS] = previous_limit
    # Modules are never freed. If the garbage collector ignores them, their pages stay shared after a fork.
    gc.collect()
    gc.freeze()


class ImportThread:
    """Thread that imports modules in the background.

    When it has finished, the socket `done` becomes readable. If an import has failed, `fault` is the error.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.done, self._notifier = socket.socketpair()
        self.fault: str | None = None
        self._names = names
        self._thread = threading.Thread(target=self._run, name="imports", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread to end. Afterwards, the process can fork."""
        self._thread.join()
        self.done.close()
        self._notifier.close()

    def _run(self) -> None:
        """Import the modules, store an error in `fault`, and make `done` readable."""
        try:
            import_all(self._names)
        except BaseException as error:
            traceback.print_exc()
            self.fault = f"{type(error).__name__}: {error}"
        finally:
            self._notifier.send(b"1")
