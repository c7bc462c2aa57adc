"""Limits of the resources of the test's process. Tests that use them are skipped on Windows, which has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def limit_resource(kind: int, maximum: int) -> Iterator[None]:
    """Limit a resource of this process. `kind` is its number, such as `resource.RLIMIT_NOFILE`."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (maximum, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Limit the files of this process to `size` bytes, so that writes are cut short and fail, as on a full disk.

    Tests of output need `capsys` with this, because pytest's default output capture writes to a file, too.
    """
    resource = pytest.importorskip("resource")
    with limit_resource(resource.RLIMIT_FSIZE, size):  # Python ignores the signal that goes with it
        yield
