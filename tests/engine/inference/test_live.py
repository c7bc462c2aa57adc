"""Live predictions for the frames of a video, and models and video sources that they reject."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.inference.messages import FRAME_FILE, LiveRequest, decode_frame
from engine.contract.job import Job
from engine.inference import live as live_module
from engine.inference.live import live, predict_stream
from engine.inference.trained_model import CannotLoad
from engine.inference.video import VideoWriter
from engine.runs.folder import create_run
from tests.support.plain_models import ChannelScores, make_trained_model, open_shard


@pytest.mark.parametrize(
    ("task", "checkpoint", "expected"),
    [
        ("classification", "last", "checkpoint"),
        ("classification", "best", "source"),
        ("edge_detection", "best", "source"),
        ("detection", "best", "source"),
        ("point_segmentation", "best", "run"),
        ("custom", "best", "run"),
    ],
)
def test_live_refuses_other_models_and_sources(task: str, checkpoint: str, expected: str, tmp_path: Path) -> None:
    run = create_run(Job.from_fields(task=task))
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "best.pt").touch()
    request = LiveRequest(
        run=str(run.path), checkpoint=checkpoint, devices=("cpu",), source=str(tmp_path / "no.mp4"), out=str(tmp_path / "out")
    )  # fmt: skip
    with pytest.raises(CannotLoad) as refused:
        live(request, lambda _progress: None)
    assert [problem.field for problem in refused.value.problems] == [expected]
    assert not (tmp_path / "out").exists()


@pytest.fixture
def film(tmp_path: Path) -> str:
    """Write a video of a second with a red, a green and five blue frames, and return its path."""
    with VideoWriter(tmp_path / "film.mp4", 10.0) as video:
        for channel in (0, 1, 2, 2, 2, 2, 2):
            image = np.full((32, 48, 3), 60, np.uint8)
            image[..., channel] = 250
            video.add(image)
    return str(tmp_path / "film.mp4")


def test_frames_of_a_video_are_predicted_at_its_speed(
    film: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, texts = 0.0, []

    def monotonic() -> float:
        nonlocal now
        now += 0.01
        return now

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        texts.append(decode_frame((tmp_path / FRAME_FILE).read_bytes()).text[:1])

    monkeypatch.setattr(live_module, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep))
    monkeypatch.setattr(live_module, "_SPEED_FRAMES", 5)
    request = LiveRequest(run="", source=film, out=str(tmp_path))
    model = make_trained_model("classification", ChannelScores(pooled=True))
    with open_shard(model) as shard:
        predict_stream(request, model, shard)
    assert texts == ["a", "b", *"ccccc"]
    frame = decode_frame((tmp_path / FRAME_FILE).read_bytes())
    assert frame.number == 7
    assert frame.images_per_second == pytest.approx(10)
    assert now == pytest.approx(0.01 + 0.7)
    with Image.open(io.BytesIO(frame.jpeg)) as image:
        assert image.size == (model.size, model.size)
        assert np.asarray(image)[8, 8].tolist() == pytest.approx([60, 60, 250], abs=20)


def test_live_runs_on_the_first_device(film: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[LiveRequest, dict[str, Any]]] = []
    monkeypatch.setattr(
        live_module,
        "run_on_devices",
        lambda request, folder, on_progress, **options: calls.append((request, options)),
    )
    monkeypatch.chdir(tmp_path)
    run = create_run(Job.from_fields(task="classification"))
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "best.pt").touch()
    request = LiveRequest(run=str(run.path), checkpoint="best", devices=("cpu", "cuda:0"), source=film, out="out")
    assert live(request, lambda _progress: None) == tmp_path / "out" / FRAME_FILE
    ((sent, options),) = calls
    assert (sent.devices, sent.out, options["total"]) == (("cpu",), str(tmp_path / "out"), 0)
    assert (tmp_path / "out").is_dir()
