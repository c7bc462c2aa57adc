"""Random numbers for augmenting each sample: an affine map, a color matrix and others. Torch-free.

`RandomStreams` computes every number from (seed, epoch, sample) only, so that all strategies, any number of ranks and a
resumed run see the same images.

Coordinates range from -1 (left, top) to 1 (right, bottom), as in torch's `grid_sample` without `align_corners`. An
affine map is a matrix, float64 [n, 3, 3], that converts coordinates in the loaded image to coordinates in the model's
image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.augmentation import Transform, last_mosaic_epoch
from engine.data.randomness import Purpose, RandomStreams
from engine.data.splits import Labels

Numbers = npt.NDArray[np.float64]

TILES = 4
"""Number of images in a mosaic."""
LIGHT = (Transform("scale", (9 / 8, 9 / 8)), Transform("flip", (0.5,)))
"""Light augmentation for full images: a randomly placed square of 8/9 of the shorter side, possibly mirrored."""
FRAMING = ("resized_crop", "scale")
"""Transforms that choose the visible part of the image.

In a list with several of them, only the first one takes the original aspect ratio into account. Its result is square.
"""
MAX_OVERSAMPLING = 2.0
"""Maximum ratio of the side of loaded images to the side of the model's images.

At this ratio, `grid_sample` averages two pixels. Beyond it, pixels would be skipped.
"""
RATIO = (3 / 4, 4 / 3)
"""Range for the aspect ratio (width / height) of a resized crop (Szegedy et al. 2015, Going deeper, section 6)."""
CROP_ATTEMPTS = 10
"""Number of random resized crops that are tried before the center is used, as in torchvision's RandomResizedCrop."""
ERASED_AREA, ERASED_RATIO = (0.02, 0.33), (0.3, 3.3)
"""Ranges of the area of an erased rectangle, as a fraction of the image, and of its aspect ratio.

Sources: Zhong et al. 2017, Random erasing data augmentation, section 4.2, and torchvision's defaults.
"""
SIGMA = (0.1, 2.0)
"""Range for the standard deviation of a blur, in pixels (Chen et al. 2020, SimCLR, appendix A)."""
AFFINE, FORWARD, ERASED, BLURRED, COLOR = slice(0, 6), slice(6, 12), slice(12, 16), 16, 17
"""Columns of `Draws.numbers`.

AFFINE and FORWARD are the affine map from output to input and its inverse. ERASED is the erased rectangle (top, left,
bottom and right as fractions of the side). BLURRED is the sigma of the blur, or 0 for none. From COLOR on, there is a
matrix with an offset, [C, C + 1], if there are color transforms, and then the columns of rounds and chains.
"""

GRAY = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in a gray level (luma in ITU-R BT.601)."""
_TO_YIQ = np.array([GRAY, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)

PIXELWISE = ("brightness", "color", "contrast", "sharpness", "posterize", "solarize", "autocontrast", "equalize")
"""Operations that change the values of pixels but not their positions."""
_GEOMETRIC = ("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate")
OPERATIONS = (*_GEOMETRIC, *PIXELWISE)
"""Operations in TrivialAugment, RandAugment and AugMix. Their indices in this list identify them."""


@dataclass(frozen=True)
class _Policy:
    """Largest magnitude of each operation in TrivialAugment, RandAugment or AugMix, as in torchvision's tables.

    Rotations are in degrees. Translations are fractions of the image's side, or pixels if `pixels` is True. `enhance`
    is the magnitude for brightness, color, contrast and sharpness. `bits` are for posterize: the number of bits that
    remain at magnitude 0, and the largest number that is subtracted from it.
    """

    shear: float
    translate: float
    rotate: float
    enhance: float
    bits: tuple[float, float]
    pixels: bool = False


TRIVIAL = _Policy(0.99, 32.0, 135.0, 0.99, (8, 6), pixels=True)
"""Magnitudes of the operations in TrivialAugment Wide (Müller & Hutter 2021, table 1)."""
RAND = _Policy(0.3, 150 / 331, 30.0, 0.9, (8, 4))
"""Magnitudes of the operations in RandAugment (Cubuk et al. 2019) and AutoAugment."""
MIX = _Policy(0.3, 1 / 3, 30.0, 0.9, (4, 4))
"""Magnitudes of the operations in AugMix (Hendrycks et al. 2020)."""
BINS = 31
"""Number of magnitudes in TrivialAugment and RandAugment, from 0 to the largest."""
MIX_BINS = 10
MIX_CHAINS, MIX_DEPTH = 3, 3
"""Number of chains in AugMix, and largest number of operations in each (Hendrycks et al. 2020, algorithm 1)."""


@dataclass(frozen=True)
class OperationDraw:
    """Operation drawn for each sample of a batch, in one round of a policy such as RandAugment.

    A policy has one round for each operation that it applies to an image. `operations`, int64 [n], are indices in
    `OPERATIONS`. `column` is the column of `Draws.numbers` with the magnitudes.
    """

    operations: Labels
    column: int


@dataclass(frozen=True)
class Chain:
    """Chain of operations in AugMix: an affine map, followed by the operations in `rounds`.

    The map, from output to input, is in six columns of `Draws.numbers` starting at `column`. The next column holds the
    weight of the chain.
    """

    column: int
    rounds: tuple[OperationDraw, ...]


class Draws(NamedTuple):
    """Random numbers for augmenting a batch of n samples.

    Attributes:
        numbers: Random numbers of each image, float32 [n * tiles, columns]. The columns are described at `AFFINE`.
        tiles: Number of images per sample: more than 1 for a mosaic.
        blurred: Positions in the batch of the samples to blur.
        rounds: Operations of TrivialAugment and RandAugment, which are applied one after another.
        chains: Chains of operations of AugMix, whose results are mixed.
    """

    numbers: npt.NDArray[np.float32]
    tiles: int
    blurred: list[int]
    rounds: tuple[OperationDraw, ...]
    chains: tuple[Chain, ...]


class Augmentation:
    """Source of the random numbers that `transforms` need.

    `size` is the side of the model's images, `images` the number of images in the split, and `epochs` the number of
    epochs in the run. Images are mirrored only if `mirror` is True. All transforms of positions are composed into one
    affine map: first a mosaic, then the choice of the visible part (`FRAMING`), then the others in the order of the
    list. All transforms of colors are composed into one matrix. Policies, colors, blur and erasing are applied
    afterwards, in this order.
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
        # Transform that chooses the visible part of the image, or None.
        self.framing = next((each for each in allowed if each.name in FRAMING), None)
        # A mosaic discards earlier maps, so it comes first. It ignores aspects, since images with boxes are square. The
        # sort is stable, so the others remain in their order after the framing.
        self.transforms = sorted(allowed, key=lambda each: (each.name != "mosaic", each is not self.framing))
        self.streams, self.size, self.channels = streams, size, channels
        self._images = images
        names = {each.name for each in self.transforms}
        self._mosaic_until = last_mosaic_epoch(epochs) if "mosaic" in names else 0  # last epoch with mosaics
        self.has_colors, self.erases = bool(names & {"color", "hue", "gray"}), "erase" in names
        # Columns of `Draws.numbers` (see `AFFINE`): the first one of the policies, after the color matrix and its
        # offset, and the number of all columns.
        self.policies_from = COLOR + (channels * (channels + 1) if self.has_colors else 0)
        self.columns = self.policies_from + sum(map(_count_policy_columns, self.transforms))

    @property
    def max_tiles(self) -> int:
        """Largest number of images per sample in any epoch."""
        return TILES if self._mosaic_until else 1

    def tiles(self, epoch: int) -> int:
        """Return the number of images per sample in `epoch`, counted from 1."""
        return self.max_tiles if epoch <= self._mosaic_until else 1

    @property
    def oversampling(self) -> float:
        """Ratio of the side of loaded images to `size` at which the smallest crop remains sharp.

        It is at most `MAX_OVERSAMPLING`.
        """
        if self.framing is None:
            return 1.0
        smallest, largest = self.framing.numbers  # areas of a "resized_crop", or factors of a "scale"
        if self.framing.name == "resized_crop":
            return min(MAX_OVERSAMPLING, 1 / math.sqrt(smallest))
        # Stretching a 4:3 photo to a square reduces its longer side by the root of RATIO[0].
        return min(MAX_OVERSAMPLING, max(1.0, largest) / math.sqrt(RATIO[0]))

    def select_images(self, epoch: int, samples: Labels) -> Labels:
        """Return the indices of all images that a batch of `samples` [n] needs, as [n * tiles].

        Each sample is followed by the other images in its mosaic.
        """
        if self.tiles(epoch) == 1:
            return samples
        uniform = self.streams.draw(Purpose.PARTNERS, epoch, samples, TILES - 1)
        others = (uniform * self._images).astype(np.int64)
        return np.concatenate([samples[None], others]).T.ravel()

    def draw(self, epoch: int, samples: Labels, aspects: npt.NDArray[np.floating[Any]] | None = None) -> Draws:
        """Generate the random numbers for augmenting `samples` [n] in `epoch`.

        The rows of `Draws.numbers` are in the order that `select_images` returns. `aspects` [n] are the original aspect
        ratios (width divided by height) of images that were stretched to squares, or None if the images were not
        stretched.
        """
        return _BatchDraws(self, epoch, samples, aspects).generate()


class _BatchDraws:
    """Builder for the random numbers of one batch.

    It has one method for each transform, such as `_flip` for "flip". The method draws the random numbers of the
    transform. Its docstring describes the effect that these numbers have on the images later.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        epoch: int,
        samples: Labels,
        aspects: npt.NDArray[np.floating[Any]] | None,
    ) -> None:
        self._augmentation, self._count = augmentation, len(samples)
        self._aspects = np.ones(self._count) if aspects is None else aspects.astype(np.float64)
        self._tiles = augmentation.tiles(epoch)
        self._epoch, self._samples = epoch, samples
        self._transform_index = 0  # index of the transform whose numbers are drawn now
        # Affine maps from input to output, and the matrix and offset for the colors of each sample.
        self._affine = np.tile(np.eye(3), (self._count, self._tiles, 1, 1))
        self._matrix = np.tile(np.eye(augmentation.channels), (self._count, 1, 1))
        self._offset = np.zeros((self._count, augmentation.channels))
        self._erased = np.zeros((self._count, 4))  # top, left, bottom and right as fractions of the side
        self._sigma = np.zeros(self._count)  # of the blur, or 0 for none
        self._rounds: list[OperationDraw] = []
        self._chains: list[Chain] = []
        self._policy_columns: list[Numbers] = []  # columns from `policies_from` on, [n] each

    def generate(self) -> Draws:
        """Generate the random numbers of all transforms and return them. This can be called only once."""
        settings = self._augmentation
        for index, transform in enumerate(settings.transforms):
            if transform.name == "mosaic" and self._tiles == 1:
                continue  # the last epochs have no mosaics
            self._transform_index = index
            draw_transform = getattr(self, f"_{transform.name}")
            draw_transform(*transform.numbers)
        numbers = np.zeros((self._count, self._tiles, settings.columns), np.float32)
        numbers[..., AFFINE] = _flatten_affine(np.linalg.inv(self._affine))
        numbers[..., FORWARD] = _flatten_affine(self._affine)
        first_tiles = numbers[:, 0]  # the tiles of a mosaic differ only in their maps
        first_tiles[:, ERASED], first_tiles[:, BLURRED] = self._erased, self._sigma
        if settings.has_colors:
            matrices = np.concatenate([self._matrix, self._offset[..., None]], 2)  # [n, C, C + 1]
            first_tiles[:, COLOR : settings.policies_from] = matrices.reshape(
                self._count, settings.policies_from - COLOR
            )
        if self._policy_columns:
            first_tiles[:, settings.policies_from :] = np.stack(self._policy_columns, 1)
        blurred: list[int] = np.flatnonzero(self._sigma).tolist()
        flat = numbers.reshape(-1, settings.columns)
        return Draws(flat, self._tiles, blurred, tuple(self._rounds), tuple(self._chains))

    def _add_column(self, values: Numbers) -> int:
        """Append `values` [n], one for each sample, as a new column of the random numbers. Return its index."""
        self._policy_columns.append(values)
        return self._augmentation.policies_from + len(self._policy_columns) - 1

    def _draw_uniform(self, count: int) -> Numbers:
        """Return `count` uniform random numbers in [0, 1) for each of the n samples, [count, n].

        They depend on the position of the current transform in the job's list, so that a transform that is listed twice
        gets different numbers.
        """
        purpose, epoch = Purpose.AUGMENT, self._epoch
        return self._augmentation.streams.draw(purpose, epoch, self._samples, count, draw_index=self._transform_index)

    def _draw_uniform_between(self, low: float, high: float) -> Numbers:
        """Return a uniform random number between `low` and `high` for each sample, [n]."""
        return low + self._draw_uniform(1)[0] * (high - low)

    # Geometry

    def _compose(self, maps: Numbers) -> None:
        """Add affine `maps` [n, 3, 3] that are applied after the earlier transforms of positions."""
        self._affine = maps[:, None] @ self._affine

    def _mosaic(self, chance: float) -> None:
        """Choose the center of a mosaic of four full-size images, and store their affine maps.

        The probability of a mosaic is `chance`. Otherwise, the stored maps show only the first of the four. See Bochkovskiy et al. 2020, YOLOv4, figure 3. The
        range of the point is the same as in Ultralytics' Mosaic.
        """
        uniform = self._draw_uniform(3)
        shift_right, shift_down = uniform[0] - 0.5, uniform[1] - 0.5
        is_mosaic = uniform[2] < chance
        for tile, (column, row) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
            x, y = 2 * shift_right + (2 * column - 1), 2 * shift_down + (2 * row - 1)
            single_x = 0.0 if tile == 0 else 1e4  # without a mosaic, the other images are outside the output
            self._affine[:, tile] = shift(np.where(is_mosaic, x, single_x), np.where(is_mosaic, y, 0.0))

    def _resized_crop(self, smallest: float, largest: float) -> None:
        """Choose a random rectangle of the image and stretch it to the output, as torchvision's RandomResizedCrop does.

        Its area is a fraction of the image between `smallest` and `largest`. Area and aspect ratio are sampled up to
        `CROP_ATTEMPTS` times until the rectangle fits in the image. If it never fits, the largest centered rectangle
        with an aspect ratio within `RATIO` is used.
        """
        aspects = self._pop_aspects()
        uniform_x, uniform_y, *uniform = self._draw_uniform(2 + 2 * CROP_ATTEMPTS)
        areas = smallest + np.array(uniform[::2]) * (largest - smallest)
        ratios = np.exp(math.log(RATIO[0]) + np.array(uniform[1::2]) * math.log(RATIO[1] / RATIO[0]))
        widths, heights = np.sqrt(areas * ratios / aspects), np.sqrt(areas / ratios * aspects)
        is_inside = (widths <= 1) & (heights <= 1)
        first_inside = is_inside.argmax(0), np.arange(self._count)  # index of each image's first attempt that fits
        centered_ratio = np.clip(aspects, *RATIO)
        fits = is_inside.any(0)
        width = np.where(fits, widths[first_inside], np.minimum(1, centered_ratio / aspects))
        height = np.where(fits, heights[first_inside], np.minimum(1, aspects / centered_ratio))
        x = np.where(fits, (2 * uniform_x - 1) * (1 - width), 0)
        y = np.where(fits, (2 * uniform_y - 1) * (1 - height), 0)
        self._compose(stretch(1 / width, 1 / height) @ shift(-x, -y))

    def _scale(self, smallest: float, largest: float) -> None:
        """Scale the image by a random factor between `smallest` and `largest`, and place it at a random position.

        With factor 1, its shorter side fills the output. No more of the image is cut off, and no more of its
        surroundings is added, than necessary (as in torchvision's ScaleJitter with RandomCrop).
        """
        uniform_size, uniform_x, uniform_y = self._draw_uniform(3)
        factor = np.exp(math.log(smallest) + uniform_size * math.log(largest / smallest))
        aspects = self._pop_aspects()
        x_scale, y_scale = factor * np.maximum(aspects, 1), factor * np.maximum(1 / aspects, 1)
        x, y = (2 * uniform_x - 1) * np.abs(x_scale - 1), (2 * uniform_y - 1) * np.abs(y_scale - 1)
        self._compose(shift(x, y) @ stretch(x_scale, y_scale))

    def _pop_aspects(self) -> Numbers:
        """Return the aspect ratios [n] of the images and reset them to 1.

        After the first transform in `FRAMING`, the images are square.
        """
        aspects, self._aspects = self._aspects, np.ones(self._count)
        return aspects

    def _flip(self, chance: float) -> None:
        """Mirror each image horizontally with probability `chance`."""
        self._compose(stretch(np.where(self._draw_uniform(1)[0] < chance, -1.0, 1.0), np.ones(self._count)))

    def _vflip(self, chance: float) -> None:
        """Mirror each image vertically with probability `chance`."""
        self._compose(stretch(np.ones(self._count), np.where(self._draw_uniform(1)[0] < chance, -1.0, 1.0)))

    def _rotate(self, degrees: float) -> None:
        """Rotate each image by a random angle of at most `degrees` in either direction."""
        self._compose(rotate(self._draw_uniform_between(-degrees, degrees)))

    def _translate(self, fraction: float) -> None:
        """Move each image horizontally and vertically by a random part of its side, at most `fraction`."""
        right, down = (2 * self._draw_uniform(2) - 1) * 2 * fraction  # a side has the length 2
        self._compose(shift(right, down))

    def _shear(self, degrees: float) -> None:
        """Shear each image horizontally and vertically by random angles of at most `degrees`."""
        x_per_y, y_per_x = np.tan(np.radians((2 * self._draw_uniform(2) - 1) * degrees))
        self._compose(shear(x_per_y, y_per_x))

    # Color

    def _compose_colors(self, matrices: Numbers, offsets: Numbers | float = 0.0) -> None:
        """Add color `matrices` [n, C, C] and `offsets` [n] that are applied after the earlier transforms of colors."""
        self._offset = (matrices @ self._offset[..., None])[..., 0] + np.asarray(offsets)[..., None]
        self._matrix = matrices @ self._matrix

    def _color(self, amount: float) -> None:
        """Scale brightness, contrast and saturation by random factors from 1 - `amount` to 1 + `amount`.

        Contrast is scaled around the middle of the range, so that the transform is linear (as NVIDIA DALI's
        ColorTwist).
        """
        brightness, contrast, saturation = 1 + (2 * self._draw_uniform(3) - 1) * amount
        gain = brightness * contrast
        self._compose_colors(self._make_gray_mix(1 - saturation) * gain[:, None, None], 0.5 * (1 - contrast))

    def _hue(self, fraction: float) -> None:
        """Rotate colors around the gray axis in YIQ by up to `fraction` of a turn in either direction.

        NVIDIA DALI's `hue` does the same.
        """
        if self._augmentation.channels != 3:  # gray and multi-band images have no hue
            return
        angle = 2 * math.pi * self._draw_uniform_between(-fraction, fraction)
        rotation_matrix = np.tile(np.eye(3), (self._count, 1, 1))
        rotation_matrix[:, 1, 1] = rotation_matrix[:, 2, 2] = np.cos(angle)
        rotation_matrix[:, 1, 2], rotation_matrix[:, 2, 1] = -np.sin(angle), np.sin(angle)
        self._compose_colors(_FROM_YIQ @ rotation_matrix @ _TO_YIQ)

    def _gray(self, chance: float) -> None:
        """Convert each image to gray with probability `chance`."""
        self._compose_colors(self._make_gray_mix((self._draw_uniform(1)[0] < chance).astype(np.float64)))

    def _make_gray_mix(self, fraction: Numbers) -> Numbers:
        """Return matrices [n, C, C] that blend RGB colors with their gray level by `fraction` [n].

        Images with other numbers of channels are not changed.
        """
        channels = self._augmentation.channels
        plain = np.tile(np.eye(channels), (self._count, 1, 1))
        if channels != 3:
            return plain
        gray = np.broadcast_to(GRAY, (3, 3))
        mixed: Numbers = plain + fraction[:, None, None] * (gray - plain)
        return mixed

    def _blur(self, chance: float) -> None:
        """Draw the standard deviation of each image's blur into `_sigma`. It is 0 with probability 1 - `chance`."""
        uniform, uniform_sigma = self._draw_uniform(2)
        self._sigma = np.where(uniform < chance, SIGMA[0] + uniform_sigma * (SIGMA[1] - SIGMA[0]), 0)

    def _erase(self, chance: float) -> None:
        """Choose a rectangle to erase in each image with probability `chance`, and store it as `_erased`."""
        uniform, uniform_area, uniform_ratio, uniform_x, uniform_y = self._draw_uniform(5)
        area = ERASED_AREA[0] + uniform_area * (ERASED_AREA[1] - ERASED_AREA[0])
        ratio = np.exp(math.log(ERASED_RATIO[0]) + uniform_ratio * math.log(ERASED_RATIO[1] / ERASED_RATIO[0]))
        ratio = np.clip(ratio, area, 1 / area)  # neither side may be longer than that of the image
        height, width = np.sqrt(area * ratio), np.sqrt(area / ratio)
        top, left = uniform_y * (1 - height), uniform_x * (1 - width)
        rectangle = np.stack([top, left, top + height, left + width], 1)
        self._erased = np.where((uniform < chance)[:, None], rectangle, 0)

    # Policies

    def _trivial(self) -> None:
        """Select one operation and its magnitude at random for each sample (TrivialAugment)."""
        uniform, uniform_magnitude, sign = self._draw_uniform(3)
        fraction = np.floor(uniform_magnitude * BINS) / (BINS - 1)
        self._add_round(_choose_operations(uniform), TRIVIAL, fraction, sign)

    def _randaugment(self, operations: float, magnitude: float) -> None:
        """Select a number of `operations` at random for each sample, all with the same `magnitude` (RandAugment)."""
        drawn = self._draw_uniform(2 * int(operations))
        fraction = np.full(self._count, magnitude / (BINS - 1))
        for uniform, sign in zip(drawn[::2], drawn[1::2], strict=True):
            self._add_round(_choose_operations(uniform), RAND, fraction, sign)

    def _augmix(self, severity: float) -> None:
        """Select the chains of operations for AugMix and their weights at random.

        `severity` is the number of magnitudes to choose from, starting with the smallest of `MIX_BINS`. The Dirichlet
        and beta distributions have a parameter of 1, as in the paper. The weights can therefore be computed from
        normalized exponential numbers and a uniform number.
        """
        # A number for the mixture, then for each chain: its weight, its depth, and three numbers for each operation.
        per_chain = 2 + 3 * MIX_DEPTH
        drawn = self._draw_uniform(1 + MIX_CHAINS * per_chain)
        mixture, by_chain = drawn[0], drawn[1:].reshape(MIX_CHAINS, per_chain, self._count)
        weights = -np.log1p(-by_chain[:, 0])
        weights *= mixture / np.maximum(weights.sum(0), 1e-12)
        for weight, depth, of_operations in zip(weights, by_chain[:, 1], by_chain[:, 2:], strict=True):
            affine, rounds = np.tile(np.eye(3), (self._count, 1, 1)), []
            for step, numbers in enumerate(of_operations.reshape(MIX_DEPTH, 3, self._count)):
                uniform, uniform_magnitude, sign = numbers
                without_identity = 1 + (uniform * (len(OPERATIONS) - 1)).astype(np.int64)
                operations = np.where(step <= depth * MIX_DEPTH, without_identity, 0)  # 0 is the identity
                fraction = np.floor(uniform_magnitude * severity) / (MIX_BINS - 1)
                magnitudes = self._compute_magnitudes(operations, MIX, fraction, sign)
                affine = _make_affine_maps(operations, magnitudes) @ affine
                rounds.append(OperationDraw(operations, self._add_column(magnitudes)))
            # The map and the weight are stored in seven consecutive columns.
            columns = [self._add_column(values) for values in (*_flatten_affine(np.linalg.inv(affine)).T, weight)]
            self._chains.append(Chain(columns[0], tuple(rounds)))

    def _compute_magnitudes(self, operations: Labels, policy: _Policy, fraction: Numbers, sign: Numbers) -> Numbers:
        """Return the magnitudes [n] of `operations` [n]: the largest magnitudes in `policy` times `fraction` [n].

        Operations that work in two directions get a negative magnitude if `sign` [n] is below 0.5.
        """
        translate = policy.translate / self._augmentation.size if policy.pixels else policy.translate
        largest = {
            "shear_x": policy.shear, "shear_y": policy.shear, "translate_x": translate, "translate_y": translate,
            "rotate": policy.rotate, "brightness": policy.enhance, "color": policy.enhance, "contrast": policy.enhance,
            "sharpness": policy.enhance,
        }  # fmt: skip
        unsigned = np.array([largest.get(name, 0.0) for name in OPERATIONS])[operations] * fraction
        magnitudes = np.where(sign < 0.5, -unsigned, unsigned)
        bits = np.round(policy.bits[0] - fraction * policy.bits[1])
        magnitudes = np.where(operations == OPERATIONS.index("posterize"), bits, magnitudes)
        return np.where(operations == OPERATIONS.index("solarize"), 1 - fraction, magnitudes)

    def _add_round(self, operations: Labels, policy: _Policy, fraction: Numbers, sign: Numbers) -> None:
        """Add one operation for each sample (see `_compute_magnitudes` for the arguments).

        The affine map of a geometric operation is composed with the others. Other operations are added as a round.
        """
        magnitudes = self._compute_magnitudes(operations, policy, fraction, sign)
        self._compose(_make_affine_maps(operations, magnitudes))
        self._rounds.append(OperationDraw(operations, self._add_column(magnitudes)))


def _choose_operations(uniform: Numbers) -> Labels:
    """Convert uniform random numbers in [0, 1) to indices in `OPERATIONS`."""
    return (uniform * len(OPERATIONS)).astype(np.int64)


def _make_affine_maps(operations: Labels, magnitudes: Numbers) -> Numbers:
    """Return the affine map of each operation, [n, 3, 3].

    It is the identity for operations that don't move pixels.
    """
    parameters = [np.where(operations == number, magnitudes, 0.0) for number in range(len(_GEOMETRIC))]
    _, shear_x, shear_y, right, down, degrees = parameters
    maps: Numbers = shear(shear_x, shear_y) @ shift(2 * right, 2 * down) @ rotate(degrees)
    return maps


def _flatten_affine(maps: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Return the first two rows of matrices [..., 3, 3] as [..., 6]."""
    return maps[..., :2, :].reshape(*maps.shape[:-2], 6)


def _count_policy_columns(transform: Transform) -> int:
    """Return the number of columns of random numbers that a transform needs for rounds and chains of operations."""
    if transform.name == "randaugment":
        return int(transform.numbers[0])
    return {"trivial": 1, "augmix": MIX_CHAINS * (MIX_DEPTH + 7)}.get(transform.name, 0)


def shift(right: Numbers, down: Numbers) -> Numbers:
    """Return matrices, [n, 3, 3], that move images by `right` [n] and `down` [n].

    In these coordinates, an image has a side of 2.
    """
    maps = np.tile(np.eye(3), (len(right), 1, 1))
    maps[:, 0, 2], maps[:, 1, 2] = right, down
    return maps


def stretch(horizontal: Numbers, vertical: Numbers) -> Numbers:
    """Return matrices, [n, 3, 3], that scale images by the factors `horizontal` [n] and `vertical` [n]."""
    maps = np.tile(np.eye(3), (len(horizontal), 1, 1))
    maps[:, 0, 0], maps[:, 1, 1] = horizontal, vertical
    return maps


def rotate(degrees: Numbers) -> Numbers:
    """Return matrices, [n, 3, 3], that rotate images clockwise by `degrees` [n]."""
    maps = np.tile(np.eye(3), (len(degrees), 1, 1))
    angle = np.radians(degrees)
    maps[:, 0, 0] = maps[:, 1, 1] = np.cos(angle)
    maps[:, 0, 1], maps[:, 1, 0] = -np.sin(angle), np.sin(angle)
    return maps


def shear(horizontal: Numbers, vertical: Numbers) -> Numbers:
    """Return shear matrices, [n, 3, 3].

    They move a point horizontally by `horizontal` [n] times its y, and vertically by `vertical` [n] times its x.
    """
    maps = np.tile(np.eye(3), (len(horizontal), 1, 1))
    maps[:, 0, 1], maps[:, 1, 0] = horizontal, vertical
    return maps


def draw_crops(margin: int, streams: RandomStreams, epoch: int, samples: Labels, *, mirror: bool) -> Labels:
    """Choose random crops for the light augmentation, int64 [n, 3], with the columns top, left, and 1 if mirrored.

    `margin` is the largest value of top and left, in pixels.
    """
    uniform = streams.draw(Purpose.CROP, epoch, samples, 3).T
    crops = (uniform * (margin + 1)).astype(np.int64)
    crops[:, 2] = uniform[:, 2] < 0.5 if mirror else 0
    return crops
