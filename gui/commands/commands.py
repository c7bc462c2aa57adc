"""Handlers of the window's commands, with the menus, the command palette and the dialogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QDialog, QMainWindow, QMenu

from engine.contract.devices import is_gpu
from engine.runs.folder import RunFolder, RunSummary
from gui.actions import Action, Actions
from gui.commands.files import MAX_DATASETS, JobFiles, RecentDatasets, format_run, make_folder_titles
from gui.commands.keymap import Keymap
from gui.context import AppContext
from gui.format import significant
from gui.pages import MONITOR, RUNS, SEARCHES
from gui.preferences.effects import Effects
from gui.preferences.store import Preferences
from gui.translation import tr

if TYPE_CHECKING:
    from gui.commands.palette import Entry, Palette
    from gui.commands.shortcuts import ShortcutsDialog
    from gui.commands.slurm import SlurmDialog
    from gui.preferences.dialog import PreferencesDialog
    from gui.runs.actions import RunActions
    from gui.runs.remote_dialog import RemoteRunsDialog
    from gui.sources.run_list import RunListing
    from gui.workspace import Workspace

_STARTING = tr("Footplate is still starting")
_TEXT_STEP = 10


class Commands(QObject):
    """Handlers of the window's actions. Handlers that need the pages work after `add_workspace` has been called."""

    def __init__(self, context: AppContext) -> None:
        super().__init__(context.window)
        self._context, self._window, self._acts = context, context.window, context.actions
        self._panel = context.job_panel
        self.preferences = Preferences(context.settings, self)
        self.effects = Effects(self.preferences, context, self)
        self.keymap = Keymap(context.actions, context.settings, self)
        self.datasets = RecentDatasets(context.settings)
        self.menus = Menus(context.window, context.actions)
        self.files = JobFiles(context)
        self._workspace: Workspace | None = None
        self._runs: tuple[RunSummary, ...] = ()
        self._palette: Palette | None = None
        self._settings_dialog: PreferencesDialog | None = None
        self._shortcuts: ShortcutsDialog | None = None
        self._remote_runs: RemoteRunsDialog | None = None
        self._about: QDialog | None = None
        self.slurm: SlurmDialog | None = None
        for action in self._acts.needing_pages:
            action.set_disabled_reason(_STARTING)  # disabled until `add_workspace` is called
        self._connect()

    def add_workspace(self, workspace: Workspace, page_commands: Sequence[Action]) -> None:
        """Enable the commands that need the pages, and add `page_commands`, which open pages without a tab."""
        self._workspace = workspace
        self.effects.add_workspace(workspace)
        self.menus.add_run_commands(workspace.runs.acts)
        self.menus.tools.insertActions(self._acts.hosts, [self._acts.pages[SEARCHES], *page_commands])
        workspace.run_list.complete.connect(self._on_runs_read)
        workspace.runs.add_button(self._acts.open_remote)
        workspace.session.opened.connect(self._update_run_actions)
        for action, show in self._list_run_views(workspace):
            action.on_trigger(partial(self._show_view, show))
        workspace.monitor.settings_requested.connect(self.show_preferences)
        for action in self._acts.needing_pages:
            action.set_disabled_reason()
        self._update_run_actions()

    def close(self) -> None:
        """End background work: wait until a submission to SLURM has finished."""
        if self.slurm is not None:
            self.slurm.close_work()

    def _connect(self) -> None:
        acts = self._acts
        self.files.cleared.connect(self.effects.select_default_devices)
        self.preferences.failed.connect(self._context.show_message)
        self.menus.datasets.aboutToShow.connect(self._fill_datasets)
        self.menus.runs.aboutToShow.connect(self._fill_runs)
        self._panel.inspected.connect(self._remember_dataset)
        acts.fork.on_trigger(self._fork)
        acts.queue.on_trigger(self._show_queue)
        acts.submit.on_trigger(self._show_slurm_dialog)
        finders = {"strategy": acts.advise, "learning_rate": acts.find_rate, "batch_size": acts.find_batch}
        for field, finder in finders.items():
            finder.on_trigger(partial(self._click_find_button, field))
        acts.hosts.on_trigger(self._show_hosts)
        acts.open_remote.on_trigger(self.show_remote_runs)
        acts.alerts.on_trigger(self._context.show_alerts)
        acts.full_screen.toggled.connect(self._set_full_screen)
        for scheme in acts.schemes:
            name = scheme.objectName().removesuffix("_theme")
            scheme.on_trigger(partial(self.preferences.set, "theme", name))
        acts.larger_text.on_trigger(partial(self._resize_text, _TEXT_STEP))
        acts.smaller_text.on_trigger(partial(self._resize_text, -_TEXT_STEP))
        acts.usual_text.on_trigger(partial(self.preferences.reset, "text_percent"))
        acts.palette.on_trigger(self.show_palette)
        acts.preferences.on_trigger(self.show_preferences)
        acts.shortcuts.on_trigger(self.show_shortcuts)
        acts.whats_new.on_trigger(partial(self._context.show_help, "changes.md"))
        acts.report.on_trigger(self._show_report_dialog)
        acts.about.on_trigger(self._show_about)

    # Dialogs

    def show_palette(self) -> None:
        from gui.commands.palette import Palette

        self._palette = self._palette or Palette(self._window)
        self._palette.show_entries(self._collect_palette_entries())

    def show_preferences(self, key: str = "") -> None:
        """Open the settings dialog and, if `key` is given, scroll to that setting."""
        from gui.preferences.dialog import PreferencesDialog

        self._settings_dialog = self._settings_dialog or PreferencesDialog(self.preferences, self._window)
        _show_dialog(self._settings_dialog)
        if key:
            self._settings_dialog.choose(key)

    def show_shortcuts(self) -> None:
        from gui.commands.shortcuts import ShortcutsDialog

        self._shortcuts = self._shortcuts or ShortcutsDialog(self.keymap, self._window)
        _show_dialog(self._shortcuts)

    def show_remote_runs(self) -> None:
        """Open the dialog with the runs on other machines."""
        from gui.runs.remote_dialog import RemoteRunsDialog

        workspace = self._workspace
        if workspace is None:
            return
        if self._remote_runs is None:
            self._remote_runs = RemoteRunsDialog(workspace.hosts, self._window)
            self._remote_runs.chosen.connect(workspace.followed.follow)
            self._remote_runs.chosen.connect(
                lambda name, _run: self._context.show_message(tr("Connecting to {name}…").format(name=name), "info")
            )
            workspace.followed.followed.connect(self._context.show_run)
            workspace.followed.followed.connect(lambda _run: self._context.show_message(""))
            workspace.followed.failed.connect(self._context.show_message)
        _show_dialog(self._remote_runs)

    def _show_about(self) -> None:
        from gui.commands.about import AboutDialog

        self._about = self._about or AboutDialog(self._window)
        _show_dialog(self._about)

    def _show_report_dialog(self) -> None:
        from gui.commands.report import ReportDialog

        _show_dialog(ReportDialog(self._window))

    def _collect_palette_entries(self) -> list[Entry]:
        """Return all entries of the command palette."""
        from gui.commands import palette
        from gui.commands.files import list_datasets

        history = self._workspace.history if self._workspace is not None else None
        gpus = {} if history is None else {key: title for key, title in history.titles.items() if is_gpu(key)}
        datasets = list_datasets(self._runs, self.datasets.read_folders())
        return [
            *palette.create_action_entries(self._acts.all(), self._window),
            *palette.create_field_entries(self._panel.form.fields, self._show_field),
            *palette.create_setting_entries(self.show_preferences),
            *palette.create_gpu_entries(gpus, self._show_gpu),
            *palette.create_dataset_entries(datasets, self._open_dataset),
            *palette.create_run_entries(self._runs, self._context.show_run),
            *palette.create_model_entries(self._panel.environment.catalogue, self._choose_model),
        ]

    def _show_slurm_dialog(self) -> None:
        """Open the dialog that submits the job in the form to SLURM."""
        from gui.commands.slurm import SlurmDialog

        if self.slurm is None:
            self.slurm = SlurmDialog(lambda: self._panel.form.job, self._context.settings, self._window)
            self.slurm.submitted.connect(self._on_submitted)
        _show_dialog(self.slurm)

    def _on_submitted(self, run: RunFolder) -> None:
        self._context.show_run(run)
        self._context.show_message(tr("Run {run_id} submitted to SLURM.").format(run_id=run.run_id), "info")

    # Choices in menus and the palette

    def _open_dataset(self, folder: str) -> None:
        self._context.show_form()
        self._panel.set_dataset(folder)

    def _choose_model(self, task: str, model: str) -> None:
        """Set the model in the form, and its task if it differs."""
        self._context.show_form()
        panel = self._panel
        if panel.form.field_value("task") != task:
            panel.set_field("task", task)
        panel.set_field("model", model)
        panel.form.focus_field("model")

    def _show_field(self, name: str) -> None:
        self._context.show_form()
        self._panel.form.focus_field(name)

    def _show_gpu(self, key: str) -> None:
        if self._workspace is not None:
            self._context.header.show_page(MONITOR)
            self._workspace.monitor.show_gpu(key)

    def _show_queue(self) -> None:
        """Show the Runs page and focus the queue, or report that no run is queued."""
        self._context.header.show_page(RUNS)
        if self._workspace is not None and self._workspace.runs.queue.isVisible():
            self._workspace.runs.queue.table.setFocus()
        else:
            self._context.show_message(tr("No run waits for devices."), "info")

    def _click_find_button(self, field: str) -> None:
        self._context.show_form()
        self._panel.form.find_buttons[field].click()

    def _show_hosts(self) -> None:
        if self._workspace is not None:
            self._workspace.monitor.bar.acts["hosts"].trigger()

    def _fork(self) -> None:
        if self._workspace is not None and self._workspace.session.run is not None:
            self._workspace.runs.fork(self._workspace.session.run)

    def _list_run_views(self, workspace: Workspace) -> list[tuple[Action, Callable[[], object]]]:
        """Return the commands that use the open run's model, each with the function that shows its view."""
        from gui.run.header import EVALUATE
        from gui.run.use.view import CONVERT, PREDICT

        return [
            (self._acts.try_image, workspace.run.choose_image),
            (self._acts.evaluate_run, partial(workspace.run.show_view, EVALUATE)),
            (self._acts.predict_with_run, partial(workspace.run.show_use, PREDICT)),
            (self._acts.convert_run, partial(workspace.run.show_use, CONVERT)),
        ]

    def _show_view(self, show: Callable[[], object]) -> None:
        """Show the open run, then call `show` to open one of its views."""
        if self._workspace is not None and self._workspace.session.run is not None:
            self._context.show_run(self._workspace.session.run)
            show()

    def _update_run_actions(self) -> None:
        """Enable the commands for the open run if there is one."""
        has_run = self._workspace is not None and self._workspace.session.run is not None
        acts = self._acts
        for action in (acts.fork, acts.try_image, acts.evaluate_run, acts.predict_with_run, acts.convert_run):
            action.set_disabled_reason("" if has_run else tr("Open a run first"))

    # Recent datasets and runs

    def _on_runs_read(self, listing: RunListing) -> None:
        self._runs = listing.runs

    def _remember_dataset(self) -> None:
        """Save the dataset of the new job as a recent one, once it has been inspected.

        A form that resumes or forks a run doesn't count.
        """
        form = self._panel.form
        if form.report is not None and form.prefill is None and not form.is_inspecting:
            self.datasets.add(str(form.field_value("dataset")))

    def _fill_datasets(self) -> None:
        """Fill the menu of recent datasets, which is about to open."""
        titles = make_folder_titles(self.datasets.read_folders())
        recent = [Recent(title, folder, partial(self._open_dataset, folder)) for folder, title in titles.items()]
        fill_recent_menu(self.menus.datasets, recent, tr("No recent datasets"), self.datasets.forget)

    def _fill_runs(self) -> None:
        """Fill the menu of recent runs, which is about to open."""
        recent = [
            Recent(format_run(run), run.folder, partial(self._context.show_run, RunFolder(run.folder)))
            for run in self._runs[:MAX_DATASETS]
        ]
        fill_recent_menu(self.menus.runs, recent, tr("No runs"))

    # Appearance

    def _resize_text(self, change: int) -> None:
        """Change the text size by a number of percent and show the new size. A size beyond the limits changes nothing."""
        size = self.preferences.number("text_percent") + change
        problem = self.preferences.set("text_percent", size)
        if not problem:
            self._context.show_message(tr("Text size: {size}%").format(size=significant(size)), "info")

    def _set_full_screen(self, on: bool) -> None:
        """Fill the screen, or return to a normal window, unless the window is already in this state."""
        if on != self._window.isFullScreen():
            self._window.setWindowState(self._window.windowState() ^ Qt.WindowState.WindowFullScreen)


def _show_dialog(dialog: QDialog) -> None:
    """Show a dialog, or bring it to the front."""
    dialog.show()
    dialog.raise_()
    dialog.activateWindow()


class Recent(NamedTuple):
    """Entry in a menu of recent datasets or runs: its title, its tool tip, and the function that opens it."""

    title: str
    tip: str
    choose: Callable[[], object]


class Menus:
    """Menus of the menu bar. Their owner fills `datasets` and `runs` whenever they open."""

    def __init__(self, window: QMainWindow, acts: Actions) -> None:
        self._window = window
        file = self._add_menu(tr("&File"), acts.menu_groups("file"))
        self.datasets = self._add_submenu(tr("Recent &datasets"), file, before=acts.open_job)
        self.runs = self._add_submenu(tr("Recent &runs"), file, before=acts.quit)
        run = self._add_menu(tr("&Run"), acts.menu_groups("run"))
        run.addSeparator()
        self.selected = self._add_submenu(tr("&Selected runs"), run)
        self.selected.setEnabled(False)
        view = self._add_menu(tr("&View"), acts.menu_groups("view"))
        for title, name in ((tr("&Theme"), "theme"), (tr("Te&xt size"), "text")):
            self._add_submenu(title, view, before=acts.full_screen).addActions(acts.menu_groups(name)[0])  # one group
        self.tools = self._add_menu(tr("&Tools"), acts.menu_groups("tools"))
        self._add_menu(tr("&Help"), acts.menu_groups("help"))

    def add_run_commands(self, acts: RunActions) -> None:
        """Add the commands for the runs that are selected in the list of runs."""
        _add_groups(
            self.selected,
            [
                [acts.show, acts.folder],
                [acts.resume, acts.change, acts.pause, acts.fork],
                [acts.compare, acts.favorite, acts.rename, acts.delete],
            ],
        )
        self.selected.setEnabled(True)

    def _add_menu(self, title: str, groups: Sequence[Sequence[QAction]]) -> QMenu:
        """Add a menu with groups of actions to the menu bar."""
        menu = self._window.menuBar().addMenu(title)
        menu.setToolTipsVisible(True)
        _add_groups(menu, groups)
        return menu

    def _add_submenu(self, title: str, menu: QMenu, before: QAction | None = None) -> QMenu:
        """Add a menu at the end, or before the separator above the action `before`."""
        submenu = QMenu(title, menu)
        submenu.setToolTipsVisible(True)
        if before is None:
            menu.addMenu(submenu)
        else:
            actions = menu.actions()
            menu.insertMenu(actions[actions.index(before) - 1], submenu)
        return submenu


def _add_groups(menu: QMenu, groups: Sequence[Sequence[QAction]]) -> None:
    """Add groups of actions to a menu, with separators between them."""
    for number, group in enumerate(groups):
        if number:
            menu.addSeparator()
        menu.addActions(list(group))


def fill_recent_menu(
    menu: QMenu, recent: Iterable[Recent], empty: str, forget: Callable[[], object] | None = None
) -> None:
    """Fill a menu with recent entries, or with the disabled text `empty` if there are none.

    If `forget` isn't None, a command that clears the list calls it.
    """
    menu.clear()
    entries = list(recent)
    for entry in entries:
        action = menu.addAction(entry.title.replace("&", "&&"))
        action.setToolTip(entry.tip)
        action.triggered.connect(lambda _checked=False, entry=entry: entry.choose())
    if not entries:
        menu.addAction(empty).setEnabled(False)
    elif forget is not None:
        menu.addSeparator()
        menu.addAction(tr("Clear the list")).triggered.connect(lambda _on=False: forget())
