"""Recipes: what a task does by default, as data. A recipe is applied when a job is made; the run knows none.

Those that ship are `resources/recipes/*.toml`, a user's own lie in the `recipes` folder of Footplate's home. A file
holds::

    title = "Fine-tune"             # what it is called
    about = "One line."             # when to choose it
    source = "https://…"            # what its values are taken from, if anything
    tasks = ["classification"]      # what it is for; all tasks if left away

    [set]                           # values of a job's fields
    optimizer = "adamw"

    [[when]]                        # rules, in order: where all conditions of one hold, its values override those before it
    task = "detection"
    images = { max = 500 }
    [when.set]
    epochs = 40

    [[when]]
    weights = true
    set = { val_crop = 0.875 }
    of_weights = ["val_crop"]       # what the makers of the weights chose, where that is known, instead

    [scale]                         # values of [set] for a batch of so many images, which grow and shrink with the batch
    learning_rate = { batch = 16 }  # size; a rule that sets the field again has a [when.scale] of its own, or none
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tomli_w

from engine.contract.catalogue import Catalogue, did_you_mean, weights_of
from engine.contract.dataset import DatasetReport
from engine.contract.idle_fields import idle_by_entries, idle_by_needs
from engine.contract.job import FIELDS, Job, fields_with, job_from_values, read_toml
from engine.contract.problems import Problem
from engine.contract.weights import WeightsDisk, is_available
from engine.system import paths

Family = Literal["cnn", "transformer"]
MOST_LINE = 200
"""Characters of a recipe's title, and of what it says of itself."""
Line = Annotated[str, msgspec.Meta(max_length=MOST_LINE)]
Value = bool | int | float | str | tuple[int | str, ...] | None
"""Of a job's field."""

FINE_TUNE, FROM_SCRATCH, PLAIN = "fine-tune", "from-scratch", "plain"
SHIPPED = (
    FINE_TUNE, FROM_SCRATCH, "quick-look", "linear-probe", PLAIN, "torchvision-classification", "torchvision-classification-v2",
    "timm-a1", "timm-a2", "timm-a3", "torchvision-detection", "torchvision-segmentation", "pytorch-ddp-tutorial",
)  # fmt: skip
"""Those that ship, in the order in which they are offered."""

SETTABLE = fields_with("recipe")
"""The fields that a recipe may set, in the form's order."""

_TRANSFORMERS = re.compile(
    r"vit|swin|coat|deit|beit|eva|cait|xcit|twins|hiera|pvt|davit|focalnet|mixer|former|mit_b|maxxvit|nest_|convnext",
    re.IGNORECASE,
)
"""Networks of attention or of LayerNorm throughout, by a part of their name: ConvNeXt and mixers are fine-tuned "
"as these are."""
_STILL_CNNS = re.compile(r"efficientvit_b|fastvit|mobilevit", re.IGNORECASE)
"""Those that bear such a name and are convolutions with BatchNorm for the most part."""


def family_of(model: str, encoder: str) -> Family:
    """What kind of network `model` is; one that stands on an `encoder` is of that one's kind."""
    name = encoder or model
    return "transformer" if _TRANSFORMERS.search(name) and not _STILL_CNNS.search(name) else "cnn"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that the rules of recipes test. A condition on one that is None, not known, doesn't hold.

    Attributes:
        task_in_file: True if a file of the user defines the task, so that nothing is known about its model.
        encoder: True for a model that is built on the job's encoder.
        batch_norm: True for a model with BatchNorm.
        weights: True if there are pretrained weights for the model, as far as known: on this machine, or on a server
            that hasn't failed to answer.
        images: Number of images of the training split.
        source_size: Longer side in pixels of the median image of the dataset.
        model_size: Side in pixels of the images that the model is made for.
        least_size: Side in pixels of the smallest images that it takes.
        of_weights: Values of fields that the makers of the weights chose.
        chosen: Values that the user has set, which stay, by field.
        idle: Fields that have no effect with this task, model or strategy.
    """

    task: str
    task_in_file: bool = False
    family: Family = "cnn"
    encoder: bool = False
    batch_norm: bool | None = None
    weights: bool = False
    of_weights: Mapping[str, Any] = {}
    images: int | None = None
    classes: int | None = None
    source_size: int | None = None
    model_size: int | None = None
    least_size: int | None = None
    chosen: Mapping[str, Any] = {}
    idle: frozenset[str] = frozenset()


def see(
    values: Mapping[str, Any],
    catalogue: Catalogue,
    report: DatasetReport | None,
    chosen: Iterable[str],
    disk: WeightsDisk | None = None,
) -> Seen:
    """Collect the facts that recipes depend on.

    Args:
        values: Plain values of the job; invalid ones are skipped, since they are reported where the job is made.
        catalogue: Tasks, models and strategies.
        report: Report on the dataset, if it has been inspected.
        chosen: Fields whose values no recipe changes.
        disk: Asked whether pretrained weights can be had; without it, known weights count as available.
    """
    asked = (*chosen, "task", "model", "strategy", "encoder", "weights_file", "resume_from")
    wanted = {name: values[name] for name in asked if name in values}
    right = {name: job.value(name) for name, value in wanted.items() if (job := job_from_values({name: value})[0])}
    job = Job.from_fields(**right)
    task, model = catalogue.task(job.task), catalogue.model(job.model.name)
    train = report.split("train") if report is not None else None
    on_encoder = model is not None and model.encoder
    weights = weights_of(job, catalogue)
    decided = "pretrained" in right or bool(
        job.model.weights_file or job.checkpoints.resume_from
    )  # then no server needs to be asked
    return Seen(
        task=job.task,
        task_in_file=task is not None and task.file,
        family=family_of(job.model.name, job.model.encoder if on_encoder else ""),
        encoder=on_encoder,
        batch_norm=model.batch_norm if model is not None else None,
        weights=weights is not None and (decided or disk is None or is_available(weights, disk) is not False),
        of_weights={"val_crop": weights.crop} if weights is not None and weights.crop else {},
        images=train.images if train is not None and train.images else None,
        classes=len(report.classes) or None if report is not None else None,
        source_size=max(report.sizes.middle) if report is not None and report.sizes is not None else None,
        model_size=model.image_size or None if model is not None else None,
        least_size=model.min_image_size or None if model is not None else None,
        chosen={name: value for name, value in right.items() if name in (*SETTABLE, "weights_file")},
        idle=frozenset(idle_by_entries(job.values(), catalogue)),
    )


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `min` to `max`, both included."""

    min: float | None = None
    max: float | None = None

    def holds(self, value: float | None) -> bool:
        return value is not None and (self.min or -math.inf) <= value <= (math.inf if self.max is None else self.max)


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value is that for `batch` images per optimizer step, and grows in proportion to the job's batch size (Goyal
    et al.
    2017, section 2.1).
    """

    batch: float


_COUNTED = ("images", "classes", "images_per_class", "source_size", "image_size", "batch_size", "epochs", "steps")
"""The conditions of a rule that are ranges of numbers."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Values to set where all that is asked for holds. It is asked of the user's own values and of what the rules
    before this one have set: `steps` are those that the whole run makes.

    `encoder`: the model is built on an encoder, the only part that pretrained weights are for. `batch_norm`: the model
    has BatchNorm. `weights`: there are pretrained weights for the model. `pretrained`: the run starts from weights.
    """

    task: str | tuple[str, ...] | None = None
    model: Family | None = None
    encoder: bool | None = None
    batch_norm: bool | None = None
    weights: bool | None = None
    pretrained: bool | None = None
    images: Range | None = None
    classes: Range | None = None
    images_per_class: Range | None = None
    source_size: Range | None = None
    image_size: Range | None = None
    batch_size: Range | None = None
    epochs: Range | None = None
    steps: Range | None = None
    set: dict[str, Value] = {}
    of_weights: tuple[Literal["val_crop"], ...] = ()
    scale: dict[str, Scale] = {}

    def holds(self, seen: Seen, found: Mapping[str, Any]) -> bool:
        """Whether all conditions hold, where the recipe has `found` these values so far."""

        def value(name: str) -> Any:
            return seen.chosen.get(name, found.get(name, FIELDS[name].default))

        images, classes, batch, epochs = seen.images, seen.classes, value("batch_size"), value("epochs")
        known = {
            "images": images,
            "classes": classes,
            "images_per_class": images / classes if images and classes else None,
            "source_size": seen.source_size,
            "image_size": value("image_size") or seen.model_size,
            "batch_size": batch,
            "epochs": epochs,
            "steps": math.ceil(images / batch) * epochs if images else None,
        }
        tasks = (self.task,) if isinstance(self.task, str) else self.task
        pretrained = bool(value("pretrained") or value("weights_file"))
        return (
            (tasks is None or seen.task in tasks)
            and self.model in (None, seen.family)
            and self.encoder in (None, seen.encoder)
            and self.batch_norm in (None, seen.batch_norm)
            and self.weights in (None, seen.weights)
            and self.pretrained in (None, pretrained)
            and all(asked is None or asked.holds(known[name]) for name, asked in self._ranges())
        )

    def _ranges(self) -> list[tuple[str, Range | None]]:
        return [(name, getattr(self, name)) for name in _COUNTED]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recipe. `id` is the name of its file without its ending; `path` is where a user's own lies, "" for those "
    "that ship.
    """

    id: str
    path: str = ""
    title: Line
    about: Line
    source: Line = ""
    tasks: tuple[str, ...] = ()
    set: dict[str, Value] = {}
    when: tuple[Rule, ...] = ()
    scale: dict[str, Scale] = {}

    def is_for(self, task: str) -> bool:
        return not self.tasks or task in self.tasks

    def values(self, seen: Seen) -> dict[str, Any]:
        """The values by field, where `seen` is what there is; all other fields are left at their defaults."""
        found, scales = dict(self.set), dict(self.scale)
        for rule in self.when:
            if rule.holds(seen, found):
                found |= rule.set | {name: seen.of_weights[name] for name in rule.of_weights if name in seen.of_weights}
                scales = {name: scale for name, scale in scales.items() if name not in rule.set} | rule.scale
        batch = seen.chosen.get("batch_size", found.get("batch_size", FIELDS["batch_size"].default))
        for name, scale in scales.items():
            if name in found:  # with as many digits as somebody reads
                found[name] = float(f"{found[name] * batch / scale.batch:.4g}")
        size = found.get("image_size")
        if size is not None and seen.least_size is not None:
            found["image_size"] = max(size, seen.least_size)
        idle = seen.idle | idle_by_needs({**found, **seen.chosen}, seen.idle).keys()
        return {name: value for name, value in found.items() if name not in idle}

    @property
    def mentioned(self) -> frozenset[str]:
        """All fields that it may set."""
        return frozenset(self.set).union(*(rule.set for rule in self.when), *(rule.of_weights for rule in self.when))


class Broken(msgspec.Struct, frozen=True):
    """A file of the user's that is no recipe, with why."""

    id: str
    path: str
    problems: tuple[Problem, ...]


class Recipes(msgspec.Struct, frozen=True):
    """All that there are: those that ship, then the user's own by title."""

    all: tuple[Recipe, ...]
    broken: tuple[Broken, ...] = ()

    def for_task(self, task: str) -> tuple[Recipe, ...]:
        return tuple(recipe for recipe in self.all if recipe.is_for(task))

    def get(self, name: str) -> Recipe | None:
        """The recipe of this id; of a path, the recipe in that file, None where it cannot be used."""
        if name.endswith(".toml"):
            return read_recipe(Path(name))[0]
        return next((recipe for recipe in self.all if recipe.id == name), None)

    def find(self, name: str) -> tuple[Recipe | None, list[Problem]]:
        """The recipe called `name`, by its id, its title or the path of its file, or why there is none."""
        if name.endswith(".toml"):
            recipe, problems = read_recipe(Path(name))
            return (None if problems else recipe), problems
        for recipe in self.all:
            if name.lower() in (recipe.id.lower(), recipe.title.lower()):
                return recipe, []
        broken = next((one for one in self.broken if one.id == name), None)
        if broken is not None:
            return None, list(broken.problems)
        known = [recipe.id for recipe in self.all]
        return None, [Problem("recipe", f"There is no recipe “{name}”.", did_you_mean(name, known))]


def fitting(seen: Seen) -> str:
    """The id of the recipe that a job begins with."""
    if seen.task_in_file:
        return PLAIN
    weights = seen.chosen.get("weights_file") or seen.chosen.get("pretrained", seen.weights)
    return FINE_TUNE if weights else FROM_SCRATCH


@lru_cache(maxsize=1)
def shipped() -> tuple[Recipe, ...]:
    """The recipes that ship with this Footplate, in the order of `SHIPPED`. They are not read as a user's are, which
    takes longer, since nothing is wrong with them.
    """
    folder = files("resources").joinpath("recipes")
    contents = [tomllib.loads(folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")) for name in SHIPPED]
    return tuple(msgspec.convert({"id": name, **read}, Recipe) for name, read in zip(SHIPPED, contents, strict=True))


def recipes_folder() -> Path:
    """Where a user's own recipes lie."""
    return paths.home() / "recipes"


def load_recipes() -> Recipes:
    """Those that ship and the user's own, as they are now."""
    own, broken, taken = [], [], {recipe.id for recipe in shipped()}
    for path in _own_files():
        recipe, problems = read_recipe(path)
        if path.stem in taken:
            message = f"{path.name}: “{path.stem}” is the name of a built-in recipe."
            problems.append(Problem("recipe", message, "Give the file another name."))
        if recipe is None or problems:
            broken.append(Broken(path.stem, str(path), tuple(problems)))
        else:
            own.append(recipe)
    return Recipes((*shipped(), *sorted(own, key=lambda recipe: recipe.title.lower())), tuple(broken))


def _own_files() -> list[Path]:
    try:
        return sorted(path for path in recipes_folder().iterdir() if path.suffix == ".toml")
    except OSError:
        return []


def read_recipe(path: Path) -> tuple[Recipe | None, list[Problem]]:
    """The recipe in a file, None where there is none, and all that is wrong with it, each with the file and the key."""
    content, problem = read_toml(path, "recipe")
    if problem is not None:
        return None, [problem]
    reader = _Reader(path)
    values = reader.struct(content, Recipe, "", ("id", "path"))
    for key in ("title", "about"):
        if not isinstance(values.get(key), str) or not values[key].strip():
            reader.add(key, f"“{key}” is missing.", f'Add {key} = "…".', once=True)
    if reader.problems:
        return None, reader.problems
    return Recipe(id=path.stem, path=str(path), **values), []


@lru_cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


class _Reader:
    """Collects what is wrong with a recipe's file."""

    def __init__(self, path: Path) -> None:
        self.problems: list[Problem] = []
        self._path = path
        self._told: set[str] = set()

    def add(self, key: str, message: str, remedy: str, *, once: bool = False) -> None:
        if not (once and key in self._told):
            self.problems.append(Problem("recipe", f"{self._path.name}: {message}", remedy))
        self._told.add(key)

    def struct(
        self, content: Mapping[str, Any], kind: type[msgspec.Struct], where: str, but: tuple[str, ...] = ()
    ) -> Any:
        """The fields of `kind` that stand in `content`, each as what it is to be. `where` names the table, "" for the
        file.
        """
        types = {name: type_ for name, type_ in _types(kind).items() if name not in but}
        found: dict[str, Any] = {}
        for key, value in content.items():
            named = f"{where}{key}"
            if key not in types:
                self.add(named, f"“{named}” is not known.", did_you_mean(key, list(types)))
            elif key == "set":
                found[key] = self._values(value, named)
            elif key == "when":
                found[key] = self._rules(value)
            else:
                try:
                    found[key] = msgspec.convert(value, types[key])
                except msgspec.ValidationError as error:
                    self.add(
                        named,
                        f"“{named}” can't have the value {value!r}: {_first_lower(str(error))}.",
                        _REMEDIES.get(key, ""),
                    )
                else:
                    self._scaled(found[key] if key == "scale" else {}, named)
        return found

    def _rules(self, content: Any) -> tuple[Rule, ...]:
        if not isinstance(content, list) or not all(isinstance(rule, dict) for rule in content):
            self.add("when", "“when” is not a list of rules.", "Begin each rule with [[when]].")
            return ()
        found = [self.struct(rule, Rule, f"[[when]] {number}: ") for number, rule in enumerate(content, 1)]
        return tuple(Rule(**values) for values in found)

    def _values(self, content: Any, where: str) -> dict[str, Any]:
        if not isinstance(content, dict):
            self.add(where, f"“{where}” is not a table.", "Write fields and values below [set] or [when.set].")
            return {}
        found = {}
        for name, value in content.items():
            if name not in SETTABLE:
                known = "of a job, but a recipe can't set it" if name in FIELDS else "not a field of a job"
                remedy = "Remove it." if name in FIELDS else did_you_mean(name, list(SETTABLE))
                self.add(f"{where}.{name}", f"“{where}.{name}” is {known}.", remedy)
                continue
            job, wrong = job_from_values({name: value})
            for problem in wrong:
                self.add(f"{where}.{name}", f"“{where}.{name}”: {problem.message}", problem.remedy)
            if job is not None:
                found[name] = job.value(name)
        return found

    def _scaled(self, scales: Mapping[str, Scale], where: str) -> None:
        for name, scale in scales.items():
            if name not in SETTABLE or FIELDS[name].kind != "float":
                numbers = [name for name in SETTABLE if FIELDS[name].kind == "float"]
                self.add(where, f"“{where}.{name}” is not a field that can be scaled.", did_you_mean(name, numbers))
            elif scale.batch <= 0:
                self.add(where, f"“{where}.{name}”: {scale.batch:g} is not a batch size.", "Give a number above 0.")


_RANGE = "Give { min = … }, { max = … } or both."
_REMEDIES = {
    **dict.fromkeys(_COUNTED, _RANGE),
    **dict.fromkeys(("title", "about", "source"), f"Give text in quotes, at most {MOST_LINE} characters."),
    **dict.fromkeys(("batch_norm", "weights", "pretrained"), "Give true or false."),
    "task": "Give a task's id, or a list of ids.",
    "tasks": "Give a list of tasks' ids.",
    "model": "Give cnn or transformer.",
    "of_weights": 'Give ["val_crop"].',
    "scale": "Give { batch = … } for each field.",
}


def _first_lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def name_of_file(title: str) -> str:
    """The name of the file, without its ending, for a recipe called `title`; "" where the title has no letter or "
    "digit.
    """
    return re.sub(r"\W+", "-", title.lower()).strip("-_")


def title_problem(title: str, but: str = "") -> str:
    """Why a recipe of the user's cannot be called so, "" where it can; `but` is the id of the one that is called "
    "so now.
    """
    name = name_of_file(title)
    if not name:
        return "Give it a name with a letter or a digit."
    if name != but and name in {recipe.id for recipe in shipped()}:
        return f"“{title.strip()}” is a built-in recipe. Choose another name."
    return ""


def save_recipe(title: str, about: str, task: str, values: Mapping[str, Any]) -> str:
    """Keeps `values` as a recipe of the user's for `task`, over one of the same name; its id. Raises OSError.

    Only what differs from the job's defaults is written, since a recipe leaves the rest at them.
    """
    name = name_of_file(title)
    plain = {
        field: list(values[field]) if isinstance(values[field], tuple) else values[field]
        for field in SETTABLE
        if field in values and values[field] != FIELDS[field].default
    }
    content = {"title": title.strip(), "about": about.strip() or "A custom recipe.", "tasks": [task], "set": plain}
    _write(path_of(name), tomli_w.dumps(content))
    return name


def rename_recipe(recipe: Recipe, title: str) -> str:
    """Calls a recipe of the user's otherwise, and leaves the rest of its file as it is; its new id. Raises OSError."""
    old, new = Path(recipe.path), path_of(name_of_file(title))
    line = tomli_w.dumps({"title": title.strip()}).strip()
    text = re.sub(r"(?m)^title\s*=.*$", lambda _match: line, old.read_text(encoding="utf-8"), count=1)
    _write(new, text)
    if new != old:
        old.unlink()
    return new.stem


def delete_recipe(path: str) -> None:
    """Removes a recipe of the user's. Raises OSError."""
    Path(path).unlink(missing_ok=True)


def path_of(name: str) -> Path:
    """Where the user's recipe of this id lies."""
    return recipes_folder() / f"{name}.toml"


def _write(path: Path, text: str) -> None:
    paths.make_home()
    paths.make_folder(path.parent)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
