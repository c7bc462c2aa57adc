"""Select the format of a dataset folder by comparing the evidence from all formats. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from engine.contract.catalogue import AnnotationKind, load_catalogue
from engine.contract.dataset import READ_AS
from engine.contract.problems import Choice, Problem
from engine.data.formats.damage import describe_damage
from engine.data.formats.declarations import task_declarations
from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.shared.assembly import assemble
from engine.data.formats.tree import SPLIT_NAMES, Tree, find_link_loops
from engine.data.splits import LAYOUT, RecognizedDataset, dataset_error, dataset_warning, make_unrecognized, printable
from engine.system.format import counted, listed
from engine.system.plugins import Registry, UnusablePluginError
from engine.system.regular_files import UnusableFile

IMAGES_BY_CLASS = ("classes",)


KINDS = {
    "instances": AnnotationKind(
        "images with outlined objects",
        "Choose a folder with images and outlines (COCO, YOLO, LabelMe, CVAT …), or with masks that number the objects.",
    ),
    "boxes": AnnotationKind(
        "images with boxes",
        "Choose a folder with images and boxes as COCO, YOLO, PASCAL VOC, LabelMe, CVAT, Label Studio or CSV files.",
    ),
    **{name: kind for task in task_declarations() for name, kind in task.kinds.items()},
    "masks": AnnotationKind(
        "images with masks",
        "Choose a folder with images and masks of the same names, in folders such as images and masks.",
    ),
    "labels": AnnotationKind(
        "images with several labels",
        "Choose a folder of images with a table (CSV, TSV, JSON) of file names and labels.",
    ),
    "classes": AnnotationKind("images by class", LAYOUT),
    "files": AnnotationKind("files for a custom task", "Choose the folder that your program reads.", "file"),
}
"""Kinds of annotations by id. If a folder has several kinds, the first one here is preferred."""


def _make_plugin_format(name: str, loaded: object) -> Format:
    """Return the format that a package provides under `name`. Raises UnusablePluginError for any other object."""
    if not isinstance(loaded, Format):
        raise UnusablePluginError(f"it is a {type(loaded).__name__}, not a Format of engine.data.formats.format")
    return replace(loaded, id=name)


_MASK_MODULES = ("cityscapes", "mapillary", "ade20k", "pets", "loveda", "voc_masks", "arcgis_masks", "dsb2018")
_MODULES = (
    "maskfolder", "change_detection", "mvtec", "depth", "coco", "coco_panoptic", "coco_stuff", "createml", "via", "voc",
    "cvat", "labelme", "label_studio", "supervisely", "kitti", "dota", "yolo", "mot", "wider_face", "bdd100k", "any_files",
    "idx", "vott", "csv_boxes", "huggingface", "webdataset", "arcgis_tiles", "labels_table", "imagefolder", "unsupported",
)  # fmt: skip


def _import_formats(*modules: str) -> Iterator[Format]:
    """Import the given modules of this package, and yield the dataset formats that they declare."""
    return (import_module(f"engine.data.formats.{module}").FORMAT for module in modules)


_BUILT_IN: tuple[Format, ...] = (
    *_import_formats(*_MASK_MODULES),
    *(each for task in task_declarations() for each in task.formats),
    *_import_formats(*_MODULES),
)
FORMATS: Registry[Format] = Registry("footplate.formats", {each.id: each for each in _BUILT_IN}, _make_plugin_format)
"""Formats by id. If several have equal evidence, the first one here is preferred."""


@dataclass(frozen=True)
class Reading:
    """Interpretation of a dataset folder: a format together with one of its detections."""

    format: Format
    detection: Detection
    tree: Tree
    """Listing of the folder, to be used again for reading the dataset."""

    @property
    def name(self) -> str:
        """Value of the job's `format` that selects this interpretation, such as "coco" or "masks:labels"."""
        return f"{self.format.id}:{self.detection.variant}" if self.detection.variant else self.format.id

    @property
    def title(self) -> str:
        """Name of the interpretation for messages to the user: the format's title with the variant in brackets."""
        return f"{self.format.title} ({self.detection.variant})" if self.detection.variant else self.format.title

    @property
    def kind(self) -> str:
        """Most detailed kind of annotations that can be read, or "" if Footplate does not support the format."""
        return self.detection.kinds[0] if self.detection.kinds else ""


def accepted_kinds(task: str, task_kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of annotations that the task with the id `task` accepts.

    These are `task_kinds`, and the kinds of plug-in formats for the task. Imports the plug-ins.
    """
    added = (kind for format in FORMATS.load_plugins().values() if task in format.tasks for kind in format.kinds)
    return tuple(dict.fromkeys((*task_kinds, *added)))


def recognize(
    folder: str, *, val_fraction: float, seed: int, kinds: Sequence[str] = IMAGES_BY_CLASS, format: str = ""
) -> RecognizedDataset:
    """Recognize the dataset in `folder` and read it as one of `kinds`. At most a few images are opened.

    The problems in the result contain all errors and warnings. If the evidence conflicts, one of them is a question to
    the user, with choices.

    Args:
        folder: Folder of the dataset.
        val_fraction: Fraction of the training samples to hold out if there is no validation split, or 0 for none.
        seed: Seed for drawing the validation samples.
        kinds: Kinds of annotations that the task accepts, the preferred one first.
        format: Name of the interpretation that the user chose, or "" to decide by the evidence.
    """
    try:
        tree = Tree(folder)
        chosen = _choose(tree, kinds, format)
        if isinstance(chosen, RecognizedDataset):
            return chosen
        reading, warnings = chosen
    except (OSError, UnusableFile, MemoryError) as error:
        return make_unrecognized(explain_failure(error, folder))
    found = read_as(reading, kinds, val_fraction=val_fraction, seed=seed)
    return replace(found, certain=bool(format) or found.certain, problems=(*found.problems, *warnings))


def read_as(reading: Reading, kinds: Sequence[str], *, val_fraction: float, seed: int) -> RecognizedDataset:
    """Read a dataset with the given interpretation, as the first of `kinds` that the interpretation supports.

    See `recognize` for the arguments.
    """
    folder, detection = reading.tree.root, reading.detection
    try:
        kind = next(kind for kind in kinds if kind in detection.kinds)
        content = reading.format.read(reading.tree, detection, kind)
        found = assemble(content, kind, folder, reading.format, val_fraction=val_fraction, seed=seed)
        found = replace(
            found,
            format=reading.name,
            title=reading.title,
            evidence=detection.evidence,
            certain=detection.obvious or detection.confidence is Confidence.CERTAIN,
        )
        return _warn_about_link_loops(found, reading.tree)
    except (OSError, UnusableFile, MemoryError) as error:
        return make_unrecognized(explain_failure(error, folder))


def find_readings(folder: str, format: str = "") -> list[Reading]:
    """Return the possible interpretations of a folder, the one with the strongest evidence first.

    `format` is the name of a format or interpretation, or "" for all of them. Returns [] if the folder can't be read.
    """
    try:
        return _select_named(_find_all_readings(Tree(folder)), format)
    except (OSError, UnusableFile, MemoryError):
        return []


def detect_kind(folder: str, format: str = "") -> str | None:
    """Return the most likely kind of annotations in a folder, or None if no evidence is strong enough.

    With `format`, only the interpretations of this name are considered, even with weak evidence. If several kinds have
    equal evidence, the first one in `KINDS` is returned.
    """
    min_confidence = Confidence.WEAK if format else Confidence.LIKELY
    found = [
        each for each in find_readings(folder, format) if each.kind and each.detection.confidence >= min_confidence
    ]
    best = [each.kind for each in found if each.detection.confidence == found[0].detection.confidence]
    order = [*KINDS, *(kind for kind in best if kind not in KINDS)]
    return min(best, key=order.index, default=None)


def explain_failure(error: OSError | UnusableFile | MemoryError, folder: str) -> Problem:
    """Return a problem that explains why a folder can't be inspected."""
    match error:
        case UnusableFile():
            return dataset_error(f"{printable(os.path.relpath(error.path, folder))} {error.reason}.", error.remedy)
        case MemoryError():
            return dataset_error(
                f"Inspecting {printable(folder)} takes more memory than is available.",
                "Remove files that are much larger than the others, or split the dataset.",
            )
        case FileNotFoundError():
            return dataset_error(f"There is no folder {printable(folder)}.", "Check the spelling, or browse for it.")
        case NotADirectoryError():
            return dataset_error(
                f"{printable(folder)} is a file, not a folder.", "Choose the folder that holds the images."
            )
        case PermissionError():
            unreadable = printable(os.fsdecode(error.filename or folder))
            return dataset_error(
                f"You have no permission to read {unreadable}.",
                "Give yourself permission to read it, or choose another.",
            )
    return dataset_error(f"{printable(folder)} can't be read: {error.strerror}.", "Check the disk, or choose another.")


def _find_all_readings(tree: Tree) -> list[Reading]:
    """Return the interpretations of a folder by all formats, strongest evidence first.

    Raises OSError, UnusableFile and MemoryError.
    """
    tree.folders()  # raises for a folder that can't be read
    found = [Reading(FORMATS[name], each, tree) for name in list(FORMATS) for each in _detect(name, tree)]
    return sorted(found, key=lambda each: -each.detection.confidence)


def _detect(name: str, tree: Tree) -> Sequence[Detection]:
    """Return the detections of the format called `name`.

    A format from a plug-in that fails is removed from `FORMATS`, and () is returned.
    """
    try:
        return FORMATS[name].detect(tree)
    except Exception as error:
        if name not in FORMATS.packages or isinstance(error, (OSError, UnusableFile, MemoryError)):
            raise
        FORMATS.leave_out(name, f"recognizing {printable(tree.root)}, it failed: {type(error).__name__}: {error}")
        return ()


def _select_named(found: list[Reading], format: str) -> list[Reading]:
    """Return those of `found` whose name, or whose format's id, is `format`, or all of them if `format` is ""."""
    return [each for each in found if format in ("", each.name, each.format.id)]


def _choose(tree: Tree, kinds: Sequence[str], format: str) -> tuple[Reading, list[Problem]] | RecognizedDataset:
    """Choose the interpretation to use, and return it with warnings.

    Only interpretations called `format` are considered, unless it is "". Returns a dataset with only an error if none
    of them has one of `kinds`, or with only a question if the user has to decide.
    """
    readings = _find_all_readings(tree)
    named = _select_named(readings, format)
    if not named and format:
        return make_unrecognized(_report_missing_format(tree, format, readings, kinds))
    fitting = [each for each in named if set(kinds) & set(each.detection.kinds)]
    if not fitting:
        return _report_other_kind(tree, named, kinds)
    best = fitting[0].detection.confidence
    leaders = [each for each in fitting if each.detection.confidence == best]
    leaders.sort(key=lambda each: bool(each.detection.against))
    variants = [each for each in leaders if each.format is leaders[0].format]
    if len(variants) > 1:
        return _ask_which(tree, variants, kinds)
    return (leaders[0], []) if format else _check_leader(tree, named, fitting, leaders, kinds)


def _check_leader(
    tree: Tree,
    readings: Sequence[Reading],
    fitting: Sequence[Reading],
    leaders: Sequence[Reading],
    kinds: Sequence[str],
) -> tuple[Reading, list[Problem]] | RecognizedDataset:
    """Return the first of the `leaders` with warnings, or a dataset that has only a problem.

    The problem is an error if evidence for another kind of annotations is stronger than for folders of classes. It is a
    question to the user if there is evidence against the leader, or if several sources of classes may contradict each
    other.

    Args:
        tree: Listing of the dataset.
        readings: All interpretations of the folder, strongest first.
        fitting: Those that support one of `kinds`.
        leaders: Those of `fitting` with the highest confidence. Those with evidence against them come last.
        kinds: Kinds of annotations that the task accepts.
    """
    best = leaders[0].detection.confidence
    stronger = [each for each in readings if each.detection.confidence > best and not each.detection.against]
    if stronger and leaders[0].kind == "classes":  # any tree of images may look like folders of classes
        return _report_other_kind(tree, [*stronger, *fitting], kinds)
    if leaders[0].detection.against:  # then all leaders have evidence against them
        return _ask_about_doubt(tree, leaders[0], fitting, kinds)
    others = [each for each in leaders[1:] if each.kind != "files"]  # any folder can be read as files
    if not others:
        return leaders[0], []
    # Two sources of classes, such as folders and a table, may contradict each other.
    rivals = [each for each in others if each.kind == leaders[0].kind == "classes" and each.detection.obvious]
    if rivals:
        return _ask_which(tree, [leaders[0], *rivals], kinds)
    message = (
        f"{printable(tree.root)} also holds {listed(dict.fromkeys(each.title for each in others))}, which is not used."
    )
    remedy = "Choose a format if you want another."
    return leaders[0], [dataset_warning(message, remedy, _make_choices(others, kinds))]


def _report_missing_format(tree: Tree, format: str, found: Sequence[Reading], kinds: Sequence[str]) -> Problem:
    """Return an error that explains that the folder does not have the format that the user chose.

    `found` are the other interpretations of the folder.
    """
    id = format.partition(":")[0]
    if id not in FORMATS:
        return Problem("format", f"There is no format “{format}”.", f"Choose one of {', '.join(FORMATS)}.")
    message = f"{printable(tree.root)} is not recognized as {FORMATS[id].title}."
    choices = _make_choices([each for each in found if each.kind], kinds)
    return Problem("format", message, FORMATS[id].layout, choices=choices)


def _report_other_kind(tree: Tree, found: Sequence[Reading], kinds: Sequence[str]) -> RecognizedDataset:
    """Return a dataset with an error: the folder has no readable annotations of the accepted `kinds`.

    `found` are all interpretations of the folder.
    """
    kind = kinds[0]
    layout = FORMATS[kind].layout if kind in FORMATS else ""  # a kind from a plug-in may have the id of its format
    requested = KINDS.get(kind, AnnotationKind(kind, layout))
    undoubted = [each for each in found if each.kind != "files" and not each.detection.against]
    doubtful = [each for each in found if each.detection.against]
    unsupported = [each for each in undoubted if not each.kind]
    # An unsupported format is only reported if no other format is more likely.
    if unsupported and unsupported[0].detection.confidence >= undoubted[0].detection.confidence:
        message = f"{printable(tree.root)} holds {unsupported[0].format.title}, which can't be trained on ({_describe_evidence(unsupported[0])})."
        return make_unrecognized(dataset_error(message, unsupported[0].detection.remedy))
    readable = [each for each in undoubted if each.kind]
    if not readable:
        return make_unrecognized(_report_nothing_found(tree, requested, _make_choices(doubtful, kinds)))
    best = readable[0]
    present = f"{_get_title(best.kind)} ({best.title}: {_describe_evidence(best)})"
    message = f"{printable(tree.root)} holds {present}, not {requested.title}."
    choices = _make_choices([*readable, *doubtful], kinds)
    tasks = [each.title for each in _make_choices(readable, kinds)]
    remedy = f"Choose {listed(tasks, 'or')}." if tasks else requested.layout
    return make_unrecognized(dataset_error(message, remedy, choices), best.kind)


def _ask_about_doubt(
    tree: Tree, reading: Reading, fitting: Sequence[Reading], kinds: Sequence[str]
) -> RecognizedDataset:
    """Return a dataset without samples whose problem states the evidence against `reading`, for the user to decide.

    `fitting` are the interpretations that support one of `kinds`, and `reading` is the best of them. The problem offers
    all of them as choices (see `_make_choices`).
    """
    against = reading.detection.against
    verb = "is" if against[0].startswith(("the ", "a ")) else "are"
    message = (
        f"{printable(tree.root)} does not look like {_get_title(reading.kind)}: there {verb} {'; '.join(against)}."
    )
    message = f"{message} {describe_damage(tree)}".rstrip()  # a damaged file may be the cause
    remedy = reading.detection.remedy or reading.format.layout
    return make_unrecognized(dataset_error(message, remedy, _make_choices(fitting, kinds)))


def _ask_which(tree: Tree, found: Sequence[Reading], kinds: Sequence[str]) -> RecognizedDataset:
    """Return a dataset that asks the user to choose between the interpretations `found`, which have equal evidence."""
    message = (
        f"{printable(tree.root)} can be read in several ways: {listed(dict.fromkeys(each.title for each in found))}."
    )
    return make_unrecognized(dataset_error(message, "Choose one of them.", _make_choices(found, kinds)))


def _make_choices(found: Iterable[Reading], kinds: Sequence[str]) -> tuple[Choice, ...]:
    """Convert interpretations to choices for the user.

    A choice sets the format. For a kind of annotations that is not in `kinds`, it also sets the task.
    """
    catalogue = load_catalogue()
    by_title: dict[str, Choice] = {}
    for each in found:
        for kind in each.detection.kinds:
            if kind in kinds:
                choice = Choice(READ_AS + each.title, {"format": each.name})
            elif task := catalogue.task_of(kind):
                choice = Choice(f"{task.title} with {each.title}", {"format": each.name, "task": task.id})
            else:
                continue
            by_title.setdefault(choice.title, choice)
    return tuple(by_title.values())


def _report_nothing_found(tree: Tree, requested: AnnotationKind, choices: tuple[Choice, ...]) -> Problem:
    """Return an error that explains that no format recognizes anything in the folder.

    `requested` is the kind of annotations that the task needs, and `choices` are other interpretations.
    """
    counts = tree.suffixes()
    if not counts and not tree.folders():
        return dataset_error(f"{printable(tree.root)} is empty.", requested.layout, choices)
    files = [
        printable(tree.files("", ending)[0]) if count == 1 and ending else counted(count, f"{ending or 'other'} file")
        for ending, count in counts.most_common(3)
    ]
    folders = len(tree.folders())
    holds = listed([*files, counted(folders, "folder") if folders else "no folders"])
    message = f"{printable(tree.root)} does not hold {requested.title}; it has {holds}."
    if damage := describe_damage(tree):
        return dataset_error(f"{message} {damage}", f"Export the damaged file again. {requested.layout}", choices)
    return dataset_error(message, requested.layout, choices)


def _get_title(kind: str) -> str:
    """Return the title of a kind of annotations. A kind from a plug-in is its own title."""
    return KINDS[kind].title if kind in KINDS else kind


def _describe_evidence(reading: Reading) -> str:
    """Return the evidence for an interpretation of the folder as one text for the user."""
    return "; ".join(reading.detection.evidence) or reading.title


def _warn_about_link_loops(found: RecognizedDataset, tree: Tree) -> RecognizedDataset:
    """Return a copy of a dataset with a warning about links that lead to themselves, if there are any.

    They are searched for in the dataset folder and in the folders of splits.
    """
    split_names = {name for names in SPLIT_NAMES.values() for name in names}
    folders = ["", *(name for name in tree.folders() if name.lower() in split_names)]
    links = [tree.within(link) for folder in folders for link in find_link_loops(tree.path(folder))]
    if not links:
        return found
    if len(links) == 1:
        message = f"{printable(links[0])} is a link leading back to itself."
    else:
        message = f"{', '.join(map(printable, links[:3]))} are links leading back to themselves."
    return replace(found, problems=(*found.problems, dataset_warning(message, "Remove such links.")))
