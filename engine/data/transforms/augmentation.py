"""The random numbers of an augmentation for each sample: an affine map, a colour matrix and the rest. Torch-free.

Every number is drawn by `RandomStreams` from (seed, epoch, sample) alone, so that all strategies, any number of ranks
and a run that goes on see the same images.

Points of an image have coordinates from -1 (left, top) to 1 (right, bottom), as torch's `grid_sample` has them without
`align_corners`; an affine map is float64 [n, 3, 3] from the loaded image to what the model is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.augmentation import Transform, mosaic_ends
from engine.data.randomness import Purpose, RandomStreams
from engine.data.splits import Labels

Numbers = npt.NDArray[np.float64]

TILES = 4
"""Images that a mosaic is put together of."""
LIGHT = (Transform("scale", (9 / 8, 9 / 8)), Transform("flip", (0.5,)))
"""The light augmentation of whole images: a square of 8/9 of the shorter side, anywhere, and a mirror image."""
FRAMING = ("resized_crop", "scale")
"""Transforms that choose which part of an image is seen; the first of them takes it from the whole original image."""
MAX_OVERSAMPLING = 2.0
"""Side of loaded images over that of the model's at most: `grid_sample` averages two pixels at this factor, and beyond
it would skip some."""
RATIO = (3 / 4, 4 / 3)
"""Width to height of a resized crop (Szegedy et al. 2015, Going deeper with convolutions, section 6)."""
CROP_ATTEMPTS = 10
"""Draws of a resized crop before the center is taken, as in torchvision's and timm's RandomResizedCrop."""
ERASED_AREA, ERASED_RATIO = (0.02, 0.33), (0.3, 3.3)
"""Of what is erased (Zhong et al. 2017, Random erasing data augmentation, section 4.2, and torchvision's defaults)."""
SIGMA = (0.1, 2.0)
"""Of a blur, in pixels (Chen et al. 2020, A simple framework for contrastive learning, appendix A)."""
AFFINE, FORWARD, ERASED, BLURRED, COLOUR = slice(0, 6), slice(6, 12), slice(12, 16), 16, 17
"""The columns of a sample's numbers: the affine map from output to input, its inverse, what is erased (top, left,
bottom, right as shares of the side), the sigma of its blur (0 for none); then, where there is any colour, a matrix
and an offset [C, C + 1]; then those that rounds and chains name."""

GREY = np.array([0.299, 0.587, 0.114])
"""The weights of luma (ITU-R BT.601)."""
_TO_YIQ = np.array([GREY, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)

PIXELWISE = ("brightness", "colour", "contrast", "sharpness", "posterize", "solarize", "autocontrast", "equalize")
"""Operations of the policies that change what pixels hold, not where they are."""
_MOVING = ("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate")
OPERATIONS = (*_MOVING, *PIXELWISE)
"""Those of TrivialAugment, RandAugment and AugMix, by their number."""


@dataclass(frozen=True)
class _Policy:
    """The largest magnitude of each operation, in degrees, in shares, in shares of the side or in bits kept, as
    torchvision's tables have them; translations in pixels where `pixels`.
    """

    shear: float
    translate: float
    rotate: float
    enhance: float
    bits: tuple[float, float]
    pixels: bool = False


TRIVIAL = _Policy(0.99, 32.0, 135.0, 0.99, (8, 6), pixels=True)
"""TrivialAugment Wide (Müller & Hutter 2021, table 1)."""
RAND = _Policy(0.3, 150 / 331, 30.0, 0.9, (8, 4))
"""RandAugment (Cubuk et al. 2019), whose magnitudes are AutoAugment's."""
MIX = _Policy(0.3, 1 / 3, 30.0, 0.9, (4, 4))
"""AugMix (Hendrycks et al. 2020)."""
BINS = 31
"""Magnitudes from none to the largest."""
MIX_BINS = 10
MIX_CHAINS, MIX_DEPTH = 3, 3
"""Chains that AugMix mixes, and the most operations in each (Hendrycks et al. 2020, algorithm 1)."""


@dataclass(frozen=True)
class Round:
    """One operation for each sample: its number in `OPERATIONS`, int64 [n], and the column of the magnitudes."""

    operations: Labels
    column: int


@dataclass(frozen=True)
class Chain:
    """Of AugMix: an affine map from output to input in the six columns from `column` on, then the operations one
    after another; the column after the map holds the weight of what comes out.
    """

    column: int
    rounds: tuple[Round, ...]


class Drawn(NamedTuple):
    """The random numbers of a batch: `numbers`, float32 [n * tiles, columns], go to the device; the rest decides which
    kernels run. `blurred` are the samples to blur.
    """

    numbers: npt.NDArray[np.float32]
    tiles: int
    blurred: list[int]
    rounds: tuple[Round, ...]
    chains: tuple[Chain, ...]


class Augmentation:
    """Draws the `transforms` of images with so many `channels`, of a split of `images`, in a run of `epochs`.

    Geometry is composed into one affine map: first a mosaic, then the part of the image that is seen (`FRAMING`), then
    the rest in the order of the list. Colour is composed into one matrix; then come the policies, the colours, the blur and the
    erasing. Mirror images are drawn if `mirror`.
    """

    def __init__(
        self,
        transforms: Sequence[Transform],
        streams: RandomStreams,
        *,
        size: int,
        channels: int,
        images: int,
        epochs: int,
        mirror: bool,
    ) -> None:
        allowed = [each for each in transforms if mirror or each.name not in ("flip", "vflip")]
        self.framing = next((each for each in allowed if each.name in FRAMING), None)
        # A mosaic discards earlier maps, so it comes first; images with boxes are square, so it needs no aspects.
        self.transforms = sorted(allowed, key=lambda each: (each.name != "mosaic", each is not self.framing))
        self.streams, self.size, self.channels = streams, size, channels
        self._images = images
        names = {each.name for each in self.transforms}
        self._mosaic_until = mosaic_ends(epochs) if "mosaic" in names else 0
        self.colours, self.erases = bool(names & {"colour", "hue", "grey"}), "erase" in names
        self.policies_from = COLOUR + (channels * (channels + 1) if self.colours else 0)
        self.columns = self.policies_from + sum(map(_policy_columns, self.transforms))

    @property
    def most_tiles(self) -> int:
        """Images that one sample may be made of."""
        return TILES if self._mosaic_until else 1

    def tiles(self, epoch: int) -> int:
        """Images that a sample of `epoch`, from 1 on, is made of."""
        return self.most_tiles if epoch <= self._mosaic_until else 1

    @property
    def oversampling(self) -> float:
        """Ratio of the loaded side to `size` that keeps the smallest crop sharp, at most `MAX_OVERSAMPLING`."""
        if self.framing is None:
            return 1.0
        low, high = self.framing.numbers
        if self.framing.name == "resized_crop":
            return min(MAX_OVERSAMPLING, 1 / math.sqrt(low))
        # Stretching a photo of 4:3 to a square costs its longer side this much.
        return min(MAX_OVERSAMPLING, max(1.0, high) / math.sqrt(RATIO[0]))

    def partners(self, epoch: int, samples: Labels) -> Labels:
        """The samples [n * tiles] that those of a batch [n] are made of, each followed by its others."""
        if self.tiles(epoch) == 1:
            return samples
        drawn = self.streams.draw(Purpose.PARTNERS, epoch, samples, TILES - 1)
        others = (drawn * self._images).astype(np.int64)
        return np.concatenate([samples[None], others]).T.ravel()

    def draw(self, epoch: int, samples: Labels, aspects: npt.NDArray[np.floating[Any]] | None = None) -> Drawn:
        """Draw the numbers for `samples` [n] in `epoch`; rows of `numbers` are in the order of `partners`.

        `aspects` [n] are the widths over heights of whole images that were stretched to squares; None for images that
        are squares.
        """
        return _Drawing(self, epoch, samples, aspects).drawn()


class _Drawing:
    """The draws of one batch."""

    def __init__(
        self, of: Augmentation, epoch: int, samples: Labels, aspects: npt.NDArray[np.floating[Any]] | None
    ) -> None:
        self._of, self._count = of, len(samples)
        self._aspects = np.ones(self._count) if aspects is None else aspects.astype(np.float64)
        self._tiles = of.tiles(epoch)
        self._epoch, self._samples = epoch, samples
        self._batch_index = 0
        self._affine = np.tile(np.eye(3), (self._count, self._tiles, 1, 1))
        self._matrix = np.tile(np.eye(of.channels), (self._count, 1, 1))
        self._offset = np.zeros((self._count, of.channels))
        self._erased = np.zeros((self._count, 4))
        self._sigma = np.zeros(self._count)
        self._rounds: list[Round] = []
        self._chains: list[Chain] = []
        self._policies: list[Numbers] = []

    def drawn(self) -> Drawn:
        of = self._of
        for self._batch_index, transform in enumerate(of.transforms):
            if transform.name != "mosaic" or self._tiles > 1:
                _DRAW[transform.name](self, *transform.numbers)
        numbers = np.zeros((self._count, self._tiles, of.columns), np.float32)
        numbers[..., AFFINE] = _six(np.linalg.inv(self._affine))
        numbers[..., FORWARD] = _six(self._affine)
        first = numbers[:, 0]
        first[:, ERASED], first[:, BLURRED] = self._erased, self._sigma
        if of.colours:
            matrix = np.concatenate([self._matrix, self._offset[..., None]], 2)
            first[:, COLOUR : of.policies_from] = matrix.reshape(first[:, COLOUR : of.policies_from].shape)
        if self._policies:
            first[:, of.policies_from :] = np.stack(self._policies, 1)
        blurred: list[int] = np.flatnonzero(self._sigma).tolist()
        flat = numbers.reshape(-1, of.columns)
        return Drawn(flat, self._tiles, blurred, tuple(self._rounds), tuple(self._chains))

    def _column(self, values: Numbers) -> int:
        """The column that `values` [n] get."""
        self._policies.append(values)
        return self._of.policies_from + len(self._policies) - 1

    def _uniform(self, count: int) -> Numbers:
        """[count, n] from 0 to below 1, other ones for each transform of the list."""
        purpose, epoch = Purpose.AUGMENT, self._epoch
        return self._of.streams.draw(purpose, epoch, self._samples, count, part=self._batch_index)

    def _between(self, low: float, high: float) -> Numbers:
        """[n]"""
        return low + self._uniform(1)[0] * (high - low)

    # Geometry

    def _then(self, maps: Numbers) -> None:
        """Has `maps` [n, 3, 3] follow upon what was drawn so far."""
        self._affine = maps[:, None] @ self._affine

    def _mosaic(self, chance: float) -> None:
        """Four images around a point, each as large as it was, in any quarter of the middle (Bochkovskiy et al. 2020,
        YOLOv4, figure 3; the middle's extent as in Ultralytics' Mosaic).
        """
        drawn = self._uniform(3)
        across, down = drawn[0] - 0.5, drawn[1] - 0.5
        is_mosaic = drawn[2] < chance
        for tile, (right, below) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
            x, y = 2 * across + (2 * right - 1), 2 * down + (2 * below - 1)
            away = 0.0 if tile == 0 else 1e4  # where there is no mosaic the others are out of sight
            self._affine[:, tile] = shift(np.where(is_mosaic, x, away), np.where(is_mosaic, y, 0.0))

    def _resized_crop(self, least: float, most: float) -> None:
        """Draw a random part of the image and stretch it to the output, as torchvision does.

        Uses the first of `CROP_ATTEMPTS` draws of area and ratio whose sides both fit in the image; if none fits, the
        largest centered part whose ratio is within `RATIO`.
        """
        aspects = self._take_aspects()
        right, down, *attempts = self._uniform(2 + 2 * CROP_ATTEMPTS)
        shares = least + np.array(attempts[::2]) * (most - least)
        ratios = np.exp(math.log(RATIO[0]) + np.array(attempts[1::2]) * math.log(RATIO[1] / RATIO[0]))
        widths, heights = np.sqrt(shares * ratios / aspects), np.sqrt(shares / ratios * aspects)
        fits = (widths <= 1) & (heights <= 1)
        chosen = fits.argmax(0), np.arange(self._count)
        ratio = np.clip(aspects, *RATIO)
        found = fits.any(0)
        width = np.where(found, widths[chosen], np.minimum(1, ratio / aspects))
        height = np.where(found, heights[chosen], np.minimum(1, aspects / ratio))
        x = np.where(found, (2 * right - 1) * (1 - width), 0)
        y = np.where(found, (2 * down - 1) * (1 - height), 0)
        self._then(stretch(1 / width, 1 / height) @ shift(-x, -y))

    def _scale(self, least: float, most: float) -> None:
        """Scale the image, whose shorter side fills the output at factor 1, and place it at random.

        No more of the image is left out, or of what surrounds it let in, than necessary (as torchvision's ScaleJitter
        with RandomCrop).
        """
        size, right, down = self._uniform(3)
        factor = np.exp(math.log(least) + size * math.log(most / least))
        aspects = self._take_aspects()
        x_scale, y_scale = factor * np.maximum(aspects, 1), factor * np.maximum(1 / aspects, 1)
        x, y = (2 * right - 1) * np.abs(x_scale - 1), (2 * down - 1) * np.abs(y_scale - 1)
        self._then(shift(x, y) @ stretch(x_scale, y_scale))

    def _take_aspects(self) -> Numbers:
        """Return the aspect ratios [n] of the images and reset them to 1: the output of framing is square."""
        aspects, self._aspects = self._aspects, np.ones(self._count)
        return aspects

    def _flip(self, chance: float) -> None:
        self._then(stretch(np.where(self._uniform(1)[0] < chance, -1.0, 1.0), np.ones(self._count)))

    def _vflip(self, chance: float) -> None:
        self._then(stretch(np.ones(self._count), np.where(self._uniform(1)[0] < chance, -1.0, 1.0)))

    def _rotate(self, degrees: float) -> None:
        self._then(rotation(self._between(-degrees, degrees)))

    def _translate(self, share: float) -> None:
        right, down = (2 * self._uniform(2) - 1) * 2 * share  # a side is 2 long
        self._then(shift(right, down))

    def _shear(self, degrees: float) -> None:
        across, down = np.tan(np.radians((2 * self._uniform(2) - 1) * degrees))
        self._then(shearing(across, down))

    # Colour

    def _tint(self, matrices: Numbers, offsets: Numbers | float = 0.0) -> None:
        """Has colours go by `matrices` [n, C, C] and `offsets` [n] after what was drawn so far."""
        self._offset = (matrices @ self._offset[..., None])[..., 0] + np.asarray(offsets)[..., None]
        self._matrix = matrices @ self._matrix

    def _colour(self, amount: float) -> None:
        """Brightness, contrast and saturation, each by a factor of 1 - amount to 1 + amount. Contrast is about the
        middle of the scale, so that all is linear (as NVIDIA DALI's ColorTwist).
        """
        brightness, contrast, saturation = 1 + (2 * self._uniform(3) - 1) * amount
        gain = brightness * contrast
        self._tint(self._greyed(1 - saturation) * gain[:, None, None], 0.5 * (1 - contrast))

    def _hue(self, share: float) -> None:
        """Turns colours around grey in YIQ, as DALI does."""
        if self._of.channels != 3:
            return
        angle = 2 * math.pi * self._between(-share, share)
        turn = np.tile(np.eye(3), (self._count, 1, 1))
        turn[:, 1, 1] = turn[:, 2, 2] = np.cos(angle)
        turn[:, 1, 2], turn[:, 2, 1] = -np.sin(angle), np.sin(angle)
        self._tint(_FROM_YIQ @ turn @ _TO_YIQ)

    def _grey(self, chance: float) -> None:
        self._tint(self._greyed((self._uniform(1)[0] < chance).astype(np.float64)))

    def _greyed(self, share: Numbers) -> Numbers:
        """Matrices [n, C, C] that take colours so far to grey; only three channels are colours."""
        channels = self._of.channels
        plain = np.tile(np.eye(channels), (self._count, 1, 1))
        if channels != 3:
            return plain
        grey = np.broadcast_to(GREY, (3, 3))
        mixed: Numbers = plain + share[:, None, None] * (grey - plain)
        return mixed

    def _blur(self, chance: float) -> None:
        happens, sigma = self._uniform(2)
        self._sigma = np.where(happens < chance, SIGMA[0] + sigma * (SIGMA[1] - SIGMA[0]), 0)

    def _erase(self, chance: float) -> None:
        happens, area, form, right, down = self._uniform(5)
        share = ERASED_AREA[0] + area * (ERASED_AREA[1] - ERASED_AREA[0])
        ratio = np.exp(math.log(ERASED_RATIO[0]) + form * math.log(ERASED_RATIO[1] / ERASED_RATIO[0]))
        ratio = np.clip(ratio, share, 1 / share)
        height, width = np.sqrt(share * ratio), np.sqrt(share / ratio)
        top, left = down * (1 - height), right * (1 - width)
        window = np.stack([top, left, top + height, left + width], 1)
        self._erased = np.where((happens < chance)[:, None], window, 0)

    # Policies

    def _trivial(self) -> None:
        """One operation of any magnitude."""
        chosen, magnitude, sign = self._uniform(3)
        self._moved_and_kept(self._operations(chosen), TRIVIAL, np.floor(magnitude * BINS) / (BINS - 1), sign)

    def _randaugment(self, operations: float, magnitude: float) -> None:
        drawn = self._uniform(2 * int(operations))
        share = np.full(self._count, magnitude / (BINS - 1))
        for chosen, sign in zip(drawn[::2], drawn[1::2], strict=True):
            self._moved_and_kept(self._operations(chosen), RAND, share, sign)

    def _augmix(self, severity: float) -> None:
        """Dirichlet and beta distributions with a parameter of 1, as in the paper: exponential draws over their sum,
        and even ones.
        """
        each = 2 + 3 * MIX_DEPTH
        drawn = self._uniform(1 + MIX_CHAINS * each)
        weights = -np.log1p(-drawn[1::each])
        weights *= drawn[0] / np.maximum(weights.sum(0), 1e-12)
        for number, weight in enumerate(weights):
            depth, *rest = drawn[2 + number * each : 1 + (number + 1) * each]
            affine, rounds = np.tile(np.eye(3), (self._count, 1, 1)), []
            for step in range(MIX_DEPTH):
                chosen, magnitude, sign = rest[3 * step : 3 * step + 3]
                picked = 1 + (chosen * (len(OPERATIONS) - 1)).astype(np.int64)  # all but the identity
                operations = np.where(step <= depth * MIX_DEPTH, picked, 0)
                share = np.floor(magnitude * severity) / (MIX_BINS - 1)
                magnitudes = self._magnitudes(operations, MIX, share, sign)
                affine = _moving(operations, magnitudes) @ affine
                rounds.append(Round(operations, self._column(magnitudes)))
            columns = [self._column(values) for values in (*_six(np.linalg.inv(affine)).T, weight)]
            self._chains.append(Chain(columns[0], tuple(rounds)))

    def _operations(self, chosen: Numbers) -> Labels:
        return (chosen * len(OPERATIONS)).astype(np.int64)

    def _magnitudes(self, operations: Labels, policy: _Policy, share: Numbers, sign: Numbers) -> Numbers:
        """A `share` of the largest, either way where an operation has two."""
        translate = policy.translate / self._of.size if policy.pixels else policy.translate
        most = {
            "shear_x": policy.shear, "shear_y": policy.shear, "translate_x": translate, "translate_y": translate,
            "rotate": policy.rotate, "brightness": policy.enhance, "colour": policy.enhance, "contrast": policy.enhance,
            "sharpness": policy.enhance,
        }  # fmt: skip
        either = np.array([most.get(name, 0.0) for name in OPERATIONS])[operations] * share
        magnitudes = np.where(sign < 0.5, -either, either)
        bits = np.round(policy.bits[0] - share * policy.bits[1])
        magnitudes = np.where(operations == OPERATIONS.index("posterize"), bits, magnitudes)
        return np.where(operations == OPERATIONS.index("solarize"), 1 - share, magnitudes)

    def _moved_and_kept(self, operations: Labels, policy: _Policy, share: Numbers, sign: Numbers) -> None:
        """An operation that moves pixels is one more affine map."""
        magnitudes = self._magnitudes(operations, policy, share, sign)
        self._then(_moving(operations, magnitudes))
        self._rounds.append(Round(operations, self._column(magnitudes)))


def _moving(operations: Labels, magnitudes: Numbers) -> Numbers:
    """The affine maps of operations [n], the identity for what moves nothing."""
    here = [np.where(operations == number, magnitudes, 0.0) for number in range(len(_MOVING))]
    _, shear_x, shear_y, right, down, degrees = here
    moved: Numbers = shearing(shear_x, shear_y) @ shift(2 * right, 2 * down) @ rotation(degrees)
    return moved


def _six(maps: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """The first two rows of maps [..., 3, 3], as [..., 6]."""
    return maps[..., :2, :].reshape(*maps.shape[:-2], 6)


def _policy_columns(transform: Transform) -> int:
    """How many columns a transform's rounds and chains need."""
    if transform.name == "randaugment":
        return int(transform.numbers[0])
    return {"trivial": 1, "augmix": MIX_CHAINS * (MIX_DEPTH + 7)}.get(transform.name, 0)


_DRAW: dict[str, Callable[..., None]] = {
    name: getattr(_Drawing, f"_{name}")
    for name in (
        "mosaic", "resized_crop", "scale", "flip", "vflip", "rotate", "translate", "shear", "colour", "hue", "grey", "blur",
        "erase", "trivial", "randaugment", "augmix",
    )
}  # fmt: skip


def shift(right: Numbers, down: Numbers) -> Numbers:
    """[n, 3, 3]"""
    maps = np.tile(np.eye(3), (len(right), 1, 1))
    maps[:, 0, 2], maps[:, 1, 2] = right, down
    return maps


def stretch(across: Numbers, down: Numbers) -> Numbers:
    """[n, 3, 3]"""
    maps = np.tile(np.eye(3), (len(across), 1, 1))
    maps[:, 0, 0], maps[:, 1, 1] = across, down
    return maps


def rotation(degrees: Numbers) -> Numbers:
    """[n, 3, 3], clockwise as it is seen, rows running downwards."""
    maps = np.tile(np.eye(3), (len(degrees), 1, 1))
    angle = np.radians(degrees)
    maps[:, 0, 0] = maps[:, 1, 1] = np.cos(angle)
    maps[:, 0, 1], maps[:, 1, 0] = -np.sin(angle), np.sin(angle)
    return maps


def shearing(across: Numbers, down: Numbers) -> Numbers:
    """[n, 3, 3] of slopes."""
    maps = np.tile(np.eye(3), (len(across), 1, 1))
    maps[:, 0, 1], maps[:, 1, 0] = across, down
    return maps
