"""Choice of the samples of an evaluation, and their partition among the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from torch import nn

from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.inference.evaluation.dataset import EvaluationData, open_data
from engine.inference.sweep import Partition, iterate_batches, predict_batches
from engine.inference.trained_model import CannotLoad, TrainedModel
from engine.training.dataloaders import get_preprocessing
from tests.support.clouds import make_clouds
from tests.support.masks import make_masked
from tests.support.plain_models import make_trained_model
from tests.support.trained_runs import make_colors


def build_model(dataset: Path, **fields: Any) -> TrainedModel:
    model = make_trained_model("classification", nn.Identity(), dataset=str(dataset), **fields)
    model.classes = ("blue", "green", "red")
    return model


def describe_choice(data: EvaluationData) -> tuple[str, dict[str, int], list[str]]:
    """Return the name of the split, the number of samples by split, and the first words of the warnings."""
    counts = {name: len(samples) for name, samples in data.splits}
    return data.split, counts, [warning.partition(" split")[0][:22] for warning in data.warnings]


def test_split_is_the_requested_or_the_first_unseen(tmp_path: Path) -> None:
    trained_on = make_colors(tmp_path / "data", {"train": 1, "val": 2, "test": 3})
    model = build_model(trained_on)
    (tmp_path / "link").symlink_to(trained_on)
    seen = ["The model was trained "]
    every = {"train": 3, "val": 6, "test": 9}
    for dataset in ("", str(trained_on), str(tmp_path / "link")):
        assert describe_choice(open_data(model, dataset, None)) == ("val", {"val": 6}, [])
        assert describe_choice(open_data(model, dataset, "train")) == ("train", {"train": 3}, seen)
        assert describe_choice(open_data(model, dataset, "all")) == ("all", every, seen)
    for counts, split in (({"train": 1, "val": 2, "test": 3}, "test"), ({"train": 1, "val": 2}, "val")):
        other = make_colors(tmp_path / f"other {split}", counts)
        assert describe_choice(open_data(model, str(other), None)) == (split, {split: every[split]}, [])
    plain = make_colors(tmp_path / "plain", {"": 5})
    assert describe_choice(open_data(model, str(plain), None)) == ("all", {"train": 15}, [])
    for folder, requested, remedy in ((plain, "train", "It has: all."), (other, "test", "It has: val, train, all.")):
        with pytest.raises(CannotLoad) as refused:
            open_data(model, str(folder), requested)  # type: ignore[arg-type]
        assert [(problem.field, problem.remedy) for problem in refused.value.problems] == [("split", remedy)]


def test_channels_and_features_must_be_those_of_the_training(tmp_path: Path) -> None:
    colors = make_colors(tmp_path / "colors", {"train": 1, "val": 1})
    for channels in (3, 1):
        assert len(open_data(build_model(colors, channels=channels), "", "val")) == 3
    model = build_model(colors)
    for low in ((), (0.0,) * 3):
        model.preprocessing = structs.replace(model.preprocessing, low=low, high=low)
        ((_, samples),) = open_data(model, str(make_colors(tmp_path / f"{len(low)}", {"val": 1})), "all").splits
        assert isinstance(samples, ImageSet)
        assert (samples.bands is not None) == bool(low)
    with pytest.raises(CannotLoad, match="images have 3 channels; the model was trained with 4"):
        open_data(build_model(colors, channels=4), "", "val")
    clouds = str(make_clouds(tmp_path / "clouds", {"train": 1, "val": 1}))
    model = make_trained_model("point_segmentation", nn.Identity(), dataset=clouds, model="pointcnn_x1", points=32)
    splits = model.task.open_splits(model.job)
    model.classes = splits.classes
    assert isinstance(splits.train, SampleSet)
    found = get_preprocessing(model.job, model.task, splits)
    assert (found.framing, found.features, found.values) == ("", splits.train.features, splits.train.label_values)
    assert len(found.values) == len(splits.classes) > 0
    for features, is_accepted in ((splits.train.features, True), ((*splits.train.features, "height"), False)):
        model.preprocessing = structs.replace(model.preprocessing, framing="", features=features)
        if is_accepted:
            assert len(open_data(model, "", "val"))
            continue
        with pytest.raises(CannotLoad, match="lack what the model was trained with: height"):
            open_data(model, "", "val")


def test_pixels_of_unknown_classes_are_not_counted(tmp_path: Path) -> None:
    masked = make_masked(tmp_path / "masked", {"train": 1, "val": 1})
    model = make_trained_model("segmentation", nn.Identity(), dataset=str(tmp_path))
    model.classes = ("class 0", "class 1")
    assert open_data(model, str(masked), "val").warnings == (
        "The model does not know class 2; its samples were left out.",
    )


def test_test_split_that_chose_the_checkpoint_is_reported(tmp_path: Path) -> None:
    model = build_model(make_colors(tmp_path, {"train": 1, "test": 2}))
    assert describe_choice(open_data(model, "", None)) == ("val", {"val": 6}, [])
    assert describe_choice(open_data(model, "", "test")) == ("test", {"test": 6}, ["The test"])
    assert describe_choice(open_data(model, "", "all")) == ("all", {"train": 3, "val": 6}, ["The model was trained "])


def test_workers_share_the_selected_samples_in_order(tmp_path: Path) -> None:
    model = build_model(make_colors(tmp_path, {"train": 1, "val": 3}))
    ((_, samples),) = open_data(model, "", None).splits
    (tmp_path / "val/green/0.png").write_bytes(b"no image")
    unreadable: list[str] = []

    def read_indices(rank: int, selected: Any = None) -> list[list[int]]:
        batches = iterate_batches(
            model, samples, batch_size=2, partition=Partition(rank, 2), selected=selected,
            on_unreadable=lambda path, _reason: unreadable.append(path),
        )  # fmt: skip
        return [[] if batch.samples is None else batch.samples.tolist() for batch in batches]

    assert [read_indices(0), read_indices(1)] == [[[0, 1], [4, 5], [8]], [[2], [6, 7], []]]
    assert unreadable == ["val/green/0.png"]
    predicted = predict_batches(model, samples, batch_size=2, partition=Partition(1, 2))
    assert [batch.samples.tolist() for batch in predicted] == [[2], [6, 7]]
    order = np.array([8, 1, 0, 7, 2])
    assert [read_indices(0, order), read_indices(1, order)] == [[[8, 1], [2]], [[0, 7], []]]
