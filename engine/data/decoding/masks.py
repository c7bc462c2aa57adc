"""Find the classes of masks and the value of each class, using a sample of the masks and class tables. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from engine.contract.problems import Problem
from engine.data.decoding.class_tables import ClassTable, find_tables
from engine.data.decoding.mask_survey import Levels, Survey, survey_masks
from engine.data.decoding.mask_values import (
    GRAY,
    NO_CLASS,
    NOT_A_NUMBER,
    WHITE,
    Mode,
    are_gray,
    class_colors,
    pack_colors,
)
from engine.data.decoding.named_values import (
    find_void_values,
    fits_colors,
    match_colors,
    match_numbers,
    name_two_classes,
    report_too_many_classes,
)
from engine.data.decoding.unnamed_values import MAX_CLASSES, Meaning, learn_from_colors, learn_from_levels
from engine.data.splits import MaskCode, dataset_warning
from engine.system.format import listed

VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""Classes of PASCAL VOC, in the order of their values (development kit, section 3.2)."""
VOC_CODE = MaskCode(tuple(range(len(VOC_CLASSES))), ignored=(NO_CLASS,))


def learn_meaning(folder: str, masks: Sequence[str], folders: Sequence[str], *, ignored: int | None = None) -> Meaning:
    """Determine the classes in `masks`, which are file paths, and the value of each class.

    A class table in the dataset folder `folder`, or in one of `folders`, gives the class names if it fits the masks.
    Otherwise, the classes are derived from the values in the masks. The value `ignored` never belongs to a class, even
    if a table lists it.
    """
    survey = survey_masks(masks)
    if not survey.masks:
        reason = f" {survey.failure}." if survey.failure else ""
        return Meaning(failure=f"None of the masks can be read.{reason}")
    tables = [table for parent in dict.fromkeys((folder, *folders)) for table in find_tables(parent)]
    meaning = _drop_class(_Interpreter(survey, tables, masks, ignored).interpret(), ignored)
    if meaning.code is None:
        return meaning
    return replace(meaning, code=replace(meaning.code, notes=(*meaning.code.notes, *_warn_about_files(survey))))


def read_names_by_value(folder: str) -> Meaning | None:
    """Return the class names and values of a table without colors in `folder`, or None if there is none.

    If a table names too many classes, the result has only a `failure`.
    """
    for table in find_tables(folder):
        if len(table.names) > MAX_CLASSES:
            return report_too_many_classes(table)
        if not table.colors:
            return Meaning(table.names, MaskCode(table.values, ignored=find_void_values(table.values)))
    return None


class _Interpreter:
    """Interpreter that decides if mask values are gray levels, palette indices or colors, and finds their classes."""

    def __init__(self, survey: Survey, tables: Sequence[ClassTable], masks: Sequence[str], ignored: int | None) -> None:
        self._survey = survey
        # A table with more classes is ignored, but a list with more names is an error (see `interpret`).
        self._tables = [table for table in tables if table.listed or len(table.names) <= MAX_CLASSES]
        self._masks = masks
        self._ignored = () if ignored is None else (ignored,)

    def interpret(self) -> Meaning:
        """Return the meaning of the mask values, with a `failure` if their classes can't be determined."""
        oversized = next((table for table in self._tables if len(table.names) > MAX_CLASSES), None)
        if oversized is not None:
            return report_too_many_classes(oversized)
        if self._survey.is_colored():
            return self._interpret_colors(warnings=())
        if self._survey.select_mode("palette"):
            return self._interpret_palette()
        if self._survey.select_mode("color") and self._has_fitting_colors():
            return self._interpret_colors(warnings=())
        return self._interpret_levels(palette={})

    def _interpret_palette(self) -> Meaning:
        """Interpret the masks as palette indices if their palettes agree, otherwise as colors."""
        palette = self._survey.find_common_palette()
        if palette is None:
            note = dataset_warning(
                "The masks' palettes differ, so their colors are the classes, not their indices.",
                "Save all masks with the same palette if their indices are meant.",
            )
            return self._interpret_colors(warnings=(note,))
        # Some masks may lack a palette. They hold indices if all of their values are in the palette, and if 0 and 255
        # do not mean black and white.
        others = {int(value) for mask in self._survey.masks if mask.mode != "palette" for value in mask.values}
        are_indices = others - {NO_CLASS} <= set(palette)
        are_black_and_white = bool(others - set(palette)) and others <= {0, NO_CLASS}
        if not are_indices or are_black_and_white:
            return self._interpret_colors(warnings=())
        has_equal_colors = len(set(palette.values())) < len(palette)
        # Colors in a table can't be converted to indices if several indices have the same color.
        if has_equal_colors and self._has_fitting_colors():
            return self._interpret_colors(warnings=())
        return self._interpret_levels(palette)

    def _interpret_levels(self, palette: dict[int, int]) -> Meaning:
        """Interpret the masks as palette indices, or as gray levels if `palette` is empty.

        The class names come from a class table if one fits.
        """
        levels = self._survey.count_levels().without(*self._ignored)
        missing, warnings = self._find_missing_data(levels)
        present = levels.without(*missing)
        if not len(present.values):
            return Meaning(failure="The masks hold no value that could be a class.")
        unnamed = learn_from_levels(present, self._survey)
        if unnamed.code is not None and unnamed.code.nearest:  # JPEG or smoothing has changed two values
            return _add_details(name_two_classes(unnamed, self._tables), missing, warnings)
        # A table can't name values that JPEG has changed, nor the values of photos.
        if unnamed.code is not None or not (self._survey.lossy or self._survey.has_smooth_values()):
            for table in self._tables:
                named = match_numbers(table, present, palette)
                if named is not None:
                    return _add_details(named, missing, warnings, palette)
        meaning = self._recognize_voc(present, palette) or unnamed
        for value in missing:  # may have a class, since there is one for each number up to the largest that occurs
            meaning = _drop_class(meaning, value)
        return _add_details(meaning, missing=(), warnings=[*warnings, *self._warn_about_tables()], palette=palette)

    def _find_missing_data(self, levels: Levels) -> tuple[tuple[int, ...], list[Problem]]:
        """Return the levels that mean missing data, and a warning if the masks themselves declare some of them.

        Negative levels, such as `NOT_A_NUMBER`, always mean missing data.
        """
        missing = (
            tuple(level for level in levels.values.tolist() if level < 0) + self._survey.find_missing_data_levels()
        )
        # With a single other value, there would be only one class left to learn.
        if 0 in missing and 0 in levels.values and len(levels.without(*missing).values) < 2:
            message = "The masks declare the value 0 as missing data; it's taken for the background."
            return tuple(level for level in missing if level != 0), [dataset_warning(message)]
        declared = [level for level in missing if level > NOT_A_NUMBER and level in levels.values]
        if not declared:
            return missing, []
        if len(declared) == 1:
            message = f"The value {declared[0]} means missing data in the masks, so its pixels are of no class."
        else:
            names = listed(map(str, declared))
            message = f"The values {names} mean missing data in the masks, so their pixels are of no class."
        return missing, [dataset_warning(message)]

    def _recognize_voc(self, present: Levels, palette: dict[int, int]) -> Meaning | None:
        """Return the classes of PASCAL VOC if the masks seem to belong to it, otherwise None.

        The palette or the folder name must be that of VOC, and both VOC's last class and 255 must occur.
        """
        numbers = VOC_CODE.values
        is_in_folder = os.path.basename(os.path.dirname(self._masks[0])).lower() == "segmentationclass"
        colors = enumerate(pack_colors(class_colors(len(numbers))).tolist())
        has_palette = bool(palette) and all(palette.get(number, color) == color for number, color in colors)
        values = set(present.values.tolist())
        if not (is_in_folder or has_palette) or not {numbers[-1], NO_CLASS} <= values <= {*numbers, NO_CLASS}:
            return None
        return Meaning(VOC_CLASSES, VOC_CODE)

    def _interpret_colors(self, warnings: Sequence[Problem]) -> Meaning:
        """Interpret the masks as colors, with gray levels as shades of gray. `warnings` are added to the result."""
        survey = self._survey
        colors = survey.count_colors().without(*self._ignored)
        if failure := self._explain_unusable_colors(colors):
            return Meaning(failure=failure)
        for table in self._tables:
            named = match_colors(table, colors, lossy=survey.lossy)
            if named is not None:
                return _add_details(named, missing=(), warnings=warnings)
        if are_gray(colors.values):
            unnamed = _convert_to_gray_colors(learn_from_levels(colors._replace(values=colors.values & 0xFF), survey))
        else:
            unnamed = learn_from_colors(colors, survey)
        return _add_details(unnamed, missing=(), warnings=[*warnings, *self._warn_about_tables()])

    def _explain_unusable_colors(self, colors: Levels) -> str:
        """Return the reason why the masks can't be read as colors, or "" if they can. Some masks may be gray.

        `colors` are the values of all masks as colors, except the ignored one.
        """
        if not len(colors.values):
            return "The masks have no other value."
        if int(colors.values.max()) > WHITE or int(colors.values.min()) < 0:
            return "Some masks are in color, others have gray levels beyond 8 bits. Save all masks in the same way."
        # Gray levels that are not colors of the other masks show that the gray masks use another encoding.
        gray = Survey(self._survey.select_mode("gray")).count_colors().values
        colored = Survey([mask for mask in self._survey.masks if mask.mode != "gray"]).count_colors().values
        only_gray = sorted(set(gray.tolist()) - set(colored.tolist()))
        if not only_gray or are_gray(colors.values):
            return ""
        values = ", ".join(str(color & 0xFF) for color in only_gray[:5])
        return (
            f"Some masks are in color, others are gray and hold values that no mask in color holds ({values}). Save all "
            "masks in the same way."
        )

    def _warn_about_tables(self) -> list[Problem]:
        """Return a warning if there are class tables, but none fits the values in the masks."""
        names = list(dict.fromkeys(table.file for table in self._tables))
        if not names:
            return []
        message = f"{listed(names)} can't name the classes, as the masks hold other values or colors."
        return [dataset_warning(message, "Correct the table, or save the masks with its values.")]

    def _has_fitting_colors(self) -> bool:
        """Return True if a class table lists the colors that occur in the masks."""
        return any(fits_colors(table, self._survey.count_colors()) for table in self._tables)


def _convert_to_gray_colors(meaning: Meaning) -> Meaning:
    """Return a copy of `meaning` whose class values are colors 0xRRGGBB instead of gray levels."""
    code = meaning.code
    if code is None:
        return meaning
    values, ignored = (tuple(GRAY * value for value in levels) for levels in (code.values, code.ignored))
    return replace(meaning, code=replace(code, values=values, ignored=ignored, colors=True))


def _add_details(
    meaning: Meaning, missing: Sequence[int], warnings: Sequence[Problem], palette: dict[int, int] | None = None
) -> Meaning:
    """Return a copy of `meaning` with `warnings`, and with the values `missing`, which mark missing data, as ignored.

    `palette` holds the color 0xRRGGBB of each palette index, or is empty or None for masks without a palette.
    """
    code = meaning.code
    if code is None:
        return meaning
    ignored = tuple(dict.fromkeys((*code.ignored, *(value for value in missing if value not in code.values))))
    colors = tuple(palette.get(value, -1) for value in code.values) if palette else ()
    return replace(meaning, code=replace(code, ignored=ignored, palette=colors, notes=(*code.notes, *warnings)))


def _drop_class(meaning: Meaning, ignored: int | None) -> Meaning:
    """Return a copy of `meaning` without the class that has the value `ignored`, if any.

    Pixels with this value then have no class.
    """
    code = meaning.code
    if ignored is None or code is None:
        return meaning
    retained = [index for index, value in enumerate(code.values) if value != ignored]
    values = tuple(code.values[index] for index in retained)
    palette = tuple(code.palette[index] for index in retained) if code.palette else ()
    all_ignored = tuple(dict.fromkeys((*code.ignored, ignored)))
    code = replace(code, values=values, ignored=all_ignored, palette=palette)
    return replace(meaning, classes=tuple(meaning.classes[index] for index in retained), code=code)


def _warn_about_files(survey: Survey) -> list[Problem]:
    """Return warnings about masks of different image types, such as gray and color, and about transparent masks."""
    found = []
    modes: tuple[tuple[Mode, str], ...] = (("gray", "in gray"), ("palette", "with a palette"), ("color", "in color"))
    counts = {words: len(survey.select_mode(mode)) for mode, words in modes}
    present = [f"{count:,} {words}" for words, count in counts.items() if count]
    if len(present) > 1:
        message = f"The masks are stored in different ways: {' and '.join(present)}."
        found.append(dataset_warning(message, "Check that equal values mean the same."))
    if transparent := sum(mask.transparent for mask in survey.masks):
        count = "1 mask has" if transparent == 1 else f"{transparent:,} masks have"
        message = f"{count} transparent pixels; their colors count like any other."
        found.append(dataset_warning(message, "Remove the alpha channel."))
    return found
