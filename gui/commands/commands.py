"""What the commands of the whole window do, but for those of its pages; the menus and the palette that offer them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QDialog, QMainWindow

from engine.contract.devices import is_gpu
from engine.runs.folder import RunFolder, RunSummary
from gui.actions import MONITOR, RUNS, Actions
from gui.commands.files import JobFiles
from gui.commands.keymap import Keymap
from gui.commands.menus import Menus, Recent, fill
from gui.commands.recent import MOST, RecentDatasets, run_line, titles_of
from gui.form.panel import JobPanel
from gui.format import significant
from gui.header import Header
from gui.preferences.effects import Effects
from gui.preferences.store import Preferences
from gui.sources.settings import Settings

if TYPE_CHECKING:
    from gui.commands.palette import Entry, Palette
    from gui.commands.shortcuts import ShortcutsDialog
    from gui.commands.slurm import SlurmDialog
    from gui.preferences.dialog import PreferencesDialog
    from gui.runs.remote_dialog import RemoteRunsDialog
    from gui.sources.run_list import RunsRead
    from gui.workspace import Workspace

_STARTING = "Footplate is still starting"
_TEXT_STEP = 10


@dataclass(frozen=True)
class Parts:
    """What the commands act on: parts of the window, and what it does itself."""

    acts: Actions
    job_panel: JobPanel
    header: Header
    settings: Settings
    show_run: Callable[[RunFolder], None]
    show_form: Callable[[], None]
    show_help: Callable[[str], None]
    show_alerts: Callable[[], None]
    say: Callable[[str], None]


class Commands(QObject):
    """Made with the window; `complete` adds what needs the pages. Dialogs are made when they are first opened."""

    def __init__(self, window: QMainWindow, parts: Parts) -> None:
        super().__init__(window)
        self._window, self._parts, self._acts = window, parts, parts.acts
        self.preferences = Preferences(parts.settings, self)
        self.effects = Effects(self.preferences, parts.acts, parts.job_panel, self)
        self.keymap = Keymap(parts.acts, parts.settings, self)
        self.datasets = RecentDatasets(parts.settings)
        self.menus = Menus(window, parts.acts)
        self.files = JobFiles(window, parts.acts, parts.job_panel)
        self._workspace: Workspace | None = None
        self._runs: tuple[RunSummary, ...] = ()
        self._palette: Palette | None = None
        self._settings_dialog: PreferencesDialog | None = None
        self._shortcuts: ShortcutsDialog | None = None
        self._remote_runs: RemoteRunsDialog | None = None
        self._about: QDialog | None = None
        self.slurm: SlurmDialog | None = None
        for action in self._acts.needing_pages:
            action.allow(_STARTING)
        self._connect()

    def complete(self, workspace: Workspace) -> None:
        """Offers what needs the pages, the devices and the list of runs."""
        self._workspace = workspace
        self.effects.complete(workspace)
        self.menus.offer_runs(workspace.runs.acts)
        self.menus.tools.insertAction(self._acts.hosts, workspace.runs.searches)
        workspace.run_list.complete.connect(self._runs_read)
        workspace.runs.offer(self._acts.open_remote)
        workspace.store.opened.connect(self._offer_fork)
        workspace.monitor.settings_requested.connect(self.show_preferences)
        for action in self._acts.needing_pages:
            action.allow()
        self._offer_fork()

    def close(self) -> None:
        """Has what is being submitted arrive, as at the end of the program."""
        if self.slurm is not None:
            self.slurm.close_work()

    def _connect(self) -> None:
        acts = self._acts
        self.files.run_opened.connect(self._parts.show_run)
        self.files.message.connect(self._parts.say)
        self.files.form_wanted.connect(self._parts.show_form)
        self.files.devices_wanted.connect(self._choose_devices)
        self.files.emptied.connect(self.effects.choose_devices)
        self.preferences.failed.connect(self._parts.say)
        self.menus.datasets.aboutToShow.connect(self._fill_datasets)
        self.menus.runs.aboutToShow.connect(self._fill_runs)
        self._parts.job_panel.inspected.connect(self._remember_dataset)
        acts.fork.on_trigger(self._fork)
        acts.queue.on_trigger(self._show_queue)
        acts.submit.on_trigger(self._submit)
        finders = {"strategy": acts.advise, "learning_rate": acts.find_rate, "batch_size": acts.find_batch}
        for field, finder in finders.items():
            finder.on_trigger(partial(self._find, field))
        acts.hosts.on_trigger(self._show_hosts)
        acts.open_remote.on_trigger(self.show_remote_runs)
        acts.alerts.on_trigger(self._parts.show_alerts)
        acts.full_screen.toggled.connect(self._fill_screen)
        for scheme in acts.schemes:
            name = scheme.objectName().removesuffix("_theme")
            scheme.on_trigger(partial(self.preferences.set, "theme", name))
        acts.larger_text.on_trigger(partial(self._resize_text, _TEXT_STEP))
        acts.smaller_text.on_trigger(partial(self._resize_text, -_TEXT_STEP))
        acts.usual_text.on_trigger(partial(self.preferences.reset, "text_percent"))
        acts.palette.on_trigger(self.show_palette)
        acts.preferences.on_trigger(self.show_preferences)
        acts.shortcuts.on_trigger(self.show_shortcuts)
        acts.whats_new.on_trigger(partial(self._parts.show_help, "changes.md"))
        acts.report.on_trigger(self._report)
        acts.about.on_trigger(self._show_about)

    # Dialogs

    def show_palette(self) -> None:
        from gui.commands.palette import Palette

        self._palette = self._palette or Palette(self._window)
        self._palette.offer(self._entries())

    def show_preferences(self, key: str = "") -> None:
        """Opens the settings, at the one of that key where one is given."""
        from gui.preferences.dialog import PreferencesDialog

        self._settings_dialog = self._settings_dialog or PreferencesDialog(self.preferences, self._window)
        _bring(self._settings_dialog)
        if key:
            self._settings_dialog.choose(key)

    def show_shortcuts(self) -> None:
        from gui.commands.shortcuts import ShortcutsDialog

        self._shortcuts = self._shortcuts or ShortcutsDialog(self.keymap, self._window)
        _bring(self._shortcuts)

    def show_remote_runs(self) -> None:
        """Offers the runs of other machines."""
        from gui.runs.remote_dialog import RemoteRunsDialog

        workspace = self._workspace
        if workspace is not None:
            if self._remote_runs is None:
                self._remote_runs = RemoteRunsDialog(workspace.hosts, self._window)
                self._remote_runs.chosen.connect(workspace.followed.follow)
                self._remote_runs.chosen.connect(lambda name, _run: self._parts.say(f"Connecting to {name} …"))
                workspace.followed.followed.connect(self._parts.show_run)
                workspace.followed.followed.connect(lambda _run: self._parts.say(""))
                workspace.followed.failed.connect(self._parts.say)
            _bring(self._remote_runs)

    def _show_about(self) -> None:
        from gui.commands.about import AboutDialog

        self._about = self._about or AboutDialog(self._window)
        _bring(self._about)

    def _report(self) -> None:
        from gui.commands.report import ReportDialog

        _bring(ReportDialog(self._window))

    def _entries(self) -> list[Entry]:
        from gui.commands import entries
        from gui.commands.recent import datasets_of

        history = self._workspace.history if self._workspace is not None else None
        gpus = {} if history is None else {key: t for key, t in history.titles.items() if is_gpu(key)}
        return [
            *entries.of_actions(self._acts.all(), self._window),
            *entries.of_settings(self.show_preferences),
            *entries.of_gpus(gpus, self._show_gpu),
            *entries.of_datasets(datasets_of(self._runs, self.datasets.folders()), self._open_dataset),
            *entries.of_runs(self._runs, self._parts.show_run),
            *entries.of_models(self._parts.job_panel.environment.catalogue, self._choose_model),
        ]

    def _submit(self) -> None:
        from gui.commands.slurm import SlurmDialog

        if self.slurm is None:
            self.slurm = SlurmDialog(lambda: self._parts.job_panel.form.job, self._parts.settings, self._window)
            self.slurm.submitted.connect(self._submitted)
        _bring(self.slurm)

    def _submitted(self, run: RunFolder) -> None:
        self._parts.show_run(run)
        self._parts.say(f"SLURM has taken the run {run.run_id}.")

    # What is chosen

    def _open_dataset(self, folder: str) -> None:
        self._parts.show_form()
        self._parts.job_panel.set_dataset(folder)

    def _choose_model(self, task: str, model: str) -> None:
        panel = self._parts.job_panel
        self._parts.show_form()
        if panel.form.field_value("task") != task:
            panel.set_field("task", task)
        panel.set_field("model", model)
        panel.form.focus_field("model")

    def _choose_devices(self, devices: tuple[str, ...]) -> None:
        if self._workspace is not None:
            self._workspace.devices.set_selection(devices)

    def _show_gpu(self, key: str) -> None:
        if self._workspace is not None:
            self._parts.header.show_page(MONITOR)
            self._workspace.monitor.show_gpu(key)

    def _show_queue(self) -> None:
        self._parts.header.show_page(RUNS)
        if self._workspace is not None and self._workspace.runs.queue.isVisible():
            self._workspace.runs.queue.table.setFocus()
        else:
            self._parts.say("No run waits for devices.")

    def _find(self, field: str) -> None:
        self._parts.show_form()
        self._parts.job_panel.form.find_buttons[field].click()

    def _show_hosts(self) -> None:
        if self._workspace is not None:
            self._workspace.monitor.bar.acts["hosts"].trigger()

    def _fork(self) -> None:
        if self._workspace is not None and self._workspace.store.run is not None:
            self._workspace.runs.fork(self._workspace.store.run)

    def _offer_fork(self) -> None:
        shown = self._workspace is not None and self._workspace.store.run is not None
        self._acts.fork.allow("" if shown else "Open a run first")

    # What is remembered

    def _runs_read(self, read: RunsRead) -> None:
        self._runs = read.runs

    def _remember_dataset(self) -> None:
        form = self._parts.job_panel.form
        if form.report is not None and form.prefill is None and not form.checking:
            self.datasets.add(str(form.field_value("dataset")))

    def _fill_datasets(self) -> None:
        titles = titles_of(self.datasets.folders())
        recent = [Recent(title, folder, partial(self._open_dataset, folder)) for folder, title in titles.items()]
        fill(self.menus.datasets, recent, "No dataset has been opened yet", self.datasets.forget)

    def _fill_runs(self) -> None:
        recent = [
            Recent(run_line(run), run.folder, partial(self._parts.show_run, RunFolder(run.folder)))
            for run in self._runs[:MOST]
        ]
        fill(self.menus.runs, recent, "There are no runs yet")

    # The look

    def _resize_text(self, by: int) -> None:
        size = self.preferences.number("text_percent") + by
        if not self.preferences.set("text_percent", size):
            self._parts.say(f"Text size: {significant(size)} %")

    def _fill_screen(self, on: bool) -> None:
        if on != self._window.isFullScreen():
            self._window.setWindowState(self._window.windowState() ^ Qt.WindowState.WindowFullScreen)


def _bring(dialog: QDialog) -> None:
    """Shows a dialog, or brings it to the front."""
    dialog.show()
    dialog.raise_()
    dialog.activateWindow()
