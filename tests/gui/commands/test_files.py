"""Commands for job files, runs in other folders, recent datasets and runs, and problem reports."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication, QTextOption
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport
from engine.contract.devices import CPU
from engine.contract.job import Job, load_job, save_job
from engine.contract.slurm import SlurmOptions
from engine.system import paths
from gui.commands import files as files_module
from gui.commands import report, slurm
from gui.commands.about import AboutDialog, find_license, list_packages, read_license_text
from gui.commands.files import MAX_DATASETS
from gui.commands.report import ReportDialog
from gui.main_window import MainWindow
from gui.sources.background import Background
from gui.sources.resume_fork import Prefill
from gui.sources.settings import Settings
from gui.widgets.column_model import select_row
from gui.widgets.labels import IconLabel
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import HoldCalls, OpenWindow, ShowWidget


def test_job_is_saved_opened_and_cleared(open_window: OpenWindow, qtbot: QtBot, tmp_path: Path) -> None:
    window = open_window()
    files, form, acts = window.commands.files, window.form, window.acts
    qtbot.waitUntil(form.train.isEnabled)
    assert all(action.ready for action in (acts.save_job, acts.copy_command, acts.submit))
    form.set_field("epochs", 7)
    form.validate()
    files.save_job(tmp_path / "missing" / "job.toml")
    assert "No such file" in window.message.text()
    files.save_job(tmp_path / "job.toml")
    assert window.message.findChild(IconLabel).accessibleName() == "Information"
    saved = load_job(tmp_path / "job.toml")[0]
    assert (saved.training.epochs, saved.data.dataset) == (7, str(paths.sample_dataset()))
    window.commands.preferences.set("default_devices", "cpu")
    window.workspace.devices.set_selection((CPU, CPU))
    window.acts.clear_form.trigger()
    assert window.workspace.devices.selection() == (CPU,)
    assert form.values()["dataset"] == ""
    assert form.rows["dataset"].isAncestorOf(window.focusWidget())
    assert not acts.train.ready
    form.set_field("learning_rate", -1.0)
    form.validate()
    assert not any(action.ready for action in (acts.save_job, acts.copy_command, acts.submit, acts.copy_torchrun))
    files.save_job(tmp_path / "none.toml")
    assert not (tmp_path / "none.toml").exists()
    assert "Fix the errors" in window.message.text()
    save_job(saved.with_fields(epochs=9), tmp_path / "other.toml")
    files.open_job(str(tmp_path / "other.toml"))
    qtbot.waitUntil(lambda: form.values()["epochs"] == 9)
    (tmp_path / "bad.toml").write_text("epochs = 'many'")
    files.open_job(str(tmp_path / "bad.toml"))
    qtbot.waitUntil(lambda: "epochs" in window.message.text().lower())
    assert form.values()["epochs"] == 9
    assert "single process" in window.acts.copy_torchrun.disabled_reason
    save_job(saved.with_fields(strategy="ddp", devices=("cpu", "cpu", "cpu")), tmp_path / "ddp.toml")
    files.open_job(str(tmp_path / "ddp.toml"))
    qtbot.waitUntil(lambda: window.acts.copy_torchrun.ready)
    assert window.workspace.devices.selection() == (CPU, CPU, CPU)
    window.acts.copy_torchrun.trigger()
    qtbot.waitUntil(lambda: "torchrun --nproc-per-node 3" in QGuiApplication.clipboard().text())
    form.set_job(saved.with_fields(strategy="ddp"))
    form.set_devices(("cpu", "ws1:cpu", "cpu"))
    qtbot.waitUntil(lambda: form.job is not None and "ws1:cpu" in form.job.parallel.devices)
    acts.copy_torchrun.trigger()
    qtbot.waitUntil(lambda: "Couldn't copy the job for torchrun. The devices" in window.message.text())
    menu = window.commands.menus.datasets
    menu.aboutToShow.emit()
    dataset, separator, clear = menu.actions()
    assert (dataset.toolTip(), separator.isSeparator()) == (str(paths.sample_dataset()), True)
    clear.trigger()
    menu.aboutToShow.emit()
    assert [(action.text(), action.isEnabled()) for action in menu.actions()] == [("No recent datasets", False)]


def test_datasets_of_other_runs_are_not_remembered(window: MainWindow, tmp_path: Path) -> None:
    before = window.commands.datasets.read_folders()
    report = DatasetReport(folder=str(tmp_path), format="imagefolder")
    window.job_panel.begin_prefill(Prefill(text="A fork", job=Job.from_fields(dataset=str(tmp_path))))
    window.form.set_report(report)
    window.job_panel.end_prefill()
    assert window.commands.datasets.read_folders() == before


def test_run_folder_in_any_location_opens(open_window: OpenWindow, qtbot: QtBot, tmp_path: Path) -> None:
    elsewhere = write_run(8, name="night shift").path.rename(tmp_path / "from another disk")
    window = open_window()
    files = window.commands.files
    with qtbot.waitSignal(window.workspace.session.opened):
        files.open_run(str(elsewhere))
    assert window.workspace.session.run.path == elsewhere
    files.open_run(str(tmp_path))
    qtbot.waitUntil(lambda: str(tmp_path) in window.message.text())


def test_quick_opens_show_the_last_run(
    open_window: OpenWindow, qtbot: QtBot, tmp_path: Path, hold_calls: HoldCalls
) -> None:
    first, last = write_run(8), write_run(9)
    window = open_window()
    files, session = window.commands.files, window.workspace.session
    release = hold_calls(files_module, "_is_run_folder", lambda run: run.path == first.path)
    for path in (first.path, last.path, tmp_path):
        files.open_run(str(path))
    qtbot.waitUntil(lambda: str(tmp_path) in window.message.text() and session.run is not None)
    release.set()
    qtbot.waitUntil(lambda: not files.findChildren(Background))
    assert session.run.path == last.path


def test_report_stays_open_if_it_cannot_be_saved(
    show_widget: ShowWidget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    dialog = show_widget(ReportDialog())
    assert dialog.text.wordWrapMode() == QTextOption.WrapMode.WrapAnywhere  # logs may have long lines
    dialog._archive = b"archive"
    dialog.write(tmp_path / "no such folder" / "report.zip")
    assert dialog.isVisible()
    assert "No such file" in dialog.problem.text()
    dialog.write(tmp_path / "report.zip")
    assert (tmp_path / "report.zip").read_bytes() == b"archive"
    assert not dialog.isVisible()


@pytest.mark.parametrize("archive", [None, b"not a zip file"])
def test_report_names_the_failure_of_its_command(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: bytes | None
) -> None:
    command = tmp_path / "python"  # the command is missing, or writes a broken report
    if archive is not None:
        errors = b"echo Checking >&2\necho 'The disk is full.' >&2"
        command.write_bytes(b"#!/bin/sh\nprintf %s '" + archive + b'\' > "$5"\n' + errors)
        command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(command))
    dialog = show_widget(ReportDialog())
    qtbot.waitUntil(lambda: bool(dialog.problem.text()))
    assert ("No such file or directory. Try" if archive is None else "The disk is full. Try") in dialog.problem.text()
    assert not dialog.save.isEnabled()
    dialog.close()


def test_report_of_command_is_shown_and_saved(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "doctor.zip", "w") as archive:
        archive.writestr("report/doctor.txt", "All is well.")
        archive.writestr("report/window.log", "Nothing yet.")
    command, gate = tmp_path / "python", tmp_path / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.01; done"
    command.write_text(
        f'#!/bin/sh\n{wait}\n[ "$*" = "-m footplate doctor --report $5" ] && cp {tmp_path}/doctor.zip "$5"\n'
    )
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(command))
    monkeypatch.setattr(report, "_REPORT_TIMEOUT_S", 20)
    dialog = show_widget(ReportDialog())
    assert not dialog.save.isEnabled()
    dialog.showMinimized()
    QApplication.processEvents()
    gate.touch()
    qtbot.waitUntil(dialog.save.isEnabled)
    assert [dialog.files.item(row).text() for row in range(dialog.files.count())] == ["doctor.txt", "window.log"]
    assert dialog.text.toPlainText() == "All is well."
    dialog.files.setCurrentRow(1)
    assert dialog.text.toPlainText() == "Nothing yet."
    dialog.write(tmp_path / "report.zip")
    assert (tmp_path / "report.zip").read_bytes() == (tmp_path / "doctor.zip").read_bytes()


def test_endless_report_command_is_ended(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(report, "_REPORT_TIMEOUT_S", 0)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    dialog = show_widget(ReportDialog())
    qtbot.waitUntil(lambda: "The command failed" in dialog.problem.text())
    assert list((tmp_path / "temporary").iterdir())
    dialog.cancel.click()
    assert not dialog.isVisible()
    assert not list((tmp_path / "temporary").iterdir())


def test_menu_lists_recent_runs(open_window: OpenWindow, qtbot: QtBot) -> None:
    write_run(8, name="night shift")
    window = open_window()
    menu = window.commands.menus.runs

    def titles() -> list[str]:
        menu.aboutToShow.emit()
        return [action.text() for action in menu.actions()]

    qtbot.waitUntil(lambda: titles() == ["night shift · completed"])


def test_recent_datasets_are_ordered_by_their_last_use() -> None:
    recent = files_module.RecentDatasets(Settings())
    for number in range(MAX_DATASETS + 2):
        recent.add(f"/data/{number}")
    for folder in ("", "/data/11", "/data/7", "/data/9", "/data/7"):
        recent.add(folder)
    assert [Path(folder).name for folder in recent.read_folders()] == [
        "7",
        "9",
        "11",
        "10",
        "8",
        "6",
        "5",
        "4",
        "3",
        "2",
    ]
    recent.forget()
    assert recent.read_folders() == []


def test_about_lists_installed_packages_with_licenses() -> None:
    found = {package.name.lower(): package for package in list_packages()}
    names = [name.replace("_", "-") for name in found]
    assert names == ["footplate", *sorted(names[1:])]
    assert "pytest" not in found, "it's only needed for tests"
    assert {"torch", "msgspec", "pyside6_essentials"} <= set(found)
    assert "BSD" in found["msgspec"].license
    assert sum(bool(package.license) for package in found.values()) > len(found) // 2


def write_package(folder: Path, name: str, metadata: str, files: dict[str, str]) -> Distribution:
    """Write the metadata of an installed package with these files into a folder, and return the package."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    for file, text in {"METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}\n", **files}.items():
        (info / file).write_text(text)
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in files))
    return Distribution.at(info)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ("License-Expression: MIT\nLicense: Expat", "MIT"),
        (f"License: {60 * 'x'}\nClassifier: License :: OSI Approved :: BSD License", 60 * "x"),
        (f"License: {61 * 'x'}\nClassifier: License :: OSI Approved :: BSD License", "BSD License"),
        ("License: Line 1\n        Line 2", ""),
        (
            "License: UNKNOWN\nClassifier: License :: A :: Apache\nClassifier: Topic :: B\nClassifier: License :: C :: MIT",
            "Apache, MIT",
        ),
    ],
)
def test_license_of_a_package_is_named(tmp_path: Path, metadata: str, name: str) -> None:
    assert find_license(write_package(tmp_path, "package", metadata, {})) == name


def test_license_texts_of_a_package_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    write_package(
        tmp_path, "two", "", {"LICENSE": "First", "Notice.txt": "Second", "licenses.py": "import re", "A": "-"}
    )
    write_package(tmp_path, "old", "License: Do what you want", {})
    write_package(tmp_path, "none", "", {})
    assert (read_license_text("two"), read_license_text("old")) == ("First\n\nSecond", "Do what you want")
    assert "no license text" in read_license_text("none")


def test_folders_with_equal_names_have_the_name_of_their_parent() -> None:
    titles = files_module.make_folder_titles(["/red/flowers", "/blue/flowers", "/blue/cars"])
    assert list(titles.values()) == ["flowers (red)", "flowers (blue)", "cars"]


def test_about_shows_the_license_of_the_selected_package(show_widget: ShowWidget) -> None:
    parent = show_widget(QWidget())
    dialog = show_widget(AboutDialog(parent))
    packages = list_packages()
    for row in (0, len(packages) - 1):
        if row:
            select_row(dialog.table, row)
        cells = [dialog.table.item(row, column).text() for column in range(3)]
        assert cells == [packages[row].name, packages[row].version, packages[row].license or "not stated"]
        assert dialog.text.toPlainText() == read_license_text(packages[row].name)
    assert packages[0].version in dialog.findChild(QLabel).text()


@pytest.mark.long
def test_report_is_reviewed_before_it_is_saved(open_window: OpenWindow, qtbot: QtBot, tmp_path: Path) -> None:
    write_run(8, name="night shift")
    window = open_window()
    window.acts.report.trigger()
    dialog = window.findChild(ReportDialog)
    qtbot.waitUntil(dialog.save.isEnabled)
    assert "doctor.txt" in dialog.texts
    assert "night shift" not in "".join(dialog.texts.values())
    dialog.files.setCurrentRow(list(dialog.texts).index("doctor.txt"))
    assert dialog.text.toPlainText() == dialog.texts["doctor.txt"]
    dialog.write(tmp_path / "report.zip")
    with zipfile.ZipFile(tmp_path / "report.zip") as archive:
        assert len(archive.namelist()) == len(dialog.texts)


def test_edited_script_is_submitted(
    open_window: OpenWindow,
    qtbot: QtBot,
    tmp_path: Path,
    separate_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = open_window()
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.set_field("strategy", "ddp")
    window.form.validate()
    job = window.form.job
    window.acts.submit.trigger()
    dialog = window.commands.slurm
    dialog.numbers["nodes"].setValue(2)
    dialog.numbers["gpus_per_node"].setValue(0)
    dialog.texts["partition"].setText("-gpu")
    assert not dialog.submit.isEnabled()
    assert "partition" in dialog.problem.text()
    dialog.texts["partition"].setText("gpu")
    assert "#SBATCH --partition=gpu\n#SBATCH --nodes=2" in dialog.script.toPlainText()
    dialog.script.appendPlainText("# mine")
    dialog.texts["account"].setText("vision")
    assert "# mine" in dialog.script.toPlainText()
    assert "vision" not in dialog.script.toPlainText()
    dialog.discard.click()
    assert "--account=vision" in dialog.script.toPlainText()
    assert "# mine" not in dialog.script.toPlainText()
    assert dialog.setup.isVisible()
    dialog.setup.setPlainText("module load cuda\n\nulimit -n")
    assert "\nmodule load cuda\nulimit -n\n" in dialog.script.toPlainText()
    assert "--job-name=timm-tf_efficientnet_lite0\n" in dialog.script.toPlainText()
    dialog.texts["account"].setText(" ")
    assert "account" not in dialog.script.toPlainText()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    dialog.submit.click()
    qtbot.waitUntil(dialog.submit.isEnabled)
    assert "SLURM's commands were not found" in dialog.problem.text()
    assert not list((separate_home / "runs").iterdir())
    window.form.set_field("dataset", str(tmp_path / "missing"))
    window.form.validate()
    dialog.submit.click()
    qtbot.waitUntil(lambda: "missing" in dialog.problem.text())
    reopened = type(dialog)(lambda: window.form.job, window.settings, window)
    qtbot.addWidget(reopened)
    assert reopened.options() == dialog.options()
    window.settings.set("slurm", '{"nodes": "many"}')
    damaged = type(dialog)(lambda: window.form.job, window.settings, window)
    qtbot.addWidget(damaged)
    assert damaged.options() == SlurmOptions()
    window.form.set_field("learning_rate", -1.0)
    window.form.validate()
    dialog.submit.click()
    assert "The form has errors." in dialog.problem.text()
    window.form.set_job(job)
    window.form.validate()
    with monkeypatch.context() as patch, qtbot.capture_exceptions() as raised:
        patch.setattr(slurm, "submit_new", lambda job, script, host: 1 / 0)
        dialog.submit.click()
        qtbot.waitUntil(lambda: bool(raised))
    assert ("couldn't be submitted" in dialog.problem.text(), dialog.submit.isEnabled()) == (True, True)
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\necho 31\n")
    (tmp_path / "bin/sbatch").chmod(0o755)
    dialog.script.appendPlainText("# mine")
    assert dialog.discard.isEnabled()
    with qtbot.waitSignal(dialog.submitted) as submitted:
        dialog.submit.click()
    assert (dialog.isVisible(), dialog.discard.isEnabled()) == (False, False)
    run = submitted.args[0]
    assert "\n# mine" in (run.path / "slurm.sh").read_text()
    assert run.job().parallel.devices == ("slurm:1:cpu", "slurm:2:cpu")
    assert window.workspace.session.run.path == run.path
