"""Recipe of the visible job: its selection, the fields that follow it, and the user's saved recipes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QMenu,
    QMessageBox,
    QPushButton,
    QToolButton,
)

from engine.checks.disk import Disk
from engine.contract.dataset import DatasetReport
from engine.contract.job import job_from_values
from engine.contract.recipes import (
    SETTABLE,
    InvalidRecipe,
    Recipe,
    RecipeFacts,
    collect_facts,
    delete_recipe,
    initial_recipe,
    load_recipes,
    rename_recipe,
    save_recipe,
)
from gui.form.environment import JobEnvironment
from gui.form.field_row import FieldRow
from gui.form.recipe_dialog import RecipeDialog
from gui.format import significant
from gui.style import icons
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.editors import ChoiceEditor

_NONE = tr("No recipe: changes are shown against the built-in defaults.")


class RecipeEditor(ChoiceEditor):
    """List of recipes, with a menu that saves, renames and deletes them."""

    def __init__(self) -> None:
        super().__init__([])
        self.save = QAction(tr("&Save as recipe…"), self)
        self.rename = QAction(tr("&Rename…"), self)
        self.delete = QAction(tr("&Delete…"), self)
        self.more = QToolButton()
        self.more.setIcon(icons.icon("more", "muted"))
        self.more.setAccessibleName(tr("Save, rename or delete recipes"))
        self.more.setToolTip(tr("Save the fields as a recipe, or rename or delete one of yours"))
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.more)
        menu.addActions([self.save, self.rename, self.delete])
        self.more.setMenu(menu)
        self.add_button(self.more)


class RecipeFollower(QObject):
    """Updater that applies the recipe to all fields that the user hasn't overridden.

    The recipe that matches the job is used until the user selects one. Overrides are stored separately for each recipe.
    While another run's job is in the form (`paused`), the fields keep that run's values.
    """

    def __init__(self, rows: Mapping[str, FieldRow], environment: JobEnvironment, disk: Disk, parent: QObject) -> None:
        super().__init__(parent)
        self.paused = False
        """True while another run's job is in the form."""
        self.is_loading = False
        """True while the fields are being set to the values of a job."""
        self._available_recipes = load_recipes()  # also the broken recipes
        self._rows, self._environment, self._disk = rows, environment, disk
        self._row = rows["recipe"]
        assert isinstance(self._row.editor, RecipeEditor)
        self._editor = self._row.editor
        # The chosen recipe, and the one of the job in the form, which differ while `paused`.
        self._recipe = self._applied_recipe = ""
        self._overridden: set[str] = set()  # fields that the user has changed
        self._stashed_overrides: dict[str, dict[str, Any]] = {}  # changed values by recipe, restored with the recipe
        self.unscaled_rate: tuple[int, float] | None = None
        """Batch size and learning rate of the recipe, if the learning rate was scaled for the user's batch size."""
        self._is_recipe_chosen = True  # False while the recommended recipe is followed
        self._is_following = False  # True while the recipe's values are being set
        self._must_detect_overrides = False  # True for a loaded job until its changes are known
        self._report: DatasetReport | None = None  # last report on the dataset folder
        self._offered: list[tuple[str, str, str]] = []  # id, title and help of each recipe in the list
        for name in (*SETTABLE, "recipe"):
            rows[name].edited.connect(partial(self._on_edited, name))
        self._editor.save.triggered.connect(self._ask_to_save)
        self._editor.rename.triggered.connect(self._ask_to_rename)
        self._editor.delete.triggered.connect(self._ask_to_delete)

    def reset(self) -> None:
        """Use the recipe that matches the job, and forget which fields the user has overridden."""
        self._overridden.clear()
        self._stashed_overrides.clear()
        self._is_recipe_chosen = self._must_detect_overrides = False

    @contextmanager
    def keep_loaded_values(self) -> Iterator[None]:
        """Keep the field values that are set within this context, instead of applying a recipe to them.

        Values that differ from those of the job's recipe then count as overridden by the user. They are detected only
        after the dataset folder has been inspected, because the values of recipes depend on the dataset. While another
        run's job is in the form (`paused`), its values aren't compared with a recipe.
        """
        self.is_loading = True
        try:
            yield
        finally:
            self.is_loading = False
        self._applied_recipe = self._editor.value()
        if self.paused:  # another run's job doesn't follow a recipe
            return
        self.reset()
        self._recipe, self._must_detect_overrides = self._editor.value(), True
        for name in SETTABLE:
            self._rows[name].set_standard(self._rows[name].editor_value(), self._make_reset_tip())

    def follow(self, report: DatasetReport | None, *, is_inspecting: bool) -> None:
        """Apply the recipe that matches the inspected dataset folder.

        Args:
            report: Inspection results for the folder, or None if there are none.
            is_inspecting: True while the folder is being inspected. The last report is used until there is a new one.
        """
        if report is not None or not is_inspecting:
            self._report = report
        # The recipe of a loaded job depends on the folder, so its overrides are unknown until the folder is inspected.
        must_wait = self._must_detect_overrides and is_inspecting and bool(self._recipe)
        with self._ignore_edits():
            if not self.paused and not must_wait:
                if self._must_detect_overrides:
                    self._detect_overrides()
                self._apply_recipe()
            self._offer_recipes()

    @property
    def user_edited(self) -> Collection[str] | None:
        """Fields that the user has set, including "recipe" if the user has selected a recipe.

        None if they are unknown: for another run's job, and for a loaded job until it has been compared with its
        recipe.
        """
        if self.paused or self._must_detect_overrides:
            return None
        return self._overridden | {"recipe"} if self._is_recipe_chosen else self._overridden

    @contextmanager
    def _ignore_edits(self) -> Iterator[None]:
        """Don't treat edits within this context as edits by the user."""
        self._is_following = True
        try:
            yield
        finally:
            self._is_following = False

    def _on_edited(self, name: str) -> None:
        """Follow an edit by the user: apply another recipe, or record whether a field differs from the recipe."""
        if self._is_following or self.is_loading:
            return
        value = self._rows[name].editor_value()
        if name == "recipe":
            if self.paused and value != self._applied_recipe:
                self._apply_once(value)
            elif not self.paused and value != self._recipe:
                self._choose(value)
        elif not self.paused:
            if value != self._rows[name].standard:
                self._overridden.add(name)
            else:
                self._overridden.discard(name)

    def _choose(self, recipe: str) -> None:
        """Store the overrides of the current recipe, switch to another recipe, and restore its overrides."""
        if self._must_detect_overrides:
            self._detect_overrides()
        self._stash_overrides()
        restored = self._stashed_overrides.pop(recipe, {})
        self._recipe, self._overridden = recipe, set(restored)
        self._is_recipe_chosen = recipe != self._row.standard
        for name, value in restored.items():
            self._rows[name].set_value(value)

    def _stash_overrides(self) -> None:
        """Store the overridden fields' values for the current recipe, to be restored when it is selected again."""
        self._stashed_overrides[self._recipe] = {name: self._rows[name].editor_value() for name in self._overridden}

    def _apply_once(self, name: str) -> None:
        """Set the fields of another run's job to the values of the recipe `name`, which isn't followed afterwards."""
        self._applied_recipe, recipe = name, self._available_recipes.get(name)
        if recipe is not None:
            values = recipe.values(self._collect_facts(()))
            for field in SETTABLE:
                self._rows[field].set_value(values.get(field, self._rows[field].default))

    def _collect_facts(self, chosen: Iterable[str], disk: Disk | None = None) -> RecipeFacts:
        """Collect the facts on which recipes depend, including the fields that the user has `chosen`.

        Without a `disk`, all weights that the models have count as available.
        """
        values = {name: row.value() for name, row in self._rows.items()}
        chosen = [name for name in chosen if self._rows[name].has_effect]
        return collect_facts(values, self._environment.catalogue, self._report, chosen, disk)

    def _detect_overrides(self) -> None:
        """Mark the fields of a loaded job as overridden if their values differ from those of the recipe."""
        self._must_detect_overrides = False
        recipe = self._available_recipes.get(self._recipe)
        # As if the user had set every field, because the set fields affect the recipe's values.
        values = recipe.values(self._collect_facts(SETTABLE)) if recipe is not None else {}
        for name in SETTABLE:
            row = self._rows[name]
            if row.editor_value() != values.get(name, row.default):
                self._overridden.add(name)
        # Weights may have become unavailable since, so a recipe that fits with or without them isn't the user's choice.
        fitting_recipes = (initial_recipe(self._collect_facts(self._overridden, disk)) for disk in (None, self._disk))
        self._is_recipe_chosen = self._recipe not in fitting_recipes

    def _apply_recipe(self) -> None:
        """Set all fields that aren't overridden to the values of the recipe.

        The matching recipe is selected unless the user has chosen one for the current task. Also updates
        `unscaled_rate`, the batch size and learning rate that the recipe suggests if the learning rate was scaled.
        """
        facts = self._collect_facts(self._overridden, self._disk)
        default = self._available_recipes.get(self._environment.default_recipe)
        match = default.id if default is not None and default.is_for(facts.task) else initial_recipe(facts)
        recipe = self._available_recipes.get(self._recipe)
        is_for_other_task = recipe is not None and not recipe.is_for(facts.task)
        if not self._is_recipe_chosen or is_for_other_task:
            self._is_recipe_chosen = False
            self._recipe, recipe = match, self._available_recipes.get(match)
        self.unscaled_rate = self._find_unscaled_rate(recipe)
        self._row.set_standard(match, tr("Reset to the matching recipe"))
        values = recipe.values(facts) if recipe is not None else {}
        for name in SETTABLE:
            row = self._rows[name]
            standard = values.get(name, row.default)
            if name not in self._overridden and row.editor_value() != standard:
                row.set_value(standard)
            if (row.standard, row.reset_tip) != (standard, self._make_reset_tip()):
                row.set_standard(standard, self._make_reset_tip())

    def _find_unscaled_rate(self, recipe: Recipe | None) -> tuple[int, float] | None:
        """Return the recipe's batch size and learning rate if the rate is scaled for the user's batch size.

        Returns None if the rate isn't scaled, because the user has set it or hasn't set the batch size.
        """
        if recipe is None or "batch_size" not in self._overridden or "learning_rate" in self._overridden:
            return None
        scaled = recipe.values(self._collect_facts(self._overridden, self._disk))
        unscaled = recipe.values(self._collect_facts(self._overridden - {"batch_size"}, self._disk))
        rate = unscaled.get("learning_rate")
        if rate is None or rate == scaled.get("learning_rate"):
            return None
        return unscaled.get("batch_size", self._rows["batch_size"].default), rate

    def _make_reset_tip(self) -> str:
        """Return the tool tip of the buttons that reset fields."""
        return tr("Reset to the recipe") if self._recipe else tr("Reset to the default")

    @property
    def _displayed_recipe(self) -> str:
        """Id of the recipe in the recipe field.

        While `paused`, this is the recipe that was applied to another run's job, otherwise the recipe of the user's
        job.
        """
        return self._applied_recipe if self.paused else self._recipe

    def _offer_recipes(self) -> None:
        """Offer the recipes for the task. Broken recipes can't be selected, and show their problems."""
        task, broken_recipes = str(self._rows["task"].value()), self._available_recipes.broken
        choices = [(recipe.id, recipe.title, recipe.about) for recipe in self._available_recipes.for_task(task)]
        choices += [(broken.id, broken.id, "\n".join(map(str, broken.problems))) for broken in broken_recipes]
        # Offer "None" only if the job has no recipe, or had none until the user selected one.
        if "" in (self._displayed_recipe, *self._stashed_overrides):
            choices.append(("", tr("None"), _NONE))
        if choices != self._offered:
            self._offered = choices
            self._editor.box.setCurrentIndex(-1)  # otherwise a deleted recipe would remain in the list
            self._editor.set_choices(choices)
            marks = {broken.id: tr("can't be used") for broken in broken_recipes}
            self._editor.set_marks(marks, off=marks)
        self._editor.set_value(self._displayed_recipe)
        self._show_note(self._available_recipes.get(self._displayed_recipe))

    def _show_note(self, recipe: Recipe | None) -> None:
        """Describe the recipe, or why there is none, and allow renaming and deleting of the user's recipes."""
        broken = self._get_broken_recipe()
        if recipe is not None:
            text = recipe.about
        elif broken is not None:
            text = "\n".join(map(str, broken.problems))
        elif self._displayed_recipe:
            text = tr("There is no recipe “{shown}” here. Changes are shown against the built-in defaults.").format(
                shown=self._displayed_recipe
            )
        else:
            text = _NONE
        self._row.set_note(text)
        self._row.note.setToolTip(
            tr("From {source}").format(source=recipe.source) if recipe is not None and recipe.source else ""
        )
        self._editor.rename.setEnabled(recipe is not None and bool(recipe.path) and not self.paused)
        self._editor.delete.setEnabled(bool(self._find_recipe_file()) and not self.paused)

    def _get_broken_recipe(self) -> InvalidRecipe | None:
        """Return the displayed recipe if it is invalid, otherwise None."""
        return next((broken for broken in self._available_recipes.broken if broken.id == self._displayed_recipe), None)

    def _find_recipe_file(self) -> str:
        """Return the path of the displayed recipe's file, or "" for a recipe that the user hasn't saved."""
        recipe = self._available_recipes.get(self._displayed_recipe) or self._get_broken_recipe()
        return recipe.path if recipe is not None else ""

    # Saved recipes

    def _ask_to_save(self) -> None:
        """Open the dialog that saves the current values of the fields as a recipe."""
        RecipeDialog(tr("Save as recipe"), self._row, self.save).show()

    def _ask_to_rename(self) -> None:
        """Open the dialog that renames the selected recipe."""
        recipe = self._available_recipes.get(self._recipe)
        if recipe is not None:
            save = partial(self._rename, recipe)
            RecipeDialog(tr("Rename recipe"), self._row, save, name=recipe.title, renamed_id=recipe.id).show()

    def save(self, title: str, about: str) -> None:
        """Save the current values of the fields as a recipe with this title and description.

        Raises:
            ValueError: A field has an invalid value.
            OSError: The recipe can't be written.
        """
        values = {name: self._rows[name].value() for name in SETTABLE}
        _job, problems = job_from_values(values)
        if problems:
            raise ValueError(" ".join(map(str, problems)))
        saved = save_recipe(title, about, str(self._rows["task"].value()), values)
        if not self.paused:
            self._stash_overrides()
            self._overridden.clear()  # the saved recipe contains them
            self._recipe, self._is_recipe_chosen = saved, True
        self.reload()

    def _rename(self, recipe: Recipe, title: str, _about: str) -> None:
        """Rename a recipe. It remains selected if it was. Raises OSError.

        The description is ignored; the parameter exists because the dialog passes a title and a description.
        """
        renamed = rename_recipe(recipe, title)
        if self._recipe == recipe.id:  # the user may have selected another one while the dialog was open
            self._recipe, self._is_recipe_chosen = renamed, True
        self.reload()

    def reload(self) -> None:
        """Load the recipes from the disk again, offer them in the list, and request a validation of the form."""
        self._available_recipes, self._offered = load_recipes(), []
        with self._ignore_edits():
            self._offer_recipes()  # the list emits `edited`, which requests the validation

    def _ask_to_delete(self) -> None:
        """Ask in a non-modal dialog whether to delete the selected recipe."""
        recipe, path = self._recipe, self._find_recipe_file()
        title = self._editor.titles.get(recipe, recipe)
        text = tr("Delete the recipe “{title}”? Existing runs are not affected.").format(title=title)
        box = QMessageBox(
            QMessageBox.Icon.Warning, tr("Delete recipe"), text, QMessageBox.StandardButton.Cancel, self._row
        )
        box.addButton(tr("Delete"), QMessageBox.ButtonRole.AcceptRole)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setModal(False)
        box.accepted.connect(lambda: self._delete(recipe, path))
        box.show()

    def _delete(self, recipe: str, path: str) -> None:
        """Delete the file `path` of the recipe with the id `recipe`, or show why this isn't possible.

        If the recipe is still selected, the recipe that matches the job replaces it.
        """
        try:
            delete_recipe(path)
        except OSError as error:
            self._row.set_note(tr("Couldn't delete the recipe: {error}.").format(error=error))
            return
        if self._recipe == recipe:
            self._is_recipe_chosen = False
        self.reload()


class ScaledRate(Banner):
    """Note about a learning rate that was scaled for the batch size, with a button that undoes the scaling.

    Signals:
        undone(float): the user wants to undo the scaling, and use this learning rate of the recipe.
    """

    undone = Signal(float)

    def __init__(self) -> None:
        self.undo = QPushButton(tr("Undo"))
        super().__init__(self.undo, name=tr("Scaled learning rate"))
        self._rate = 0.0
        self.undo.clicked.connect(lambda: self.undone.emit(self._rate))

    def show_rate(self, unscaled: tuple[int, float] | None, rate: Any) -> None:
        """Show that `rate` was scaled from the recipe's batch size and learning rate, which are `unscaled`.

        Hides the note if `unscaled` is None.
        """
        if unscaled is None or not isinstance(rate, float):
            self.show_message("", "info", "")
            return
        batch_size, self._rate = unscaled
        text = tr("Learning rate {rate}: scaled with the batch size ({unscaled} at {batch}).").format(
            rate=significant(rate), unscaled=significant(self._rate), batch=batch_size
        )
        self.show_message(text, "info", tr("Use {rate}").format(rate=significant(self._rate)))
