"""Previews of augmented training images."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.dataset import PreviewImage, PreviewRequest
from engine.data.datasets.images import ImageSet
from engine.processes.requests import RequestError
from engine.tasks.registry import TASKS
from engine.training import preview
from tests.engine.training.task_jobs import task_job


def test_preview_shows_each_image_in_the_first_epochs(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = task_job(images, model="mnist_cnn", image_size=16, epochs=2, augmentation="none", mirror="off")
    train, previews = TASKS[job.task].open_splits(job).train, list[PreviewImage]()
    assert isinstance(train, ImageSet)
    samples = (5, 2, *range(60, 70))  # more than a batch
    assert not preview.render(PreviewRequest(job, samples), previews.append)
    assert [(each.sample, each.epoch, each.size) for each in previews] == [
        (sample, epoch, 16) for epoch in (1, 2) for sample in samples
    ]
    for each in previews:
        pixels = np.asarray(Image.open(BytesIO(each.png))).astype(int)
        assert np.abs(pixels - train.load(each.sample, 16, 3).permute(1, 2, 0).numpy()).max() <= 1

    def refuse(**fields: object) -> tuple[str, str]:
        with pytest.raises(RequestError) as refused:
            preview.answer_request(PreviewRequest(job.with_fields(**fields), samples), previews.append)
        (problem,) = refused.value.problems
        return problem.field, problem.message

    field, message = refuse(augmentation="own")
    assert field
    assert "No transforms are listed" in message
    assert refuse(dataset=str(images / "none"))[0] == "dataset"
    with monkeypatch.context() as patch:
        patch.setattr(preview, "to_rgb", lambda _: 1 / 0)
        assert refuse() == ("", "The images can't be shown: ZeroDivisionError: division by zero.")
    assert not preview.render(PreviewRequest(job.with_fields(epochs=5), (3,)), previews.append)
    assert [each.epoch for each in previews if each.sample == 3] == [1, 2, 3]
    monkeypatch.setattr(preview, "MAX_PREVIEW_SIDE", 8)
    assert preview.render(PreviewRequest(job.with_fields(mirror="auto", epochs=1), (3,)), previews.append)
    assert (previews[-1].size, Image.open(BytesIO(previews[-1].png)).size) == (16, (8, 8))
