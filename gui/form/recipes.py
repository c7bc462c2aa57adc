"""The recipe of the job on screen: chosen, followed by the fields that the user leaves alone, and kept under a new
name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QMessageBox, QToolButton

from engine.checks.disk import Disk
from engine.contract.catalogue import Catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.job import job_from_values
from engine.contract.recipes import (
    SETTABLE,
    Broken,
    Recipe,
    Seen,
    delete_recipe,
    fitting,
    load_recipes,
    rename_recipe,
    save_recipe,
    see,
)
from gui.form.field_row import FieldRow
from gui.form.recipe_dialog import RecipeDialog
from gui.style import icons
from gui.widgets.editors import ChoiceEditor

_NONE = "No recipe: changes are shown against the built-in defaults."


class RecipeEditor(ChoiceEditor):
    """The recipes to choose from, and a menu: `save`, `rename` and `delete`."""

    def __init__(self) -> None:
        super().__init__([])
        self.save = QAction("&Save as recipe …", self)
        self.rename = QAction("&Rename …", self)
        self.delete = QAction("&Delete …", self)
        self.more = QToolButton()
        self.more.setIcon(icons.icon("more", "muted"))
        self.more.setAccessibleName("Save, rename or delete recipes")
        self.more.setToolTip("Save the fields as a recipe, or rename or delete one of yours")
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.more)
        menu.addActions([self.save, self.rename, self.delete])
        self.more.setMenu(menu)
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self.more)


class RecipeFollower(QObject):
    """Keeps the fields at what the recipe says of what is seen in the form, but for those that the user has changed.

    Until the user chooses a recipe, it is the one that fits. What was changed under a recipe comes back with it. While
    another run's job is in the form, the values are that run's.

    Attributes: paused - whether that is so; is_loading - whether the fields are being set to a job's values;
    following - whether the fields are being set at this moment; preferred - the recipe that is taken where it is for
    the task, "" for the one that fits; about - says below the field what the recipe is for.
    """

    def __init__(self, rows: Mapping[str, FieldRow], catalogue: Catalogue, disk: Disk, parent: QObject) -> None:
        super().__init__(parent)
        self.paused = self.following = self.is_loading = False
        self.known = load_recipes()
        self.preferred = ""
        self._rows, self.catalogue, self._disk = rows, catalogue, disk
        self._row = rows["recipe"]
        self.about = self._row.note
        assert isinstance(self._row.editor, RecipeEditor)
        self._editor = self._row.editor
        self._recipe = self._lent = ""
        self._own: set[str] = set()
        self._aside: dict[str, dict[str, Any]] = {}
        self._chosen = True
        self._unsettled = False
        self._report: DatasetReport | None = None
        self._offered: list[tuple[str, str, str]] = []
        self._connect()

    def _connect(self) -> None:
        for name in (*SETTABLE, "recipe"):
            self._rows[name].edited.connect(partial(self._edited, name))
        self._editor.save.triggered.connect(self._ask_to_save)
        self._editor.rename.triggered.connect(self._ask_to_rename)
        self._editor.delete.triggered.connect(self._ask_to_delete)

    # What the form tells

    def begin(self) -> None:
        """Takes the recipe that fits; nothing has been changed yet."""
        self._own.clear()
        self._aside.clear()
        self._chosen = self._unsettled = False

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While the fields are set to a job's values, which stay. Which of them the user had changed is found once the
        folder has been looked through, since recipes go by what is in there.
        """
        self.is_loading = True
        yield
        self.is_loading = False
        self._lent = self._editor.value()
        if self.paused:
            return
        self.begin()
        self._recipe, self._unsettled = self._editor.value(), True
        for name in SETTABLE:
            self._rows[name].set_standard(self._rows[name].editor.value(), self._way_back())

    def follow(self, report: DatasetReport | None, checking: bool) -> None:
        """Sets what the user has left alone to what the recipe says now. `checking`: the `report` is still to come,
        until when what was found last stands.
        """
        if report is not None or not checking:
            self._report = report
        self.following = True
        if not (self.paused or (self._unsettled and checking and self._recipe)):
            if self._unsettled:
                self._settle()
            self._apply()
        self._show()
        self.following = False

    # What it makes of it

    def _edited(self, name: str) -> None:
        row = self._rows[name]
        if self.following or self.is_loading:
            return
        if name == "recipe":
            if row.editor.value() != self._recipe and not self.paused:
                self._choose(row.editor.value())
            elif self.paused and row.editor.value() != self._lent:
                self._lend(row.editor.value())
        elif self.paused:
            return
        elif row.editor.value() != row.standard:
            self._own.add(name)
        else:
            self._own.discard(name)

    def _choose(self, recipe: str) -> None:
        """Another recipe: what was changed under the last one is put aside, and what was under this one brought
        back.
        """
        if self._unsettled:
            self._settle()
        self._put_aside()
        restored = self._aside.pop(recipe, {})
        self._recipe, self._own = recipe, set(restored)
        self._chosen = recipe != self._row.standard
        for name, value in restored.items():
            self._rows[name].set_value(value)

    def _put_aside(self) -> None:
        self._aside[self._recipe] = {name: self._rows[name].editor.value() for name in self._own}

    def _lend(self, name: str) -> None:
        """Sets the fields of another run's job by a recipe, once."""
        self._lent, recipe = name, self.known.get(name)
        if recipe is not None:
            given = recipe.values(self._facts(()))
            for field in SETTABLE:
                self._rows[field].set_value(given.get(field, self._rows[field].default))

    @property
    def chosen(self) -> Collection[str] | None:
        """Names of the fields that the user has set, with "recipe" if the user chose one; None if unknown."""
        if self.paused or self._unsettled:
            return None
        return self._own | {"recipe"} if self._chosen else self._own

    def _facts(self, chosen: Iterable[str], disk: Disk | None = None) -> Seen:
        """Collect what recipes depend on; without a `disk`, known weights count as available."""
        values = {name: row.value() for name, row in self._rows.items()}
        chosen = [name for name in chosen if self._rows[name].has_effect]
        return see(values, self.catalogue, self._report, chosen, disk)

    def _settle(self) -> None:
        """Finds which values of a job are the user's own: those that the recipe would not have given it."""
        self._unsettled = False
        recipe = self.known.get(self._recipe)
        given = recipe.values(self._facts(SETTABLE)) if recipe is not None else {}
        for name in SETTABLE:
            row = self._rows[name]
            if row.editor.value() != given.get(name, row.default):
                self._own.add(name)
        # Weights may have become unavailable since, so a recipe that fits with or without them isn't the user's choice.
        self._chosen = self._recipe not in (fitting(self._facts(self._own, disk)) for disk in (None, self._disk))

    def _apply(self) -> None:
        facts = self._facts(self._own, self._disk)
        preferred, recipe = self.known.get(self.preferred), self.known.get(self._recipe)
        fits = self.preferred if preferred is not None and preferred.is_for(facts.task) else fitting(facts)
        if not self._chosen or (recipe is not None and not recipe.is_for(facts.task)):
            self._chosen = False
            self._recipe, recipe = fits, self.known.get(fits)
        self._row.set_standard(fits, "Back to the matching recipe")
        given = recipe.values(facts) if recipe is not None else {}
        for name in SETTABLE:
            row = self._rows[name]
            standard = given.get(name, row.default)
            if name not in self._own and row.editor.value() != standard:
                row.set_value(standard)
            if (row.standard, row.reset.toolTip()) != (standard, self._way_back()):
                row.set_standard(standard, self._way_back())

    def _way_back(self) -> str:
        return "Back to the recipe" if self._recipe else "Back to the default"

    @property
    def _shown(self) -> str:
        """The recipe on screen."""
        return self._lent if self.paused else self._recipe

    def _show(self) -> None:
        """Offers the recipes for the task; the user's broken ones cannot be chosen, and say why."""
        task = str(self._rows["task"].value())
        choices = [(recipe.id, recipe.title, recipe.about) for recipe in self.known.for_task(task)]
        choices += [(one.id, one.id, "\n".join(map(str, one.problems))) for one in self.known.broken]
        if "" in (self._shown, *self._aside):
            choices.append(("", "None", _NONE))
        if choices != self._offered:
            self._offered = choices
            self._editor.box.setCurrentIndex(-1)  # one that is offered no more is not to stay in the list
            self._editor.set_choices(choices)
            broken = {one.id: "can't be used" for one in self.known.broken}
            self._editor.set_marks(broken, broken)
        self._editor.set_value(self._shown)
        self._show_about(self.known.get(self._shown))

    def _show_about(self, recipe: Recipe | None) -> None:
        broken = self._broken()
        gone = f"There is no recipe “{self._shown}” here. Changes are shown against the built-in defaults."
        if recipe is not None:
            text = recipe.about
        elif broken is not None:
            text = "\n".join(map(str, broken.problems))
        else:
            text = gone if self._shown else _NONE
        self._row.set_note(text)
        self.about.setToolTip(f"From {recipe.source}" if recipe is not None and recipe.source else "")
        self._editor.rename.setEnabled(recipe is not None and bool(recipe.path) and not self.paused)
        self._editor.delete.setEnabled(bool(self._path()) and not self.paused)

    def _broken(self) -> Broken | None:
        return next((one for one in self.known.broken if one.id == self._shown), None)

    def _path(self) -> str:
        """Where the recipe chosen lies, "" where it is none of the user's."""
        one = self.known.get(self._shown) or self._broken()
        return one.path if one is not None else ""

    # The user's own recipes

    def _ask_to_save(self) -> None:
        RecipeDialog("Save as recipe", self._row, self._save).show()

    def _ask_to_rename(self) -> None:
        recipe = self.known.get(self._recipe)
        if recipe is not None:
            save = partial(self._rename, recipe)
            RecipeDialog("Rename recipe", self._row, save, name=recipe.title, but=recipe.id).show()

    def _save(self, title: str, about: str) -> None:
        values = {name: self._rows[name].value() for name in SETTABLE}
        _job, wrong = job_from_values(values)
        if wrong:
            raise ValueError(" ".join(map(str, wrong)))
        saved = save_recipe(title, about, str(self._rows["task"].value()), values)
        if not self.paused:
            self._put_aside()
            self._own.clear()  # all of it is the recipe's now
            self._recipe, self._chosen = saved, True
        self._load_anew()

    def _rename(self, recipe: Recipe, title: str, _about: str) -> None:
        self._recipe, self._chosen = rename_recipe(recipe, title), True
        self._load_anew()

    def _load_anew(self) -> None:
        self.known, self._offered = load_recipes(), []
        self.following = True
        self._show()
        self.following = False
        self._row.edited.emit()  # has the form judged anew

    def _ask_to_delete(self) -> None:
        title, path = self._editor.titles.get(self._recipe, self._recipe), self._path()
        text = f"Delete the recipe “{title}”? Existing runs are not affected."
        box = QMessageBox(QMessageBox.Icon.Warning, "Delete recipe", text, QMessageBox.StandardButton.Cancel, self._row)
        box.addButton("Delete", QMessageBox.ButtonRole.AcceptRole)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setModal(False)
        box.accepted.connect(lambda: self._delete(path))
        box.show()

    def _delete(self, path: str) -> None:
        try:
            delete_recipe(path)
        except OSError as error:
            self._row.set_note(f"The recipe can't be deleted: {error}.")
            return
        self._chosen = False
        self._load_anew()
