"""Order of the GPUs in CUDA, read from a stub of libcuda in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from engine.contract.devices import Gpu
from engine.gpus.cuda_order import CudaOrder
from tests.engine.gpus.conftest import ROOT
from tests.support.nvml_stub import NvmlStub, uuid_of


def test_ask_cuda_returns_none_without_devices(nvml_stub: NvmlStub) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "engine.gpus.cuda_order"],
        stdin=subprocess.PIPE,  # the process ends when this pipe is closed
        stdout=subprocess.PIPE,
        env=os.environ | nvml_stub.environment,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) is None


def gpu(index: int) -> Gpu:
    return Gpu(uuid=uuid_of(index), name="NVIDIA H200", nvml_index=index)


def poll_until_answered(order: CudaOrder, news: threading.Event, gpus: list[Gpu]) -> None:
    deadline = time.monotonic() + 120
    order.poll(gpus)
    while order.pending:
        assert time.monotonic() < deadline
        news.wait(0.05)
        news.clear()
        order.poll(gpus)


@pytest.fixture
def stub_here(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    return nvml_stub


def test_cuda_index_ignores_visible_devices(stub_here: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, value in stub_here.cuda_order(2, 0).items():
        monkeypatch.setenv(name, value)
    news = threading.Event()
    order = CudaOrder(news)
    gpus = [gpu(0), gpu(1), gpu(2)]
    poll_until_answered(order, news, gpus)
    assert [numbered.cuda_index for numbered in order.with_cuda_index(gpus)] == [1, None, 0]


@pytest.mark.usefixtures("stub_here")
def test_hanging_cuda_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOOTPLATE_CUDA_HANG", "1")
    news = threading.Event()
    order = CudaOrder(news, deadline_s=0.5)
    poll_until_answered(order, news, [gpu(0)])
    assert order.with_cuda_index([gpu(0)])[0].cuda_index is None
    order.poll([gpu(0)])
    assert not order.pending  # queried only once


def test_new_gpu_is_requested_at_cuda(stub_here: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    news = threading.Event()
    order = CudaOrder(news)
    order.poll([msgspec.structs.replace(gpu(9), lost=True)])
    assert not order.pending
    poll_until_answered(order, news, [gpu(0)])
    for name, value in stub_here.cuda_order(1, 0).items():
        monkeypatch.setenv(name, value)
    poll_until_answered(order, news, [gpu(0), gpu(1)])
    assert [numbered.cuda_index for numbered in order.with_cuda_index([gpu(0), gpu(1)])] == [1, 0]
