"""The samples that a model is evaluated on: a split of its own dataset, or of another folder whose classes are made
its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.contract.inference.evaluation import SPLITS, ClassMapping, EvaluationSplit
from engine.contract.preprocessing import Preprocessing
from engine.contract.problems import Problem, errors
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import Splits, open_recognized
from engine.data.datasets.samples import SampleSet
from engine.data.datasets.unlabelled_images import bands_of
from engine.data.formats.registry import find_readings, kinds_for, recognize
from engine.data.splits import printable
from engine.inference.evaluation.class_mapping import map_classes
from engine.inference.trained_model import CannotLoad, Learnt, TrainedModel, reasons
from engine.system.format import in_short

Name = Literal["train", "val", "test"]
_NAMES: tuple[Name, ...] = ("train", "val", "test")
_COLOURS = (1, 3)


@dataclass(frozen=True)
class EvaluationData:
    """The samples of a `split` of `folder`: of `parts` one after another, each with its split of the folder.
    `warnings` are what is to be known of them.
    """

    folder: str
    split: EvaluationSplit
    parts: tuple[tuple[Name, ImageSet | SampleSet], ...]
    mapping: ClassMapping
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        return sum(len(samples) for _, samples in self.parts)


def open_data(learnt: Learnt | TrainedModel, dataset: str, split: EvaluationSplit | None) -> EvaluationData:
    """Opens a split of the folder `dataset`, "" for the run's own; None leaves the split open (see `EvaluateOrder`).
    Raises CannotLoad.
    """
    folder = os.path.abspath(os.path.expanduser(dataset or learnt.job.data.dataset))
    own = not dataset or os.path.realpath(folder) == os.path.realpath(os.path.expanduser(learnt.job.data.dataset))
    with reasons():
        splits, mapping = _opened(learnt, folder, own=own)
        splits = splits.with_each(lambda samples: _as_trained(samples, learnt))
    there = {name: samples for name in _NAMES if (samples := getattr(splits, name)) is not None and len(samples)}
    chosen, parts = _chosen(there, folder, split, own=own)
    warnings = [*_of_mapping(mapping)]
    if splits.test is splits.val and chosen == "test":
        warnings.append("The test split was the validation split in training: these samples chose the best checkpoint.")
    if own and chosen in ("train", "all"):
        warnings.append("The model was trained on some of these samples: it does better on them than on new ones.")
    return EvaluationData(folder, chosen, tuple(parts.items()), mapping, tuple(warnings))


def _opened(learnt: Learnt | TrainedModel, folder: str, *, own: bool) -> tuple[Splits, ClassMapping]:
    """The splits of a folder, with the classes of the model."""
    job, task = learnt.job, learnt.task
    fixed = task.entry.predicts == "lines"  # whose classes are the same, whatever a folder calls them
    kinds = kinds_for(task.entry.id, task.entry.annotations)
    format = job.data.format if own or task.entry.file else format_in(folder, job.data.format, kinds)
    if own or fixed or task.entry.file:
        splits = task.splits(job.with_fields(dataset=folder, format=format))
        if fixed or splits.classes == learnt.classes:
            _check_channels(splits, learnt)
            return splits, ClassMapping()
        if task.entry.file:
            names = in_short(splits.classes)
            message = f"{printable(folder)} has other classes ({names}) than the model ({in_short(learnt.classes)})."
            raise DatasetError([Problem("dataset", message, "Choose a folder with the same classes.")])
    found = recognize(
        folder,
        val_fraction=job.data.val_fraction if own else 0.0,
        seed=job.training.seed,
        kinds=kinds,
        format=format,
    )
    if wrong := errors(found.problems):
        raise DatasetError(wrong)
    found, mapping = map_classes(found, learnt.classes)
    if set(mapping.missing) == set(learnt.classes):
        message = f"{printable(folder)} has none of the model's classes ({in_short(learnt.classes)}), but {in_short(mapping.unknown)}."
        raise DatasetError(
            [Problem("dataset", message, "Name its classes as in the training, or choose another folder.")]
        )
    splits = open_recognized(found, folder)
    _check_channels(splits, learnt)
    plain = job.with_fields(dataset=folder, ignore_value=None)  # pixels of that value are of an unknown class
    return task.prepared(plain, splits.with_each(lambda samples: _made_alike(samples, learnt.preprocessing))), mapping


def format_in(folder: str, format: str, kinds: Sequence[str]) -> str:
    """Return the format that was chosen for the training if the folder has it with one of `kinds`, else ""."""
    names = dict.fromkeys((format, format.partition(":")[0])) if format else ()
    return next(
        (name for name in names if any({*kinds} & {*each.detection.kinds} for each in find_readings(folder, name))), ""
    )


def _check_channels(splits: Splits, learnt: Learnt | TrainedModel) -> None:
    """Raises DatasetError where the model can't be given the folder's samples."""
    train = splits.train
    if isinstance(train, SampleSet):
        lacking = [name for name in learnt.preprocessing.features if name not in train.features]
        if lacking:
            message = f"The points of the folder lack what the model was trained with: {', '.join(lacking)}."
            raise DatasetError([Problem("dataset", message, "Choose clouds with the same properties.")])
        return
    alike = splits.channels == learnt.channels
    low = learnt.preprocessing.low
    same_bands = train.bands is None or not low or len(low) == train.bands.count
    if not alike and not (splits.channels in _COLOURS and learnt.channels in _COLOURS and same_bands):
        message = f"The folder's images have {splits.channels} channels; the model was trained with {learnt.channels}."
        raise DatasetError([Problem("dataset", message, "Choose a folder whose images have the same bands.")])


def _made_alike(samples: ImageSet | SampleSet, preprocessing: Preprocessing) -> ImageSet | SampleSet:
    """A folder's samples with the bands, or the features of points, that the model was trained with."""
    if isinstance(samples, SampleSet):
        return samples.with_features(preprocessing.features)
    samples.bands = bands_of(preprocessing)
    return samples


def _as_trained(samples: ImageSet | SampleSet, learnt: Learnt | TrainedModel) -> ImageSet | SampleSet:
    """Return samples as in validation; those that are not images are normalized as in training."""
    if isinstance(samples, SampleSet):
        return samples.for_evaluation((learnt.preprocessing.mean, learnt.preprocessing.std))
    return samples


def _chosen(
    there: dict[Name, ImageSet | SampleSet], folder: str, split: EvaluationSplit | None, *, own: bool
) -> tuple[EvaluationSplit, dict[Name, ImageSet | SampleSet]]:
    """Which of the splits that are `there` are evaluated. Raises CannotLoad."""
    divided = own or set(there) != {"train"}
    if split is None:
        split = "val" if own else "test" if "test" in there else "val" if "val" in there else "all"
    parts: dict[Name, ImageSet | SampleSet]
    if split == "all":
        parts = dict(there)
        if parts.get("test") is parts.get("val"):
            parts.pop("test", None)
    else:
        parts = {name: samples for name, samples in there.items() if name == split and divided}
    if not parts:
        has = [name for name in SPLITS if name in there and divided] + ["all"]
        message = f"{printable(folder)} has no {split} split." if there else f"{printable(folder)} holds no samples."
        raise CannotLoad(Problem("split", message, f"It has: {', '.join(has)}." if there else "Choose another folder."))
    return split, parts


def _of_mapping(mapping: ClassMapping) -> Iterator[str]:
    """What is to be said of classes that one of folder and model lacks."""
    if mapping.missing:
        yield f"The folder has no {in_short(mapping.missing)}: nothing can be said of how well the model finds it."
    if mapping.unknown:
        count = "" if mapping.ignored is None else f" ({mapping.ignored:,})"
        yield f"The model does not know {in_short(mapping.unknown)}; what is of it was left out{count}."
