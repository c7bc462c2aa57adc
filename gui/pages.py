"""Registry of all pages. A new page needs its folder and one entry in `TABS` or `PAGES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.actions import get_first_key
from gui.translation import tr


@dataclass(frozen=True)
class JobInForm:
    """Job in the form, for pages that use it.

    Attributes:
        job: Job with absolute paths, or None if it is invalid.
        edited: Job with the paths as they were entered, or None if it is invalid.
        problems: Problems with the form's values, including warnings.
        devices: Devices that are checked in the devices panel.
        device_names: Titles of all known devices, by the keys that jobs use.
        report: Report on the dataset folder.
        action: Text of the button that starts the job.
    """

    job: Job | None
    edited: Job | None
    problems: Sequence[Problem]
    devices: tuple[str, ...]
    device_names: Mapping[str, str]
    report: DatasetReport | None
    action: str


@dataclass(frozen=True)
class TabEntry:
    """Page with a tab.

    Its actions, its menu entry, and the choice whether the devices panel is shown next to it follow from the entry.
    The window handles the signals `message` and `run_chosen` of the page, if it has them, and calls its `close_work`
    at the end.

    Attributes:
        name: Id of the page.
        factory: Class as "MODULE:CLASS", or "" if the entry doesn't create the page. This is the case for the Train
            page, which exists before the others, and for a page in `PAGES`, which is created when its tab is first
            selected.
        parts: Attributes of the workspace that the class takes as its arguments.
    """

    name: str
    title: str
    tip: str
    factory: str = ""
    parts: tuple[str, ...] = ()

    def create(self, workspace: object) -> Any:
        """Import the class of the page, and return a new page, which gets the attributes `parts` of the workspace."""
        return _create_page(self.factory, workspace, self.parts)


TABS = (
    TabEntry("train", tr("Train"), tr("Show the Train page")),
    TabEntry(
        "monitor",
        tr("Monitor"),
        tr("Show the Monitor page"),
        "gui.monitor.page:MonitorPage",
        ("hosts", "intervals", "alerts", "settings"),
    ),
    TabEntry("runs", tr("Runs"), tr("Show the Runs page"), "gui.runs.page:RunsPage", ("run_list",)),
    TabEntry("search", tr("Searches"), tr("Show the searches over settings, or create one")),
)
"""All pages with a tab, in the order of the tabs."""
TRAIN, MONITOR, RUNS, SEARCHES = (
    next(n for n, tab in enumerate(TABS) if tab.name == name) for name in ("train", "monitor", "runs", "search")
)


Show = Callable[[Any, JobInForm, Any], object]
"""Function that shows a page for the job in the form. Its last argument is the argument of the request."""
Follow = Callable[[Any, JobInForm], object]
"""Function that passes a changed job to a page."""


@dataclass(frozen=True)
class PageEntry:
    """Page without a tab, or the page of the tab with the same name.

    A page without a tab covers the page of the tab `tab` until it emits `closed`.

    The window handles these signals if the page has them: `used` with values by field, `choice_made` with a remedy,
    `refused` with problems by field, `job_requested` for another call of `show`, `message`, `run_chosen`,
    `compare_requested`, `train_requested` and `job_opened`. The page's method `close_work` ends its background work.

    Attributes:
        name: Id with which others request the page.
        factory: Class as "MODULE:CLASS", imported when it is first needed.
        tab: Index in `TABS` of the tab.
        title: Title of a command in the Tools menu that opens the page, or "" for none.
        tip: Tip of that command.
        parts: Attributes of the workspace that the class takes as its arguments.
    """

    name: str
    factory: str
    tab: int
    show: Show
    follow: Follow = lambda _page, _job: None
    title: str = ""
    tip: str = ""
    parts: tuple[str, ...] = ()

    def create(self, workspace: object) -> Any:
        """Import the class of the page, and return a new page, which gets the attributes `parts` of the workspace."""
        return _create_page(self.factory, workspace, self.parts)


def _create_page(factory: str, workspace: object, parts: Sequence[str]) -> Any:
    """Import the class `factory` ("MODULE:CLASS"), and call it with the attributes `parts` of the workspace."""
    module_name, class_name = factory.split(":")
    page_class = getattr(import_module(module_name), class_name)
    return page_class(*(getattr(workspace, attribute) for attribute in parts))


def _show_job(page: Any, job: JobInForm, _argument: object) -> None:
    page.show_job(job.job, job.problems)


def _set_job(page: Any, job: JobInForm) -> None:
    page.set_job(job.job)


def _show_dataset(page: Any, job: JobInForm, example: int | None) -> None:
    """Show the report on the dataset, with large examples. Select the one at index `example`.

    If `example` is None, show a notice that asks the user to check the labels before the first training run.
    """
    page.show_report(job.report)
    if example is not None:
        page.show_augmented(job.edited is not None and job.edited.value("augmentation") != "none")
        page.choose(example)
        return
    page.show_augmented(False)
    page.show_notice(
        tr("Check that the labels are right. Then go back and press {action} again, or press {key} here.").format(
            action=job.action, key=get_first_key("train")
        )
    )


def _follow_dataset(page: Any, job: JobInForm) -> None:
    page.show_report(job.report)
    page.set_job(job.edited)


def _show_comparison(page: Any, _job: JobInForm, run_ids: Sequence[str]) -> None:
    page.show_runs(run_ids)
    page.controls.axis.setFocus()


def _follow_search(page: Any, job: JobInForm) -> None:
    page.form.set_job(job.job, job.problems, job.devices, job.device_names, job.report)


PAGES = (
    PageEntry(
        "split_points",
        "gui.split_points.page:SplitPointsPage",
        TRAIN,
        lambda page, job, _argument: page.show_job(job.job, job.problems, job.device_names),
        _set_job,
    ),
    PageEntry("dataset", "gui.dataset.page:DatasetPage", TRAIN, _show_dataset, _follow_dataset),
    PageEntry("strategy", "gui.advice.page:AdvicePage", TRAIN, _show_job, _set_job),
    PageEntry("learning_rate", "gui.finders.learning_rate:RatePage", TRAIN, _show_job, _set_job),
    PageEntry("batch_size", "gui.finders.batch_size:BatchPage", TRAIN, _show_job, _set_job),
    PageEntry("compare", "gui.compare.page:ComparePage", RUNS, _show_comparison, parts=("run_list",)),
    PageEntry("search", "gui.search.page:SearchPage", SEARCHES, lambda _page, _job, _argument: None, _follow_search),
)
"""All pages that are created when they are first requested."""
