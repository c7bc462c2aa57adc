"""Loader for batches of images, which are cropped, augmented and normalized on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.augmentation import Transform
from engine.contract.dataset import crop_margin
from engine.contract.events import Part
from engine.data.cache.cache_policy import OnChosen
from engine.data.cache.cache_space import format_bytes
from engine.data.datasets.images import ImageSet
from engine.data.decoding.reading import silence_pillow
from engine.data.loading.base_loader import Batch, Finish, Loader
from engine.data.loading.decode_pool import ImageSource
from engine.data.loading.prefetch import StagedBatch
from engine.data.loading.sampler import GlobalBatchSampler, RankSamples
from engine.data.loading.staging import CROP, SAMPLE, DeviceSlot, Slot
from engine.data.splits import Labels
from engine.data.transforms.augmentation import FORWARD, LIGHT, Augmentation, Draws, draw_crops
from engine.data.transforms.device_transforms import (
    AffinePlacement,
    CropPlacement,
    Normalization,
    Placement,
    ResizePlacement,
    Transforms,
    crop,
)

UPLOAD_FRACTION = 8
"""Minimum ratio of a GPU's free memory to the size of a split that is uploaded.

The cache in main memory is limited by the same ratio.
"""
INLINE_BYTES = 4 << 20
"""Maximum size in bytes of a batch that the caller's thread reads on the CPU once all images are decoded.

This takes at most 0.2% of the step of a small network, whereas a background thread would compete with the step.
"""


class BatchLoader(Loader[Slot]):
    """Loader that yields the batches of one split of images, epoch by epoch.

    Pixels are transferred as uint8, and cropped and normalized on the device. Once all images are decoded, small
    batches are assembled in the caller's thread, which is faster. A split that needs only a small part of a GPU's
    memory is then uploaded completely.

    An unreadable image is reported once. In training (`sampler.shuffle`) it is replaced with the next readable image of
    the split. In validation it is left out.

    Args:
        images: The split.
        sampler: Sampler that chooses this rank's images for each batch.
        size: Side of the model's images, in pixels.
        channels: Number of image channels.
        augmentation: "light", or "none" to use `transforms`.
        transforms: Transforms for training images, or an empty sequence for none.
        mirror: True to allow mirrored images, or None to use the default of the images.
        epochs: Number of epochs in the run.
        resized: Side to which images are resized before the center crop, or None for `size`.
        side_of_batch: Function that returns the side length of the images in a batch, given the epoch, counted from 1,
            and the batch index. None for `size`.
        mean: Mean of each channel, for images scaled to 0..1.
        std: Standard deviation of each channel, for images scaled to 0..1.
        threads: Number of decoding threads.
        device: Device of the batches.
        on_unreadable: Callback that receives the path of an unreadable image and the reason.
        memory_format: Memory format of the inputs.
        on_stage_end: Callback for measuring times. It is called in the consumer's thread with "data", "transfer" and
            "augment" after these stages of each batch.
        cache: Place for the decoded images: "memory", "disk", "off", or "auto" to choose one of these.
        on_chosen: Callback that receives the chosen cache and the reason.
        finish: Function that makes a last change to each batch, or None for no change.
    """

    def __init__(
        self,
        images: ImageSet,
        sampler: GlobalBatchSampler,
        *,
        size: int,
        channels: int,
        augmentation: str = "none",
        transforms: Sequence[Transform] = (),
        mirror: bool | None = None,
        epochs: int = 1,
        resized: int | None = None,
        side_of_batch: Callable[[int, int], int] | None = None,
        mean: Sequence[float],
        std: Sequence[float],
        threads: int,
        device: torch.device,
        on_unreadable: Callable[[str, str], None],
        memory_format: torch.memory_format = torch.contiguous_format,
        on_stage_end: Callable[[Part], None] = lambda part: None,
        cache: str = "auto",
        on_chosen: OnChosen = lambda choice, why: None,
        finish: Finish | None = None,
    ) -> None:
        super().__init__(sampler, threads)
        self.images = images
        self.memory_format = memory_format
        self._size = size
        self._device = device
        self._on_stage_end = on_stage_end
        self._finish_batch = finish
        self._on_chosen = on_chosen
        self._channels = channels
        self._mirror = images.mirror if mirror is None else mirror
        # The light augmentation stretches images if possible, and otherwise crops them.
        uses_light_transforms = images.can_stretch and augmentation == "light"
        self._has_light_crops = augmentation == "light" and not uses_light_transforms
        self._side_of_batch = side_of_batch
        self._augmentation = self._create_augmentation(LIGHT if uses_light_transforms else transforms, epochs)
        if self._augmentation is not None:
            self._transforms = Transforms(
                self._augmentation, mean, std, device, outside=images.outside, extends_edges=images.extends_edges
            )
        is_framed = self._augmentation is not None and self._augmentation.framing is not None
        self._are_stretched = is_framed and images.can_stretch
        self._margin = self._choose_margin(resized or size, is_framed=is_framed)
        # Shape of a loaded image with its planes: [C, H, W].
        self._shape = (channels + images.planes, size + self._margin, size + self._margin)
        self._source = ImageSource(
            images,
            self._shape[1],
            channels,
            threads,
            on_unreadable,
            cache=cache,
            on_chosen=on_chosen,
            stretched=self._are_stretched,
        )
        self._normalize = Normalization(torch.tensor(mean), torch.tensor(std), device)
        # Maximum number of images in a batch: a mosaic loads several tiles for each sample.
        tiles = self._augmentation.max_tiles if self._augmentation is not None else 1
        self._capacity = max(1, sampler.max_local_batch) * tiles
        self._has_small_batches = device.type == "cpu" and self._capacity * math.prod(self._shape) <= INLINE_BYTES
        # Copies batches to the GPU.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._split_on_device: Tensor | None = None  # all images of the split, once they are uploaded
        self._has_tried_upload = False
        silence_pillow()

    def _create_augmentation(self, transforms: Sequence[Transform], epochs: int) -> Augmentation | None:
        """Create the augmentation with `transforms` for a run of `epochs`, or return None if there are none."""
        if not transforms:
            return None
        return Augmentation(
            transforms,
            self.sampler.streams,
            size=self._size,
            channels=self._channels,
            images=len(self.images),
            epochs=epochs,
            mirror=self._mirror,
        )

    def _choose_margin(self, resized: int, *, is_framed: bool) -> int:
        """Return by how many pixels the side of loaded images exceeds the model's image size.

        These pixels are cropped off on the device. `resized` is the side to which images are resized before a center
        crop, and `is_framed` is True if the augmentation crops randomly instead.
        """
        if self._augmentation is not None and self._are_stretched:
            return round(self._size * self._augmentation.oversampling) - self._size
        if self._has_light_crops or is_framed:
            return crop_margin(self._size)
        return resized - self._size

    @property
    def decoded(self) -> int:
        return self._source.decoded

    @property
    def decoding_s(self) -> float:
        return self._source.decode_seconds

    def set_threads(self, threads: int) -> None:
        super().set_threads(threads)
        self._source.set_threads(threads)

    def _close_source(self) -> None:
        self._source.close()

    @property
    def _is_inline(self) -> bool:
        """True if no images remain to be read, since they are on the GPU, or are decoded and form small batches."""
        if not self.threads or self._split_on_device is not None:
            return True
        return self._has_small_batches and self._source.is_decoded

    @property
    def _needs_preparation(self) -> bool:
        """True if the split may be uploaded to the GPU by `_prepare`, after which no background thread reads it."""
        return self._stream is not None and self._source.is_decoded and not self._has_tried_upload

    def _prepare(self) -> None:
        """Open the cache of images, and upload the split to the GPU if all images are decoded and fit."""
        self._source.open()
        self._upload_split()

    def _finish_epoch(self, epoch: int) -> None:
        """Decode the images of an incomplete last batch that is dropped, so that one epoch suffices to cache all."""
        if self._source.has_cache:
            self._source.decode(self.sampler.list_dropped_samples(epoch), replace=False)

    def _upload_split(self) -> None:
        """Upload all images of the split to the GPU if they fit in the budget.

        This is tried only once, after all images have been decoded.
        """
        if self._has_tried_upload or not self._source.is_decoded:
            return
        self._has_tried_upload = True
        count = len(self.images)
        needed_bytes = count * math.prod(self._shape)
        if 0 < needed_bytes <= upload_budget_bytes(self._device):
            slot = self._slots.acquire()
            assert slot is not None  # it is None only if the wait is cancelled
            self._split_on_device = upload_images(self._source, count, slot, self._device)
            self._slots.release(slot)
            self._on_chosen("device", f"All of them fit on the GPU: {format_bytes(needed_bytes)}.")

    def _make_slot(self) -> Slot:
        """Create a buffer for the largest batch. For training on a GPU, it includes a buffer in the GPU's memory."""
        columns = self._augmentation.columns if self._augmentation is not None else 0
        if self._stream is None:
            return Slot(self._capacity, self._shape, columns)
        return DeviceSlot(self._capacity, self._shape, self._stream, columns)

    def _fill(self, slot: Slot, batch: RankSamples, epoch: int) -> StagedBatch[Slot]:
        """Read a batch into `slot`, add random numbers for its augmentation, and start sending it to the device.

        If the split has been uploaded to the device, only the indices and the random numbers are sent.
        """
        # In training, unreadable images are replaced with others, which keeps the size of the batch.
        samples = self._source.decode(batch.indices, replace=self.sampler.shuffle)
        loaded, draws = samples, None
        if self._augmentation is not None:
            aspects = self._source.aspects(samples) if self._are_stretched else None
            draws = self._augmentation.draw(epoch, samples, aspects)
            # A mosaic needs further images for each sample.
            loaded = self._source.decode(self._augmentation.select_images(epoch, samples), replace=True)
        count, on_device = len(loaded), self._split_on_device is not None
        slot.wait_until_reusable()
        if not on_device:
            self._source.gather(loaded, slot.pixels[:count])
        slot.numbers[:count, SAMPLE] = loaded
        if draws is not None:
            slot.random[:count] = draws.numbers
        else:
            slot.numbers[:count, CROP] = self._choose_crops(epoch, loaded)
        slot.send(self.images.targets_of(loaded), pixel_rows=0 if on_device else count, number_rows=count)
        return StagedBatch(slot, count, batch.global_size, samples, on_device, draws)

    def _choose_crops(self, epoch: int, samples: Labels) -> Labels:
        """Return random crops of the light augmentation, or the center of all samples without it (see `draw_crops`)."""
        if self._has_light_crops:
            return draw_crops(self._margin, self.sampler.streams, epoch, samples, mirror=self._mirror)
        return np.array([self._margin // 2, self._margin // 2, 0])

    def _finish(self, staged: StagedBatch[Slot], wait_s: float, epoch: int, batch_index: int) -> Batch:
        """Crop, augment and normalize a batch, release its slot, and return it with its targets."""
        self._on_stage_end("data")
        count = staged.count
        # `numbers` has the index and crop of each image, `random` the numbers for augmentation, `rows` the targets.
        pixel_rows = 0 if staged.on_device else count
        pixels, numbers, random, rows = staged.slot.receive(pixel_rows=pixel_rows, number_rows=count)
        if self._stream is not None:
            self._on_stage_end("transfer")
        if staged.on_device:
            assert self._split_on_device is not None
            pixels = self._split_on_device[numbers[:, SAMPLE]]
        size = self._size if self._side_of_batch is None else self._side_of_batch(epoch, batch_index)
        inputs, planes, placement = self._transform(pixels, numbers, random, staged.draws)
        if size != self._size:
            inputs = functional.interpolate(inputs, size, mode="bilinear", antialias=True)
            inputs = inputs.contiguous(memory_format=self.memory_format)
            planes = functional.interpolate(planes, size, mode="nearest-exact") if planes is not None else None
            if placement is None:  # the images were not moved, so that their crops are the entire images
                placement = CropPlacement(numbers[:, CROP], self._size, self._size)
            placement = ResizePlacement(placement, size)
        targets = self.images.batch_targets(rows, planes, placement, size)
        staged.slot.record_consumed()
        self._slots.release(staged.slot)
        if self._finish_batch is not None:
            inputs, targets = self._finish_batch(inputs, targets, epoch, batch_index)
        self._on_stage_end("augment")
        return Batch(inputs, targets, staged.global_size, wait_s, staged.samples)

    def _transform(
        self, pixels: Tensor, numbers: Tensor, random: Tensor, draws: Draws | None
    ) -> tuple[Tensor, Tensor | None, Placement | None]:
        """Crop or augment a batch to the model's image size, and normalize it.

        Args:
            pixels: Loaded images and their planes (targets for each pixel), uint8 [n * tiles, C + planes, s, s].
            numbers: Index and crop of each image (see `Slot`).
            random: Random numbers on the device, one row for each image.
            draws: Random numbers in main memory, with the meaning of the columns, or None without an augmentation.

        Returns:
            Inputs, planes, and the placement of the loaded images in the model's images. Planes are None if the images
            have none, and the placement is None if the images were not moved.
        """
        if draws is not None:
            images, planes = self._transforms.move(pixels, random, draws)
            moved = AffinePlacement(random[:, FORWARD], self._size, draws.tiles)
            if planes is not None:
                planes = self.images.drop_remnants(planes, pixels[:, self._channels :], moved)
            return self._transforms.paint(images, random, draws, self._normalize, self.memory_format), planes, moved
        cropped = None
        if self._margin:
            cropped = CropPlacement(numbers[:, CROP], self._shape[1], self._size)
            pixels = crop(pixels, cropped.crops, self._size)
        inputs = self._normalize(pixels[:, : self._channels], self.memory_format)
        planes = pixels[:, self._channels :] if self.images.planes else None
        return inputs, planes, cropped


def upload_budget_bytes(device: torch.device) -> int:
    """Return the maximum size in bytes of a split that is uploaded to `device`.

    For the CPU it is 0, since the cache is used there.
    """
    if device.type != "cuda":
        return 0
    free, _ = torch.cuda.mem_get_info(device)
    return free // UPLOAD_FRACTION


def upload_images(source: ImageSource, count: int, slot: Slot, device: torch.device) -> Tensor:
    """Upload the `count` images of a split to `device` as uint8 [count, C, H, W], using the buffer `slot`.

    Unreadable images become black.
    """
    capacity, *shape = slot.pixels.shape
    images = torch.zeros((count, *shape), dtype=torch.uint8, device=device)
    for start in range(0, count, capacity):
        samples = source.decode(np.arange(start, min(start + capacity, count)), replace=False)
        slot.wait_until_reusable()
        source.gather(samples, slot.pixels[: len(samples)])
        slot.numbers[: len(samples), SAMPLE] = samples
        slot.send(torch.empty(0), pixel_rows=len(samples), number_rows=len(samples))  # without targets
        pixels, numbers, *_ = slot.receive(pixel_rows=len(samples), number_rows=len(samples))
        images[numbers[:, SAMPLE]] = pixels
        slot.record_consumed()
    return images
