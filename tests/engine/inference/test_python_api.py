"""Use of a trained model from Python, with typed results in the coordinates of the given images."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from PIL import Image
from torch import nn

from engine.contract.job import Job
from engine.data.datasets.images import UnreadableImage
from engine.inference import Run
from engine.inference.trained_model import CannotLoad
from engine.inference.video import VideoWriter
from engine.runs.folder import create_run
from engine.system import paths
from engine.tasks.predictions import Labels, Lines, Mask, Objects, Prediction, Raw
from tests.support.cases import mark_long_cases
from tests.support.consent import permit_model_file
from tests.support.plain_models import make_trained_model
from tests.support.trained_runs import COUNTING, TrainedRun
from tests.support.worker_group import ROOT

KINDS: dict[str, type[Prediction]] = {
    "classification": Labels,
    "multilabel": Labels,
    "segmentation": Mask,
    "road_extraction": Lines,
    "edge_detection": Lines,
    "detection": Objects,
    "instance_segmentation": Objects,
}


def test_guide_examples_work(
    trained: Callable[[str], TrainedRun],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("cv2")
    shutil.copytree(trained("segmentation").run.path, paths.runs_folder() / "example")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name in ("cat.jpg", "dog.jpg", "photos/a.jpg", "photos/b.jpg"):
        Image.fromarray(noise(48, 64)).save(tmp_path / name)
    with VideoWriter(tmp_path / "film.mp4", 10.0) as video:
        for _ in range(3):
            video.add(noise(48, 64))
    text = (ROOT / "resources/docs/python.md").read_text(encoding="utf-8").replace("camera:0", "film.mp4")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert len(examples) == 5
    assert names["run"].classes == names["model"].classes
    assert names["prediction"].plane.shape == (48, 64)
    assert names["outputs"].shape == (1, len(names["run"].classes), 32, 32)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 + 3
    assert lines[-1].endswith(" images/s")


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("task", mark_long_cases(KINDS, everyday=["classification", "segmentation", "detection"]))
def test_results_are_in_image_pixels(task: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    create_run(Job.from_fields(name=trained(task).run.path.name))  # the given folder is another run
    run = Run(trained(task).run.path)
    assert run.folder == trained(task).run.path
    assert "last" in run.checkpoints
    model = run.load("last", device="cpu")
    assert model.classes == run.classes
    images = [noise(40, 70), noise(90, 30)]
    Image.fromarray(images[1]).save(tmp_path / "upright.png")
    results = model.predict([images[0], tmp_path / "upright.png"], threshold=0.0)
    assert [type(result) for result in results] == [KINDS[task]] * 2
    again = model.predict(images, threshold=0.0)
    for image, result, other in zip(images, results, again, strict=True):
        assert result.text == other.text
        match result:
            case Labels():
                assert result.probabilities.shape == (len(run.classes),)
            case Mask():
                assert result.plane.shape == result.probability.shape == image.shape[:2]
                assert result.plane.max() < len(run.classes)
                assert result.probability.min() >= 1 / len(run.classes) - 1e-6
            case Lines():
                assert result.likelihood.shape == image.shape[:2]
            case Objects():
                assert len(result) > 0
                assert (result.boxes >= 0).all()
                assert (result.boxes.max(0) <= [image.shape[1], image.shape[0]] * 2).all()
                assert (np.diff(result.scores) <= 0).all()
                if task == "instance_segmentation":
                    assert result.masks.shape == (len(result), *image.shape[:2])
        drawn = result.draw(image)
        assert drawn is None if isinstance(result, Labels) else drawn is not None and drawn.shape == image.shape


def test_unreadable_input_is_named(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    with pytest.raises(CannotLoad, match="There is no run"):
        Run(tmp_path / "none")
    model = Run(trained("classification").run.path).load("last", device="cpu")
    with pytest.raises(ValueError, match=r"uint8 \[h, w, 3\], not uint8 of 8 x 8 x 4"):
        model.predict([np.zeros((8, 8, 4), np.uint8)])
    for without_tiles in (model, make_trained_model("multilabel", nn.Identity())):
        with pytest.raises(ValueError, match="does not look at images in tiles"):
            without_tiles.predict([noise(40, 40)], tile=16)
    without_images = make_trained_model("point_segmentation", nn.Identity())
    without_images.preprocessing = structs.replace(without_images.preprocessing, framing="")
    with pytest.raises(ValueError, match="takes no images; give `outputs` its inputs"):
        without_images.predict([noise(8, 8)])
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match="it is not a readable image"):
        model.predict([tmp_path / "broken.png"])


def test_custom_task_returns_its_outputs(trained: Callable[[str], TrainedRun]) -> None:
    permit_model_file(COUNTING)
    model = Run(trained("custom").run.path).load("last", device="cpu")
    val = model.task.open_splits(model.job).val
    given = val.load(0, 0)[0]
    output = model.outputs(given[None])[0]
    result = model.prediction(output, given, (48, 48))
    assert isinstance(result, Raw)
    assert result.output.tolist() == output.tolist()
    assert result.text == f"{output.item():.1f} counted"
