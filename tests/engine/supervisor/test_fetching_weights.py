"""Runs that download pretrained weights from a local server before they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save

from engine.contract.catalogue import load_catalogue, timm_weights
from engine.contract.events import (
    DevicesFree,
    Failed,
    Fetching,
    PhaseChanged,
    RunFinished,
    StepMetrics,
    Waiting,
)
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.contract.weights import find_weights, hub_cache
from engine.runs.connection import RunConnection
from engine.runs.folder import create_run
from engine.runs.launch import start_supervisor
from engine.runs.queue import list_holders, list_waiting
from tests.engine.supervisor.supervised import Start, Supervised, make_images
from tests.support.waiting import wait_until
from tests.support.weights_server import WeightsServer

WEIGHTS = timm_weights("test_resnet", load_catalogue())
JOB = {"model": "timm:test_resnet", "pretrained": True}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WeightsServer]:
    """Serve weights under the file names that huggingface_hub requests."""
    served = WeightsServer({"model.safetensors": save(timm.create_model("test_resnet").state_dict())})
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", served.address)
    with served.serving():
        yield served


def phases(one: Supervised) -> list[str]:
    return [event.phase for event in one.run.events() if isinstance(event, PhaseChanged)]


def test_weights_are_downloaded_before_devices_are_reserved(start: Start, server: WeightsServer) -> None:
    server.fault = "held"
    one = start("train 3", **JOB)
    assert server.holding.wait(120)
    wait_until(lambda: "fetching" in phases(one), "the phase")
    assert not list_holders()
    assert not list_waiting()
    server.release.set()
    logged = one.wait()
    assert isinstance(logged[-1], RunFinished)
    assert logged[-1].outcome == "completed"
    assert phases(one)[:3] == ["starting", "fetching", "starting"]
    (detail,) = [event.detail for event in logged if isinstance(event, PhaseChanged) and event.phase == "fetching"]
    assert detail == f"the pretrained weights timm/test_resnet.r160_in1k from {server.address.removeprefix('http://')}"
    kinds = [type(event) for event in logged]
    last = [event for event in logged if isinstance(event, Fetching)][-1]
    assert last.done_bytes == last.total_bytes
    assert len(kinds) - 1 - kinds[::-1].index(Fetching) < kinds.index(StepMetrics)
    assert WEIGHTS is not None
    assert find_weights(WEIGHTS).path


def test_failed_download_fails_the_run(start: Start, server: WeightsServer) -> None:
    server.fault = "gated"
    logged = start("train 3", **JOB).wait()
    finished = logged[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "failed"
    assert "is gated: its owner must grant you access" in finished.cause
    (failed,) = [event for event in logged if isinstance(event, Failed)]
    assert (failed.cause, failed.field) == (finished.cause, "pretrained")
    assert not any(isinstance(event, StepMetrics | Waiting) for event in logged)


def test_run_with_included_weights_downloads_nothing(start: Start, server: WeightsServer) -> None:
    one = start("train 3", model="timm:tf_efficientnet_lite0", pretrained=True)
    finished = one.wait()[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "completed"
    assert "fetching" not in phases(one)
    assert server.requests == []


def test_stop_ends_the_download_without_leftovers(start: Start, server: WeightsServer) -> None:
    server.fault = "held"
    one = start("train 3", **JOB)
    assert server.holding.wait(120)
    with RunConnection(one.run) as connection:
        connection.send(Stop())
        logged = one.wait()
    finished = logged[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "stopped"
    assert any(isinstance(event, DevicesFree) for event in logged)
    assert not any(isinstance(event, StepMetrics) for event in logged)
    assert [path for path in hub_cache().rglob("*") if path.is_file() and "blobs" in path.parts] == []


@pytest.mark.long
def test_training_uses_downloaded_weights_without_network(server: WeightsServer, tmp_path: Path) -> None:
    folder = make_images(tmp_path / "images")
    job = Job.from_fields(
        dataset=str(folder), model="timm:test_resnet", pretrained=True, image_size=32, epochs=1, batch_size=8
    )
    run = create_run(job)
    start_supervisor(run)
    wait_until(lambda: run.state() in ("completed", "failed"), "the run to end", 120)
    logged = list(run.events())
    assert not [event for event in logged if isinstance(event, Failed)]
    assert run.state() == "completed"
    assert [each for each in server.requests if each.startswith("GET")] == [
        "GET /timm/test_resnet.r160_in1k/resolve/main/model.safetensors"
    ]
    assert WEIGHTS is not None
    before = Path(find_weights(WEIGHTS).path)
    state = torch.load(run.path / "checkpoints/last.pt", map_location="cpu", weights_only=True)["model"]
    assert state.keys() == timm.create_model("test_resnet", num_classes=2).state_dict().keys()
    assert before.is_file()
