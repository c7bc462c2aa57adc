"""Masks of which one value is to be of no class."""

from __future__ import annotations

import os
from dataclasses import replace

from engine.data.masks import learn_meaning
from engine.data.opening import Splits
from engine.data.pictures import MaskedPictures


def without_value(splits: Splits, value: int) -> Splits:
    """`splits` of masks whose pixels of `value` are neither learnt nor measured; a class that it stood for is gone.

    Raises ValueError, with the reason, where fewer than two classes are left.
    """
    assert isinstance(splits.train, MaskedPictures)
    assert isinstance(splits.val, MaskedPictures)
    folders = {os.path.dirname(mask): None for split in (splits.train, splits.val) for mask in split.beside[:1]}
    places = [place for folder in folders for place in (os.path.dirname(folder), folder)]
    meaning = learn_meaning(splits.train.folder, splits.train.beside, places, ignored=value)
    if meaning.code is None or len(meaning.classes) < 2:
        raise ValueError(meaning.trouble.rstrip(".").lower() or f"the only class is {meaning.classes[0]}")
    train, val = splits.train.told_by(meaning.code), splits.val.told_by(meaning.code)
    return replace(splits, classes=meaning.classes, train=train, val=val)
