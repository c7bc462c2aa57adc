"""Samples for an evaluation.

They are a split of the model's dataset, or of another folder whose classes are mapped to those of the model.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.contract.images import Preprocessing
from engine.contract.inference.evaluation import SPLITS, ClassMapping, EvaluationSplit
from engine.contract.problems import Problem, errors
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits, open_recognized
from engine.data.datasets.samples import SampleSet
from engine.data.datasets.unlabeled_images import get_bands
from engine.data.formats.registry import accepted_kinds, find_readings, recognize
from engine.data.splits import printable
from engine.inference.evaluation.class_mapping import map_classes
from engine.inference.trained_model import CannotLoad, TrainedModel, TrainingFacts, convert_errors
from engine.system.format import counted, shorten_list

SplitName = Literal["train", "val", "test"]
_SPLIT_NAMES: tuple[SplitName, ...] = ("train", "val", "test")
_COLOR_CHANNELS = (1, 3)
"""Numbers of channels, gray and RGB, that can be converted into each other."""


@dataclass(frozen=True)
class EvaluationData:
    """Samples on which a model is evaluated: one or all splits of a dataset folder.

    Attributes:
        folder: Absolute path of the folder.
        split: Name of the split, or "all".
        splits: Names and samples of the included splits, in order.
        mapping: Differences between the classes of the folder and those of the model.
        warnings: Messages for the user.
    """

    folder: str
    split: EvaluationSplit
    splits: tuple[tuple[SplitName, ImageSet | SampleSet], ...]
    mapping: ClassMapping
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        return sum(len(samples) for _, samples in self.splits)


def open_data(training: TrainingFacts | TrainedModel, dataset: str, split: EvaluationSplit | None) -> EvaluationData:
    """Open a split of the folder `dataset`, or of the dataset used for training if it is "".

    If `split` is None, a default split is selected (see `EvaluateRequest`). Raises CannotLoad.
    """
    folder = os.path.abspath(os.path.expanduser(dataset or training.job.data.dataset))
    trained_on = os.path.expanduser(training.job.data.dataset)
    is_trained_on = not dataset or os.path.realpath(folder) == os.path.realpath(trained_on)
    with convert_errors():
        splits, mapping = _open_splits(training, folder, is_trained_on=is_trained_on)
        splits = splits.with_each(lambda samples: _prepare_for_evaluation(samples, training))
    splits_by_name: dict[SplitName, ImageSet | SampleSet] = {}
    for name in _SPLIT_NAMES:
        samples = getattr(splits, name)
        if samples is not None and len(samples):
            splits_by_name[name] = samples
    chosen_split, included = _choose_split(splits_by_name, folder, split, is_trained_on=is_trained_on)
    warnings = list(_list_mapping_warnings(mapping))
    if splits.test is splits.val and chosen_split == "test":
        warnings.append("The test split was the validation split in training: these samples chose the best checkpoint.")
    if is_trained_on and chosen_split in ("train", "all"):
        warnings.append("The model was trained on some of these samples: it does better on them than on new ones.")
    return EvaluationData(folder, chosen_split, tuple(included.items()), mapping, tuple(warnings))


def _open_splits(
    training: TrainingFacts | TrainedModel, folder: str, *, is_trained_on: bool
) -> tuple[Splits, ClassMapping]:
    """Open the splits of a folder with its classes mapped to those of the model.

    `is_trained_on` is True for the dataset used for training. Raises DatasetError.
    """
    job, task = training.job, training.task
    has_fixed_classes = task.entry.predicts == "lines"  # their classes are the same, whatever their names in the folder
    is_user_defined = task.entry.file  # the user's Python file reads the folder
    kinds = accepted_kinds(task.entry.id, task.entry.annotations)
    format = job.data.format
    if not is_trained_on and not is_user_defined:
        format = find_readable_format(folder, job.data.format, kinds)
    if is_trained_on or has_fixed_classes or is_user_defined:
        splits = task.open_splits(job.with_fields(dataset=folder, format=format))
        if has_fixed_classes or splits.classes == training.classes:
            _check_channels(splits, training)
            return splits, ClassMapping()
        if is_user_defined:
            names = shorten_list(splits.classes)
            message = (
                f"{printable(folder)} has other classes ({names}) than the model ({shorten_list(training.classes)})."
            )
            raise DatasetError([Problem("dataset", message, "Choose a folder with the same classes.")])
    # The annotations are read with the folder's own classes, which are then mapped to those of the model.
    recognized = recognize(
        folder,
        val_fraction=job.data.val_fraction if is_trained_on else 0.0,
        seed=job.training.seed,
        kinds=kinds,
        format=format,
    )
    if recognition_errors := errors(recognized.problems):
        raise DatasetError(recognition_errors)
    recognized, mapping = map_classes(recognized, training.classes)
    if set(mapping.missing) == set(training.classes):
        message = f"{printable(folder)} has none of the model's classes ({shorten_list(training.classes)}), but {shorten_list(mapping.unknown)}."
        raise DatasetError(
            [Problem("dataset", message, "Name its classes as in the training, or choose another folder.")]
        )
    splits = open_recognized(recognized, folder)
    _check_channels(splits, training)
    plain_job = job.with_fields(dataset=folder, ignore_value=None)  # pixels with that value belong to an unknown class
    splits = splits.with_each(lambda samples: _use_bands(samples, training.preprocessing))
    return task.prepare_splits(plain_job, splits), mapping


def find_readable_format(folder: str, format: str, kinds: Sequence[str]) -> str:
    """Return the `format` used for training if the folder can be read in this format, otherwise "".

    If the folder can only be read in another variant of it, return the format without the variant. `kinds` are the
    kinds of annotations that the task accepts.
    """
    if not format:
        return ""
    id = format.partition(":")[0]  # without the variant
    for name in (format, id):
        if any({*kinds} & {*reading.detection.kinds} for reading in find_readings(folder, name)):
            return name
    return ""


def _check_channels(splits: Splits, training: TrainingFacts | TrainedModel) -> None:
    """Raise DatasetError if the model can't process the channels of the samples in a folder."""
    train = splits.train
    if isinstance(train, SampleSet):
        missing_features = [name for name in training.preprocessing.features if name not in train.features]
        if missing_features:
            message = f"The points of the folder lack what the model was trained with: {', '.join(missing_features)}."
            raise DatasetError([Problem("dataset", message, "Choose clouds with the same properties.")])
        return
    has_same_count = splits.channels == training.channels
    band_limits = training.preprocessing.low
    has_same_bands = train.bands is None or not band_limits or len(band_limits) == train.bands.count
    can_convert = {splits.channels, training.channels} <= set(_COLOR_CHANNELS) and has_same_bands
    if not has_same_count and not can_convert:
        message = f"The folder's images have {counted(splits.channels, 'channel')}; the model was trained with {training.channels}."
        raise DatasetError([Problem("dataset", message, "Choose a folder whose images have the same bands.")])


def _use_bands(samples: ImageSet | SampleSet, preprocessing: Preprocessing) -> ImageSet | SampleSet:
    """Return samples with the image bands or point features of the training. An ImageSet is modified and returned."""
    if isinstance(samples, SampleSet):
        return samples.with_features(preprocessing.features)
    samples.bands = get_bands(preprocessing)
    return samples


def _prepare_for_evaluation(
    samples: ImageSet | SampleSet, training: TrainingFacts | TrainedModel
) -> ImageSet | SampleSet:
    """Prepare point clouds for validation: normalized as in training, but not rotated. Images are unchanged."""
    if isinstance(samples, SampleSet):
        return samples.for_evaluation((training.preprocessing.mean, training.preprocessing.std))
    return samples


def _choose_split(
    splits_by_name: dict[SplitName, ImageSet | SampleSet],
    folder: str,
    split: EvaluationSplit | None,
    *,
    is_trained_on: bool,
) -> tuple[EvaluationSplit, dict[SplitName, ImageSet | SampleSet]]:
    """Return the name of the split to evaluate, and the samples of each split that it includes. Raises CannotLoad.

    `split` is the requested split, or None for a default. `is_trained_on` is True for the dataset used for training.
    """
    # A folder without splits is read as a single split "train", which then is only offered as "all".
    has_splits = is_trained_on or set(splits_by_name) != {"train"}
    if split is None:
        split = _choose_default_split(splits_by_name, is_trained_on=is_trained_on)
    splits: dict[SplitName, ImageSet | SampleSet]
    if split == "all":
        splits = dict(splits_by_name)
        if splits.get("test") is splits.get("val"):  # one split serves both purposes, and must count once
            splits.pop("test", None)
    else:
        splits = {name: samples for name, samples in splits_by_name.items() if name == split and has_splits}
    if not splits:
        if splits_by_name:
            available = [name for name in SPLITS if name in splits_by_name and has_splits] + ["all"]
            message, remedy = f"{printable(folder)} has no {split} split.", f"It has: {', '.join(available)}."
        else:
            message, remedy = f"{printable(folder)} holds no samples.", "Choose another folder."
        raise CannotLoad(Problem("split", message, remedy))
    return split, splits


def _choose_default_split(splits: Collection[SplitName], *, is_trained_on: bool) -> EvaluationSplit:
    """Return "val" for the dataset used for training.

    For another folder, return "test" if it has a test split, otherwise "val" if it has a validation split, or else
    "all".
    """
    if is_trained_on or ("val" in splits and "test" not in splits):
        return "val"
    return "test" if "test" in splits else "all"


def _list_mapping_warnings(mapping: ClassMapping) -> Iterator[str]:
    """Yield warnings about classes that do not exist in the folder or in the model."""
    if mapping.missing:
        yield f"The folder has no {shorten_list(mapping.missing)}: the evaluation can't tell how well the model recognizes it."
    if mapping.unknown:
        count = "" if mapping.ignored is None else f" ({mapping.ignored:,})"
        yield f"The model does not know {shorten_list(mapping.unknown)}; its samples were left out{count}."
