"""View of the advisor's answer."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from engine.contract.advice import Advice
from engine.contract.problems import Problem
from gui.actions import HERE, Action, bind
from gui.advice import advice_format
from gui.advice.table import AdviceTable
from gui.format import format_time_or_date, localized
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import FoldButton, styled
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import hbox, vbox

NO_PREDICTION = tr("The saved result has no multi-machine prediction. Measure again.")


class AnswerView(QWidget):
    """View of an `Advice`: a summary sentence, the table of candidates, and details."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Advice | None = None
        self.saved = Banner(name=tr("Saved answer"))
        self.sentence = _create_label("title")
        self.sentence.setAccessibleName(tr("The advice"))
        self.more = _create_label()
        self.remarks = ProblemLabel()
        self.count = _create_label("muted")
        self.table = AdviceTable(tr("Candidates that were tried"))
        copying = Action(
            self.table, "copy_advice", tr("Copy as text"), tr("Copy the answer"), "Ctrl+C", icon="copy", context=HERE
        )
        copying.on_trigger(self.copy_answer)
        self.copy = bind(QPushButton(), copying, tr("Copy the advice as text"))
        self.details = _Section("")
        self.change = _Section(tr("What would change this"))
        self.fitting = _Section(tr("To make it fit"))
        self.machines = _Section(tr("On several machines"))
        self.how = _Section(tr("How it was measured"))
        self.left_out = _create_label("muted")
        self.fold = FoldButton(tr("Not tried"), self.left_out)
        self._lay_out()

    def show_answer(self, answer: Advice, machines: int) -> None:
        """Show the advisor's answer. `machines` is the number of machines that the user asked about."""
        self.answer = answer
        saved = tr("Saved result, measured {measured_at}. Measure again to update it.").format(
            measured_at=format_time_or_date(answer.measured_at)
        )
        self.saved.show_message(saved if answer.is_cached else "", "info")
        heading, _, other_sentences = answer.sentence.partition(". ")
        self.sentence.setText(f"{heading}." if other_sentences else heading)
        self.more.setText(other_sentences)
        self.more.setVisible(bool(other_sentences))
        self.remarks.show_problems(tuple(_find_warnings(answer)))
        tried = (
            tr("{tried} of {considered} candidates were tried; fastest first")
            if answer.fits
            else tr("{tried} of {considered} candidates were tried")
        )
        self.count.setText(tried.format(tried=localized(len(answer.table)), considered=localized(answer.considered)))
        self.table.setVisible(bool(answer.table))
        self.table.show_candidates(answer.table, has_advice=answer.fits)
        self.fitting.show_sentences(answer.remedies if answer.fits else ())  # otherwise, the remarks contain them
        self.change.show_sentences(answer.what_would_change)
        predictions = [each.sentence for each in answer.machines]
        if not predictions and machines > 1 and answer.is_cached:  # it may answer a question about one machine
            predictions = [NO_PREDICTION]
        self.machines.show_sentences(predictions)
        self.how.show_sentences(advice_format.describe_measurement(answer))
        left_out_count = sum(len(skipped.names) for skipped in answer.left_out)
        self.fold.setText(tr("Not tried: {left}").format(left=localized(left_out_count)))
        self.fold.setVisible(bool(left_out_count))
        self.fold.setChecked(False)
        self.left_out.setText("\n\n".join(map(advice_format.describe_left_out, answer.left_out)))

    def show_details(self) -> None:
        """Show the changes, duration and memory of the selected candidate below the table."""
        candidate = self.table.chosen()
        self.details.heading.setText(advice_format.format_name(candidate) if candidate is not None else "")
        self.details.show_sentences(advice_format.describe_candidate(candidate) if candidate is not None else ())

    def copy_answer(self) -> None:
        """Copy the advisor's answer as plain text, including the table of candidates."""
        if self.answer is not None:
            titles, *rows = self.table.list_texts()
            QGuiApplication.clipboard().setText(advice_format.format_answer(self.answer, titles, rows))

    def _lay_out(self) -> None:
        above = hbox((self.count, 1), self.copy)
        head: tuple[QWidget, ...] = (self.saved, self.sentence, self.more, self.remarks)
        below: tuple[QWidget, ...] = (self.table, self.details, self.fitting, self.change, self.machines, self.how)
        self.setLayout(vbox(*head, above, *below, self.fold, self.left_out, 1, margins=(0, 0, 8, 0)))


class _Section(QWidget):
    """Title with a list of sentences below it. The section is hidden while the list is empty."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.heading = styled(QLabel(title, wordWrap=True), "heading")
        self.body = _create_label()
        self.body.setAccessibleName(title or tr("Selected row"))
        self.setLayout(vbox(self.heading, self.body, spacing=2, margins=(0, 6, 0, 0)))

    def show_sentences(self, sentences: Iterable[str]) -> None:
        """Show one sentence per line, or hide the section if there are none."""
        self.body.setText("\n".join(sentences))
        self.setVisible(bool(self.body.text()))


def _create_label(style: str = "") -> QLabel:
    """Create a label with word wrap, whose text can be selected, in a style of the style sheet."""
    return styled(QLabel(wordWrap=True, textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse), style)


def _find_warnings(answer: Advice) -> Iterable[Problem]:
    """Yield the warnings about an answer.

    If no candidate fits into memory, these are the remedies or, without any, a warning if the time ran out. Otherwise,
    it is the reason why the ranking is uncertain.
    """
    if not answer.fits:
        for remedy in answer.remedies:
            yield Problem("", remedy, "", "warning")
        if answer.ended_by == "time" and not answer.remedies:
            yield Problem(
                "", tr("Time ran out before anything was measured."), tr("Choose more time for trials."), "warning"
            )
    elif answer.ended_by != "settled":
        yield Problem("", advice_format.ENDED[answer.ended_by], "", "warning")
