"""A user's first session with Footplate on a desktop, controlled by keys and read through the accessibility bus.

The tests share one window. Some of them restart it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from engine.runs.folder import RunFolder
from engine.runs.metrics import headline_metric
from engine.runs.notes import read_notes
from tests.desktop.desktops import HEIGHT, WIDTH, Desktop
from tests.desktop.names import find_unnamed_controls
from tests.desktop.window import Node, Window, find_windows_off_screen
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STATUS = "State of the run"
TRAINED_S = 400.0
"""Timeout in seconds for training on the sample dataset."""
RUN_VIEWS = ("Curves", "Classes", "Predictions", "Evaluate", "Predict & export")
MONITOR_VIEWS = ("GPUs", "Graphs", "Processes", "Topology", "Alerts")
MENUS = ("File", "Run", "View", "Tools", "Help")
DIALOGS = {
    "open the settings": "Settings",
    "keyboard shortcuts": "Keyboard shortcuts",
    "about foot": "About Footplate",
    "report a prob": "Report a problem",
    "user's guide": "Help – Footplate",
}
"""Entries of the command palette that open dialogs, and the titles of these dialogs."""
OTHER_PROGRAM = """
from PySide6.QtWidgets import QApplication, QLabel
app = QApplication(["other"])
label = QLabel("Another program", windowTitle="Another program")
label.resize(1200, 700)
label.show()
app.exec()
"""


@dataclass
class DesktopSession:
    """Desktop and Footplate window that the tests of this file share.

    Attributes:
        greeting: Visible objects of the window at the first start.
        misplaced: Descriptions of windows that extended beyond the screen at the first start.
    """

    desktop: Desktop
    window: Window
    greeting: list[Node]
    misplaced: list[str]

    @property
    def run(self) -> RunFolder:
        """Return the most recent run."""
        return RunFolder(max((self.desktop.footplate_home / "runs").iterdir()))

    def open(self) -> Window:
        self.window = Window(self.desktop)
        return self.window

    def reopen(self) -> Window:
        self.window.quit()
        return self.open()


@pytest.fixture(scope="module")
def session(x: Desktop) -> Iterator[DesktopSession]:
    """Start Footplate for the first time, train on the sample dataset with the keyboard alone, and yield the session."""
    window = Window(x)
    window.wait_for("Train the sample", "push button")
    wait_until(
        lambda: any(node.name.startswith("Disk: ") for node in window.list_nodes()), "what was found of the machine"
    )
    first = DesktopSession(x, window, window.list_nodes(), find_windows_off_screen(window.windows()))
    window.wait_for_focus("Train the sample")
    window.press_keys("Return")
    window.wait_for_text(STATUS, "Completed", TRAINED_S)
    yield first
    if first.window.process.poll() is None:
        first.window.quit()


@pytest.fixture
def window(session: DesktopSession) -> Window:
    """Close all dialogs of the session's window, show its first page, and return it."""
    while (title := session.window.get_active_title()) != "Footplate":
        session.window.press_keys("Escape")
        wait_until(lambda title=title: session.window.get_active_title() != title, f"the end of “{title}”")
    session.window.press_keys("ctrl+1")
    return session.window


def test_first_start_lists_the_machine_and_fits_the_screen(session: DesktopSession) -> None:
    names = [node.name for node in session.greeting]
    assert "Welcome to Footplate" in names
    found = {name.partition(": ")[0]: name for name in names if ": " in name}
    assert {"Driver", "Memory", "CPU", "Disk"} <= found.keys()
    assert found["CPU"].endswith(f"{psutil.cpu_count()} cores")
    assert " free" in found["Memory"]
    assert " free for runs in " in found["Disk"]
    ways = {node.name: node.description for node in session.greeting if node.role == "push button"}
    for way in ("Train the sample", "Open a folder…", "Monitor the devices"):
        assert ways[way]
    assert session.misplaced == []


def test_sample_training_completes(session: DesktopSession, window: Window) -> None:
    assert session.run.state() == "completed"
    best = headline_metric(session.run.summary())
    assert best[1] > 0.5
    assert (session.run.checkpoints / "best.pt").exists()
    assert "Completed" in window.get_description(STATUS)


def test_setting_applies_at_once_and_is_marked(window: Window) -> None:
    before = window.wait_for("Devices", "label").box[3]
    window.press_keys("ctrl+comma")
    window.wait_for_focus("Search settings")
    assert find_windows_off_screen(window.windows()) == []
    window.type("text size")
    window.wait_for_end_of("Theme")
    window.tab_to("Text size")
    window.press_keys("ctrl+a")
    window.type("130")
    window.press_keys("Return")
    reset = window.wait_for("Reset Text size")
    assert reset.role == "push button"
    wait_until(lambda: window.wait_for("Devices", "label").box[3] > before, "larger texts")
    window.tab_to("Reset Text size")
    window.press_keys("space")
    window.wait_for_end_of("Reset Text size")
    wait_until(lambda: window.wait_for("Devices", "label").box[3] == before, "texts as before")
    window.press_keys("Escape")
    wait_until(lambda: window.get_active_title() == "Footplate", "the window before all others")


def test_palette_finds_and_runs_a_command(window: Window) -> None:
    window.wait_for("CPU workers")
    window.run_command("vice pan", "Devices panel")
    window.wait_for_end_of("CPU workers")
    window.press_keys("F7")
    window.wait_for("CPU workers")


def test_message_is_announced(window: Window) -> None:
    window.run_command("show the queue")
    wait_until(lambda: "No run waits for devices." in window.list_announcements(), "the message")
    assert window.find("No run waits for devices.", "label")


def test_assigned_shortcut_survives_a_restart(session: DesktopSession, window: Window) -> None:
    window.run_command("keyboard shortcuts")
    window.wait_for_focus("Search shortcuts")
    assert find_windows_off_screen(window.windows()) == []
    window.type("fill the screen")
    wait_until(lambda: len([node for node in window.list_nodes() if node.role == "cell"]) == 3, "one command alone")
    window.tab_to("New keys")
    window.press_keys("ctrl+F9")
    window.tab_to("Assign")
    window.press_keys("space")
    wait_until(lambda: window.find("Ctrl+F9", "cell"), "the new keys in the list")
    window.press_keys("Escape")
    window = session.reopen()
    window.press_keys("ctrl+F9")
    wait_until(lambda: window.windows()[0].box == (0, 0, WIDTH, HEIGHT), "the whole screen")
    window.press_keys("ctrl+F9")
    wait_until(lambda: window.windows()[0].box[3] < HEIGHT, "the window as it was")


def test_menus_open_by_keys_with_readable_entries(window: Window) -> None:
    window.press_keys("alt+f")
    visited = {}
    for title in MENUS:
        menu = wait_until(lambda title=title: window.find_open_menu(title), f"the menu {title}")
        visited[title] = [node.name for node in menu.children if node.role == "menu item"]
        assert all(name.strip() for name in visited[title])
        assert not any("&" in name for name in visited[title])
        assert len(set(visited[title])) == len(visited[title])
        entry = wait_until(
            lambda: (node := window.get_focus()) and node.role == "menu item" and node, "an entry with the keyboard"
        )
        assert entry.name in visited[title]
        if title != MENUS[-1]:
            window.press_keys("Right")
    window.press_keys("Escape")
    wait_until(lambda: window.find_open_menu(MENUS[-1]) is None, "the end of the menu")
    assert {"New job", "Recent datasets", "Quit"} <= set(visited["File"])
    assert {"Settings…", "Command palette…"} <= set(visited["Tools"])


def test_help_search_finds_pages(window: Window) -> None:
    window.press_keys("F1")
    window.wait_for("Pages of help", "list")
    assert find_windows_off_screen(window.windows()) == []
    window.press_keys("ctrl+f")
    window.wait_for_focus("Search help")
    window.type("prometheus")
    pages = wait_until(lambda: list_matching_pages(window), "pages with the word")
    window.press_keys("Return")
    page = window.wait_for("Page of help")
    assert "prometheus" in window.text_of(page).lower()
    assert any(node.name in pages and "selected" in node.states for node in window.list_nodes())
    window.press_keys("Escape")
    window.wait_for_end_of("Pages of help")


def list_matching_pages(window: Window) -> list[str]:
    """Return the list entries of the help pages that match the current search, each with its number of matches.

    The list is empty while other entries are shown.
    """
    titles = [node.name for node in window.list_nodes() if node.role == "list item"]
    return titles if titles and all(title.endswith(")") for title in titles) else []


def test_run_is_renamed_deleted_and_restored(session: DesktopSession, window: Window) -> None:
    window.press_keys("ctrl+3")
    window.wait_for("Runs", "table")
    window.tab_to("Runs")
    window.wait_for("Tags of the selected run")
    window.press_keys("F2")
    window.wait_for_focus("Name of the run")  # the bus has it in no table, as Qt tells it
    window.press_keys("ctrl+a")
    window.type("My first run")
    window.press_keys("Return")
    window.wait_for("My first run", "cell")
    wait_until(lambda: read_notes(session.run.path).name == "My first run", "the name in the run's folder")
    folder = session.run.path
    window.press_keys("Delete")
    window.tab_to("Move to trash")
    window.press_keys("space")
    wait_until(lambda: not folder.exists(), "the run in the trash")
    window.wait_for_end_of("My first run", "cell")
    window.press_keys("ctrl+z")
    window.wait_for("My first run", "cell")
    assert folder.exists()
    window.press_keys("Escape")


def test_second_start_raises_the_window(session: DesktopSession, window: Window) -> None:
    other = session.desktop.start(sys.executable, "-c", OTHER_PROGRAM)
    wait_until(lambda: window.get_active_title() == "Another program", "another program before the window")
    second = session.desktop.start_footplate()
    assert second.wait(20) == 0
    wait_until(lambda: window.get_active_title() == "Footplate", "the window before the other program")
    other.terminate()
    other.wait(10)


def test_reopened_window_follows_the_run(session: DesktopSession, window: Window) -> None:
    before = session.run.run_id
    window.press_keys("ctrl+n")
    window.activate("Epochs", "spin box", "SetFocus")
    window.wait_for_focus("Epochs")
    window.press_keys("ctrl+a")
    window.type("500")
    window.press_keys("Tab", "ctrl+Return")
    window.wait_for_text(STATUS, "Running", 60)
    run = wait_until(lambda: (newest := session.run).run_id != before and newest, "the new run")
    window = session.reopen()
    assert run.state() == "running"
    text = window.wait_for_text(STATUS, "Running", 60)
    wait_until(lambda: "Running" in (now := window.get_description(STATUS)) and now != text, "progress of the run", 60)
    window.press_keys("ctrl+period")
    window.wait_for_text(STATUS, "Stopped", 60)
    assert run.state() == "stopped"


def test_tab_visits_every_control_of_the_page(window: Window) -> None:
    first = window.wait_for_any_focus()  # possibly a tab, which Qt reports as a tab list when Tab returns to it
    window.press_keys("Tab")
    window.wait_for_any_focus(other_than=first)
    stops = [str(node) for node in window.iterate_tab_stops()]
    assert len(stops) == len(set(stops))
    back = [str(node) for node in window.iterate_tab_stops("shift+Tab")]
    assert back[1:] == stops[:0:-1]


def test_controls_of_all_pages_have_name_and_role(window: Window) -> None:
    wrong: dict[str, list[str]] = {}

    def check_page(page: str) -> None:
        windows = window.windows()
        wrong[page] = [text for each in windows for text in find_unnamed_controls(each)] + find_windows_off_screen(
            windows
        )

    for view in RUN_VIEWS:
        window.activate(view, "page tab")
        check_page(f"run, {view}")
    window.press_keys("ctrl+2")
    for view in MONITOR_VIEWS:
        window.activate(view, "page tab")
        check_page(f"monitor, {view}")
    window.press_keys("ctrl+3")
    window.wait_for("Runs", "table")
    check_page("runs")
    window.press_keys("ctrl+4")
    window.wait_for("Create the first search")
    check_page("searches")
    window.press_keys("ctrl+1", "ctrl+n")
    window.activate("Look closer…", "push button")
    wait_until(lambda: any(node.name.startswith("Back") for node in window.list_nodes()), "the page of the dataset")
    check_page("dataset")
    window.press_keys("Escape")
    for query, title in DIALOGS.items():
        window.run_command(query)
        wait_until(lambda title=title: window.get_active_title() == title, title)
        if title == "Report a problem":  # creating the report takes a while
            wait_until(
                lambda: any(node.name.startswith("This is the full") for node in window.list_nodes()), "the report", 180
            )
        check_page(title)
        window.press_keys("Escape")
        wait_until(lambda: window.get_active_title() == "Footplate", "the window")
    assert {page: found for page, found in wrong.items() if found} == {}


def test_nothing_was_printed_on_stderr(session: DesktopSession) -> None:
    assert session.desktop.read_errors() == ""
    logs = [
        line for log in (session.desktop.footplate_home / "logs").glob("*") for line in log.read_text().splitlines()
    ]
    # On a busy machine, key events reach the bus late.
    assert [line for line in logs if "QSpiApplication::keyEventError" not in line] == []
