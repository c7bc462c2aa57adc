"""Recipes: default settings for tasks, as data. A recipe is applied when a job is made. Runs don't depend on it.

The built-in ones are `resources/recipes/*.toml`, the user's are in the `recipes` folder of Footplate's home. A file
holds::

    title = "Fine-tune"             # name for users
    about = "One line."             # purpose
    source = "https://…"            # optional source of its values
    tasks = ["classification"]      # tasks that it applies to; omit for all

    [set]                           # values of a job's fields
    optimizer = "adamw"

    [[when]]                        # rules: if all conditions hold, the values override earlier ones
    task = "detection"
    images = { max = 500 }
    [when.set]
    epochs = 40

    [[when]]
    weights = true
    set = { val_crop = 0.875 }
    of_weights = ["val_crop"]       # replaced by the choice of the weights' authors, if known

    [scale]                         # values of [set] for this batch size, scaled in proportion to the job's batch size;
    learning_rate = { batch = 16 }  # a rule that sets the field again needs a [when.scale] of its own to be scaled
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tomli_w

from engine.contract.catalogue import Catalogue, ModelEntry, suggest_name, weights_of
from engine.contract.dataset import DatasetReport
from engine.contract.idle_fields import find_idle_by_entries, find_idle_by_needs
from engine.contract.job import FIELDS, Job, fields_with_trait, job_from_values, read_toml
from engine.contract.problems import Problem
from engine.contract.weights import WeightsDisk, is_available
from engine.system import paths
from engine.system.files import read_file

Family = Literal["cnn", "transformer", "detr", "mask_transformer"]
MAX_CHARACTERS = 200
"""Maximum number of characters in the title and the description of a recipe."""
Line = Annotated[str, msgspec.Meta(max_length=MAX_CHARACTERS)]
Value = bool | int | float | str | tuple[int | str, ...] | None
"""Value of a job field."""

FINE_TUNE, FROM_SCRATCH, PLAIN = "fine-tune", "from-scratch", "plain"
SHIPPED = (
    FINE_TUNE, FROM_SCRATCH, "quick-look", "linear-probe", PLAIN, "torchvision-classification", "torchvision-classification-v2",
    "timm-a1", "timm-a2", "timm-a3", "torchvision-detection", "torchvision-segmentation", "pytorch-ddp-tutorial",
)  # fmt: skip
"""Ids of the built-in recipes, in their order in lists."""

SETTABLE = fields_with_trait("recipe")
"""Fields that a recipe may set, in the order of the form."""

_TRANSFORMERS = re.compile(
    r"vit|swin|coat|deit|beit|eva|cait|xcit|twins|hiera|pvt|davit|focalnet|mixer|former|mit_b|maxxvit|nest_|convnext",
    re.IGNORECASE,
)
"""Pattern for the names of networks that are fine-tuned like transformers.

ConvNeXt and mixers are included: they have no attention, but use LayerNorm.
"""
_DETRS = re.compile(r"d_?fine|rt_?detr|rf_?detr|deim")
"""Pattern for the beginning of the ids of detectors that are trained like DETR (Carion et al. 2020)."""
_MASK_TRANSFORMERS = re.compile(r"mask2former|eomt")
"""Pattern for the beginning of the ids of models that are trained like Mask2Former (Cheng et al. 2022)."""
_STILL_CNNS = re.compile(r"efficientvit_b|fastvit|mobilevit", re.IGNORECASE)
"""Pattern for names that match `_TRANSFORMERS` although the networks consist mostly of convolutions with BatchNorm."""


def family_of(model: str, encoder: str) -> Family:
    """Return the architecture family, such as "cnn", of `encoder`, or of `model` if `encoder` is empty."""
    name = encoder or model
    if _DETRS.match(name):
        return "detr"
    if _MASK_TRANSFORMERS.match(name):
        return "mask_transformer"
    is_transformer = _TRANSFORMERS.search(name) and not _STILL_CNNS.search(name)
    return "transformer" if is_transformer else "cnn"


class RecipeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that the rules in recipes test. Unknown facts are None, and conditions on them are false.

    Attributes:
        task_in_file: True if a user's file defines the task, so that nothing is known about its model.
        encoder: True for a model that is built on the job's encoder.
        batch_norm: True for a model with BatchNorm.
        weights: True if the model has pretrained weights, unless they are known to be unavailable.
        images: Number of images in the training split.
        source_size: Length in pixels of the longer side of the median image in the dataset.
        model_size: Default side length in pixels of the model's images.
        min_size: Minimum side length in pixels of the model's images.
        size_step: Number that this side length must be a multiple of.
        parameters: Number of the model's parameters.
        of_weights: Values that the authors of the weights chose, by field.
        chosen: Values that the user has set and that no recipe changes, by field.
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
    min_size: int | None = None
    size_step: int = 1
    parameters: int | None = None
    chosen: Mapping[str, Any] = {}
    idle: frozenset[str] = frozenset()


def collect_facts(
    values: Mapping[str, Any],
    catalogue: Catalogue,
    report: DatasetReport | None,
    chosen: Iterable[str],
    disk: WeightsDisk | None = None,
) -> RecipeFacts:
    """Collect the facts that recipes depend on.

    Invalid `values` are skipped, since creating the job reports them. No recipe changes the `chosen` fields. Without
    `disk`, known weights count as available. With it, a server with weights may be contacted.
    """
    names = {*chosen, "task", "model", "strategy", "encoder", "weights_file", "resume_from"} & values.keys()
    jobs = {name: job_from_values({name: values[name]})[0] for name in names}  # None for an invalid value
    valid = {name: job.value(name) for name, job in jobs.items() if job is not None}
    job = Job.from_fields(**valid)
    task, model = catalogue.task(job.task), catalogue.model(job.model.name)
    train = report.split("train") if report is not None else None
    weights = weights_of(job, catalogue)
    # If the user has decided about `pretrained`, or uses a file, no server is asked if it can be reached.
    is_undecided = "pretrained" not in valid and not job.model.weights_file and not job.checkpoints.resume_from
    is_out_of_reach = weights is not None and disk is not None and is_undecided and is_available(weights, disk) is False
    return RecipeFacts(
        task=job.task,
        task_in_file=task is not None and task.file,
        family=family_of(job.model.name, job.model.encoder if model is not None and model.encoder else ""),
        weights=weights is not None and not is_out_of_reach,
        of_weights={"val_crop": weights.crop} if weights is not None and weights.crop else {},
        images=train.images if train is not None and train.images else None,
        classes=len(report.classes) if report is not None and report.classes else None,
        source_size=max(report.sizes.middle) if report is not None and report.sizes is not None else None,
        chosen={name: value for name, value in valid.items() if name in (*SETTABLE, "weights_file")},
        idle=frozenset(find_idle_by_entries(job.values(), catalogue)),
        **_collect_model_facts(model),
    )


def _collect_model_facts(model: ModelEntry | None) -> dict[str, Any]:
    """Return the facts about a model by name, or {} if `model` is None because the catalogue doesn't list it."""
    if model is None:
        return {}
    return {
        "encoder": model.encoder,
        "batch_norm": model.batch_norm,
        "model_size": model.image_size or None,
        "min_size": model.min_image_size or None,
        "size_step": model.image_size_step,
        "parameters": model.parameters,
    }


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Condition of a recipe rule: a range of numbers from `min` to `max`, both included."""

    min: float | None = None
    max: float | None = None

    def holds(self, value: float | None) -> bool:
        """Return True if `value` is in the range, and False if it is unknown (None)."""
        return value is not None and (self.min is None or self.min <= value) and (self.max is None or value <= self.max)


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scaling of a recipe's value in proportion to the job's batch size (Goyal et al. 2017, section 2.1).

    The recipe states the value for `batch` images per optimizer step.
    """

    batch: float


_COUNTED = (
    "images", "classes", "images_per_class", "source_size", "image_size", "parameters", "batch_size", "epochs", "steps",
)  # fmt: skip
"""Conditions of recipe rules that are given as a range of numbers."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Values to set if all conditions hold for the user's values and the values set by earlier rules.

    `set` holds the values, `of_weights` names those that the authors of the weights may override, and `scale` those
    that are scaled with the batch size. All other attributes are conditions. A condition of None always holds.

    Attributes:
        encoder: True to match models that are built on an encoder, the only part with pretrained weights.
        batch_norm: True to match models with BatchNorm.
        weights: True to match models for which there are pretrained weights.
        pretrained: True to match runs that start from pretrained weights.
        steps: Range of the number of optimizer steps in the run.
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
    parameters: Range | None = None
    batch_size: Range | None = None
    epochs: Range | None = None
    steps: Range | None = None
    set: dict[str, Value] = {}
    of_weights: tuple[Literal["val_crop"], ...] = ()
    scale: dict[str, Scale] = {}

    def holds(self, facts: RecipeFacts, set_already: Mapping[str, Any]) -> bool:
        """Return True if all conditions of the rule hold.

        `set_already` has the values that earlier rules have set, by field.
        """

        def get_value(name: str) -> Any:
            return facts.chosen.get(name, set_already.get(name, FIELDS[name].default))

        images, classes = facts.images, facts.classes
        batch, epochs = get_value("batch_size"), get_value("epochs")
        numbers = {
            "images": images,
            "classes": classes,
            "images_per_class": images / classes if images and classes else None,
            "source_size": facts.source_size,
            "image_size": get_value("image_size") or facts.model_size,
            "parameters": facts.parameters,
            "batch_size": batch,
            "epochs": epochs,
            # Training drops an incomplete last batch, unless it is the only one.
            "steps": max(1, images // batch) * epochs if images else None,
        }
        ranges: dict[str, Range | None] = {name: getattr(self, name) for name in numbers}
        tasks = (self.task,) if isinstance(self.task, str) else self.task
        pretrained = bool(get_value("pretrained") or get_value("weights_file"))
        return (
            (tasks is None or facts.task in tasks)
            and self.model in (None, facts.family)
            and self.encoder in (None, facts.encoder)
            and self.batch_norm in (None, facts.batch_norm)
            and self.weights in (None, facts.weights)
            and self.pretrained in (None, pretrained)
            and all(limits is None or limits.holds(numbers[name]) for name, limits in ranges.items())
        )


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Named set of values for job fields, with rules that change them for certain models and datasets.

    `id` is the name of its file without the extension. `path` is the file of a user's recipe, or "" for a built-in one.
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

    def values(self, facts: RecipeFacts) -> dict[str, Any]:
        """Return the values by field that the recipe sets under these facts. All other fields keep their defaults.

        Fields that would have no effect are left out. An image size is raised to one that the model accepts.
        """
        values, scales = self._apply_rules(facts)
        batch = facts.chosen.get("batch_size", values.get("batch_size", FIELDS["batch_size"].default))
        for name in scales.keys() & values.keys():  # from the batch size in the recipe to that of the job
            values[name] = float(f"{values[name] * batch / scales[name].batch:.4g}")  # rounded for readability
        size = values.get("image_size")
        if isinstance(size, int) and facts.min_size is not None:
            values["image_size"] = max(math.ceil(size / facts.size_step) * facts.size_step, facts.min_size)
        idle = facts.idle | find_idle_by_needs({**values, **facts.chosen}, facts.idle).keys()
        return {name: value for name, value in values.items() if name not in idle}

    def _apply_rules(self, facts: RecipeFacts) -> tuple[dict[str, Any], dict[str, Scale]]:
        """Apply the rules whose conditions hold to the recipe's values.

        Returns:
            Values by field, not yet scaled, and the scaling of those that depend on the batch size, by field.
        """
        values, scales = dict(self.set), dict(self.scale)
        for rule in self.when:
            if rule.holds(facts, values):
                of_weights = {name: facts.of_weights[name] for name in rule.of_weights if name in facts.of_weights}
                values |= rule.set | of_weights
                # A value that a rule sets is not scaled, unless the rule says so.
                scales = {name: scale for name, scale in scales.items() if name not in rule.set} | rule.scale
        return values, scales

    @property
    def settable_fields(self) -> frozenset[str]:
        """Fields that the recipe sets, or may set by one of its rules."""
        return frozenset(self.set).union(*(rule.set for rule in self.when), *(rule.of_weights for rule in self.when))


class InvalidRecipe(msgspec.Struct, frozen=True):
    """Recipe file of the user that can't be read or has errors."""

    id: str
    path: str
    problems: tuple[Problem, ...]


class Recipes(msgspec.Struct, frozen=True):
    """All recipes: the built-in ones, followed by the user's recipes sorted by title."""

    all: tuple[Recipe, ...]
    broken: tuple[InvalidRecipe, ...] = ()

    def for_task(self, task: str) -> tuple[Recipe, ...]:
        return tuple(recipe for recipe in self.all if recipe.is_for(task))

    def get(self, name: str) -> Recipe | None:
        """Return the recipe with this id or file path, or None if there is none or it is invalid.

        A name that ends in ".toml" is a path, whose file is read by this call.
        """
        if name.endswith(".toml"):
            recipe, _problems = read_recipe(Path(name))
            return recipe
        return next((recipe for recipe in self.all if recipe.id == name), None)

    def find(self, name: str) -> tuple[Recipe | None, list[Problem]]:
        """Return the recipe with this id, title or file, or None with the reasons why there is none.

        The case of letters in ids and titles is ignored.
        """
        if name.endswith(".toml"):
            return read_recipe(Path(name))
        for recipe in self.all:
            if name.lower() in (recipe.id.lower(), recipe.title.lower()):
                return recipe, []
        invalid = next((file for file in self.broken if file.id == name), None)
        if invalid is not None:
            return None, list(invalid.problems)
        known = [recipe.id for recipe in self.all]
        return None, [Problem("recipe", f"There is no recipe “{name}”.", suggest_name(name, known))]


def initial_recipe(facts: RecipeFacts) -> str:
    """Return the id of the recipe that a new job starts with.

    For a job that starts from weights it is `FINE_TUNE`, otherwise `FROM_SCRATCH`. For a task in a file, whose model is
    unknown, it is `PLAIN`.
    """
    if facts.task_in_file:
        return PLAIN
    starts_from_weights = facts.chosen.get("weights_file") or facts.chosen.get("pretrained", facts.weights)
    return FINE_TUNE if starts_from_weights else FROM_SCRATCH


@lru_cache(maxsize=1)
def builtin_recipes() -> tuple[Recipe, ...]:
    """Return the built-in recipes. They are not validated like a user's recipe."""
    folder = files("resources").joinpath("recipes")
    contents = [tomllib.loads(folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")) for name in SHIPPED]
    return tuple(msgspec.convert({"id": name, **read}, Recipe) for name, read in zip(SHIPPED, contents, strict=True))


def recipes_folder() -> Path:
    """Return the folder that contains the user's recipes."""
    return paths.home() / "recipes"


def load_recipes() -> Recipes:
    """Return the built-in and the user's recipes, and the files that can't be used."""
    custom, broken, builtin_ids = [], [], {recipe.id for recipe in builtin_recipes()}
    for path in _list_user_files():
        recipe, problems = read_recipe(path)
        if path.stem in builtin_ids:
            message = f"{path.name}: “{path.stem}” is the name of a built-in recipe."
            problems.append(Problem("recipe", message, "Give the file another name."))
        if recipe is None or problems:
            broken.append(InvalidRecipe(path.stem, str(path), tuple(problems)))
        else:
            custom.append(recipe)
    return Recipes((*builtin_recipes(), *sorted(custom, key=lambda recipe: recipe.title.lower())), tuple(broken))


def _list_user_files() -> list[Path]:
    """Return the paths of the user's recipe files, or [] if their folder can't be read."""
    try:
        return sorted(path for path in recipes_folder().iterdir() if path.suffix == ".toml")
    except OSError:
        return []


def read_recipe(path: Path) -> tuple[Recipe | None, list[Problem]]:
    """Read a recipe file. Returns the recipe and [], or None and all problems in the file."""
    content, problem = read_toml(path, "recipe")
    if problem is not None:
        return None, [problem]
    reader = _Reader(path)
    values = reader.read_struct(content, Recipe, "", ("id", "path"))
    for key in ("title", "about"):
        if not isinstance(values.get(key), str) or not values[key].strip():
            reader.add_problem(key, f"“{key}” is missing.", f'Add {key} = "…".', once=True)
    if reader.problems:
        return None, reader.problems
    return Recipe(id=path.stem, path=str(path), **values), []


class _Reader:
    """Reader for recipe files, which collects the problems of a file instead of stopping at the first one."""

    def __init__(self, path: Path) -> None:
        self.problems: list[Problem] = []
        self._path = path
        self._reported_keys: set[str] = set()

    def add_problem(self, key: str, message: str, remedy: str, *, once: bool = False) -> None:
        """Record a problem with the recipe's entry `key`. If `once` is True, only the first one for a key is recorded."""
        if once and key in self._reported_keys:
            return
        self.problems.append(Problem("recipe", f"{self._path.name}: {message}", remedy))
        self._reported_keys.add(key)

    def read_struct(
        self, content: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str, excluded: tuple[str, ...] = ()
    ) -> Any:
        """Return the valid fields in `content` by name, converted to the types in `kind`, and record invalid ones.

        `prefix` precedes field names in messages, and is "" for the top level of the file. `excluded` lists the fields
        of `kind` that a file must not set.
        """
        types = {field.name: field.type for field in msgspec.structs.fields(kind) if field.name not in excluded}
        fields: dict[str, Any] = {}
        for key, value in content.items():
            path = f"{prefix}{key}"
            if key not in types:
                self.add_problem(path, f"“{path}” is not known.", suggest_name(key, list(types)))
            elif key == "set":
                fields[key] = self._read_values(value, path)
            elif key == "when":
                fields[key] = self._read_rules(value)
            else:
                try:
                    fields[key] = msgspec.convert(value, types[key])
                except msgspec.ValidationError as error:
                    message = f"“{path}” can't have the value {value!r}: {_as_clause(str(error))}."
                    self.add_problem(path, message, _REMEDIES.get(key, ""))
                else:
                    if key == "scale":
                        self._check_scales(fields[key], path)
        return fields

    def _read_rules(self, content: Any) -> tuple[Rule, ...]:
        """Return the rules in `content`, the value of the key "when" in a recipe file.

        Problems with them are recorded, and invalid fields are left out.
        """
        if not isinstance(content, list) or not all(isinstance(rule, dict) for rule in content):
            self.add_problem("when", "“when” is not a list of rules.", "Begin each rule with [[when]].")
            return ()
        return tuple(
            Rule(**self.read_struct(rule, Rule, f"[[when]] {number}: ")) for number, rule in enumerate(content, 1)
        )

    def _read_values(self, content: Any, table: str) -> dict[str, Any]:
        """Return the valid values by field in `content`, a table of job fields.

        `table` is the name of the table, under which problems are recorded.
        """
        if not isinstance(content, dict):
            self.add_problem(table, f"“{table}” is not a table.", "Write fields and values below [set] or [when.set].")
            return {}
        values = {}
        for name, value in content.items():
            path = f"{table}.{name}"
            if name not in SETTABLE:
                if name in FIELDS:
                    self.add_problem(path, f"“{path}” is of a job, but a recipe can't set it.", "Remove it.")
                else:
                    remedy = suggest_name(name, list(SETTABLE))
                    self.add_problem(path, f"“{path}” is not a field of a job.", remedy)
                continue
            job, problems = job_from_values({name: value})  # converts and validates a single value
            for problem in problems:
                self.add_problem(path, f"“{path}”: {problem.message}", problem.remedy)
            if job is not None:
                values[name] = job.value(name)
        return values

    def _check_scales(self, scales: Mapping[str, Scale], table: str) -> None:
        """Record a problem for each scale with an invalid batch size or with a field that is not a settable float."""
        scalable = [name for name in SETTABLE if FIELDS[name].kind == "float"]
        for name, scale in scales.items():
            if name not in scalable:
                self.add_problem(
                    table, f"“{table}.{name}” is not a field that can be scaled.", suggest_name(name, scalable)
                )
            elif scale.batch <= 0:
                self.add_problem(
                    table, f"“{table}.{name}”: {scale.batch:g} is not a batch size.", "Give a number above 0."
                )


_RANGE = "Give { min = … }, { max = … } or both."
_REMEDIES = {
    **dict.fromkeys(_COUNTED, _RANGE),
    **dict.fromkeys(("title", "about", "source"), f"Give text in quotes, at most {MAX_CHARACTERS} characters."),
    **dict.fromkeys(("batch_norm", "weights", "pretrained"), "Give true or false."),
    "task": "Give a task's id, or a list of ids.",
    "tasks": "Give a list of tasks' ids.",
    "model": "Give cnn, transformer, detr or mask_transformer.",
    "of_weights": 'Give ["val_crop"].',
    "scale": "Give { batch = … } for each field.",
}


def _as_clause(sentence: str) -> str:
    """Convert a sentence for use within another one: lower its first letter, and drop its full stop."""
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def file_stem(title: str) -> str:
    """Return the file name without extension for a title, or "" if the title has neither letters nor digits."""
    return re.sub(r"\W+", "-", title.lower()).strip("-_")


def title_problem(title: str) -> str:
    """Return the reason why a user's recipe can't have this title, or "" if it can."""
    new_id = file_stem(title)
    if not new_id:
        return "Give it a name with a letter or a digit."
    if new_id in {recipe.id for recipe in builtin_recipes()}:
        return f"“{title.strip()}” is a built-in recipe. Choose another name."
    return ""


def save_recipe(title: str, about: str, task: str, values: Mapping[str, Any]) -> str:
    """Save `values` as a user's recipe for `task` and return its id. A recipe with the same id is replaced.

    `about` is a line about its purpose. Only values that differ from the job's defaults are written. Raises OSError.
    """
    recipe_id = file_stem(title)
    changed = {name: values[name] for name in SETTABLE if name in values and values[name] != FIELDS[name].default}
    content = {
        "title": title.strip(),
        "about": about.strip() or "A custom recipe.",
        "tasks": [task],
        "set": msgspec.to_builtins(changed),
    }
    _write_recipe_file(recipe_path(recipe_id), tomli_w.dumps(content))
    return recipe_id


def rename_recipe(recipe: Recipe, title: str) -> str:
    """Change the title and file name of a user's recipe, and return its new id. Raises OSError.

    The rest of the file, including its comments, stays the same. Another recipe with the new id is replaced.
    """
    old, new = Path(recipe.path), recipe_path(file_stem(title))
    line = tomli_w.dumps({"title": title.strip()}).strip()
    # A function, because backslashes in a replacement text would be escapes.
    text = re.sub(r"(?m)^title\s*=.*$", lambda _match: line, read_file(old).decode(), count=1)
    _write_recipe_file(new, text)
    if new != old:
        old.unlink()
    return new.stem


def delete_recipe(path: str) -> None:
    """Delete the file of a user's recipe, if it still exists. Raises OSError."""
    Path(path).unlink(missing_ok=True)


def recipe_path(name: str) -> Path:
    """Return the path of the file for a user's recipe with the id `name`."""
    return recipes_folder() / f"{name}.toml"


def _write_recipe_file(path: Path, text: str) -> None:
    """Write a recipe file atomically, and create its folder if necessary. Raises OSError."""
    paths.make_home()
    paths.make_folder(path.parent)
    paths.write_atomically(path, text.encode())
