"""From a split to normalised batches on the device, in time for the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.augmentation import Transform
from engine.contract.dataset import crop_margin
from engine.contract.events import Part
from engine.data.cache.cache_policy import OnChosen
from engine.data.cache.cache_space import shown_bytes
from engine.data.datasets.images import ImageSet
from engine.data.decoding.reading import silence_pillow
from engine.data.loading import resident
from engine.data.loading.base_loader import Batch, Finish, Loader
from engine.data.loading.decode_pool import ImageSource
from engine.data.loading.prefetch import Filled
from engine.data.loading.sampler import GlobalBatchSampler, Share
from engine.data.loading.staging import CROP, SAMPLE, DeviceSlot, Slot
from engine.data.transforms.augmentation import FORWARD, LIGHT, Augmentation, Drawn
from engine.data.transforms.crops import draw_crops
from engine.data.transforms.device_transforms import Cropped, Moved, Normalisation, Placement, Resized, Transforms, crop

INLINE_BYTES = 4 << 20
"""A batch on the CPU of at most so many bytes, with nothing left to decode, is put together in the caller's thread:
that takes a five hundredth of the time of a small network's step or less, and a thread would take it from the step's
own."""


class BatchLoader(Loader[Slot]):
    """Yields the batches of one split of images, epoch by epoch.

    Pixels travel as uint8, and are cropped and normalised on the device. Where nothing is left to decode and a batch
    is small, it is put together in the caller's thread, which is faster, and on a GPU a split that takes a small part
    of its memory is brought there whole.

    An unreadable image is reported once. In training (`sampler.shuffle`) the next readable one of the split
    takes its place; in validation it is left out.

    Training images are augmented by "light", or by `transforms` of a run of `epochs`; `mirror` says whether any are
    mirrored, which is otherwise the images' own to say. Crops come from whole images (`ImageSet.load_stretched`) if
    `ImageSet.can_stretch`. Other images are the middle of ones `resized` to that side. All are at last resized to the
    `side` of their epoch, from 1 on.

    `mark(part)` is called in the consumer's thread whenever a part of a batch's way is done: "data", "transfer" and
    "augment". `finish` is what is done last to each batch.
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
        side: Callable[[int], int] | None = None,
        mean: Sequence[float],
        std: Sequence[float],
        threads: int,
        device: torch.device,
        on_unreadable: Callable[[str, str], None],
        memory_format: torch.memory_format = torch.contiguous_format,
        mark: Callable[[Part], None] = lambda part: None,
        keep: str = "auto",
        on_chosen: OnChosen = lambda choice, why: None,
        finish: Finish | None = None,
    ) -> None:
        super().__init__(sampler, threads)
        self.images = images
        self.memory_format = memory_format
        self._size = size
        self._device = device
        self._mark = mark
        self._finishing = finish
        self._on_chosen = on_chosen
        self._channels = channels
        self._mirror = images.mirror if mirror is None else mirror
        stretched = images.can_stretch and augmentation == "light"
        transforms = LIGHT if stretched else transforms
        self._light = augmentation == "light" and not stretched
        self._side = side
        self._augmentation: Augmentation | None = None
        if transforms:
            self._augmentation = Augmentation(
                transforms,
                sampler.streams,
                size=size,
                channels=channels,
                images=len(images),
                epochs=epochs,
                mirror=self._mirror,
            )
            self._transforms = Transforms(
                self._augmentation, mean, std, device, outside=images.outside, continued=images.continued
            )
        framed = self._augmentation is not None and self._augmentation.framing is not None
        self._stretched = framed and images.can_stretch
        if self._augmentation is not None and self._stretched:
            self._margin = round(size * self._augmentation.oversampling) - size
        else:
            self._margin = crop_margin(size) if self._light or framed else (resized or size) - size
        self._shape = (channels + images.planes, size + self._margin, size + self._margin)
        self._source = ImageSource(
            images,
            self._shape[1],
            channels,
            threads,
            on_unreadable,
            keep=keep,
            on_chosen=on_chosen,
            stretched=self._stretched,
        )
        self._normalise = Normalisation(torch.tensor(mean), torch.tensor(std), device)
        tiles = self._augmentation.most_tiles if self._augmentation is not None else 1
        self._capacity = max(1, sampler.largest_share) * tiles
        self._quick = device.type == "cpu" and self._capacity * math.prod(self._shape) <= INLINE_BYTES
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._stored: Tensor | None = None
        self._room_sought = False
        silence_pillow()

    @property
    def decoded(self) -> int:
        return self._source.decoded

    @property
    def decoding_s(self) -> float:
        return self._source.decode_seconds

    def set_threads(self, threads: int) -> None:
        self.threads = threads
        self._source.resize_threads(threads)

    def _close_source(self) -> None:
        self._source.close()

    @property
    def _reads_here(self) -> bool:
        if not self.threads or self._stored is not None:
            return True
        return self._quick and self._source.at_hand

    @property
    def _awaits_preparing(self) -> bool:
        return self._stream is not None and self._source.at_hand and not self._room_sought

    def _prepare(self) -> None:
        self._source.open()
        self._bring_to_device()

    def _complete(self, epoch: int) -> None:
        """So that all is decoded after one epoch, though it drops an incomplete batch."""
        if self._source.keeps:
            self._source.take(self.sampler.left_out(epoch), replace=False)

    def _bring_to_device(self) -> None:
        """Keeps the split on the GPU whole, once nothing of it is left to decode and where there is room."""
        if self._room_sought or not self._source.at_hand:
            return
        self._room_sought = True
        count = len(self.images)
        needed = count * math.prod(self._shape)
        if 0 < needed <= resident.room(self._device):
            slot = self._slots.take(lambda: False)
            assert slot is not None
            self._stored = resident.bring(self._source, count, slot, self._device)
            self._slots.give(slot)
            self._on_chosen("device", f"All of them fit on the GPU: {shown_bytes(needed)}.")

    def _make_slot(self) -> Slot:
        columns = self._augmentation.columns if self._augmentation is not None else 0
        if self._stream is None:
            return Slot(self._capacity, self._shape, columns)
        return DeviceSlot(self._capacity, self._shape, self._stream, columns)

    def _fill(self, slot: Slot, share: Share, epoch: int) -> Filled[Slot]:
        taken = samples = self._source.take(share.indices, replace=self.sampler.shuffle)
        drawn = None
        if self._augmentation is not None:
            aspects = self._source.aspects(samples) if self._stretched else None
            drawn = self._augmentation.draw(epoch, samples, aspects)
            samples = self._source.take(self._augmentation.partners(epoch, samples), replace=True)
        count, stored = len(samples), self._stored is not None
        slot.begin()
        if not stored:
            self._source.pixels(samples, slot.pixels[:count])
        numbers = slot.numbers[:count]
        numbers[:, SAMPLE] = samples
        if drawn is not None:
            slot.drawn[:count] = drawn.numbers
        elif self._light:
            numbers[:, CROP] = draw_crops(self._margin, self.sampler.streams, epoch, samples, mirror=self._mirror)
        else:
            numbers[:, CROP] = self._margin // 2, self._margin // 2, 0
        slot.send(0 if stored else count, count, self.images.targets_of(samples))
        return Filled(slot, count, share.global_size, taken, stored, drawn)

    def _finish(self, filled: Filled[Slot], wait_s: float, epoch: int, batch_index: int) -> Batch:
        """Augments and normalises what has arrived."""
        self._mark("data")
        count = filled.images
        pixels, numbers, drawn, rows = filled.slot.receive(0 if filled.stored else count, count)
        if self._stream is not None:
            self._mark("transfer")
        if filled.stored:
            assert self._stored is not None
            pixels = self._stored[numbers[:, SAMPLE]]
        size = self._size if self._side is None else self._side(epoch)
        inputs, planes, placement = self._laid(pixels, numbers, drawn, filled.drawn)
        if size != self._size:
            inputs = functional.interpolate(inputs, size, mode="bilinear", antialias=True)
            inputs = inputs.contiguous(memory_format=self.memory_format)
            planes = functional.interpolate(planes, size, mode="nearest-exact") if planes is not None else None
            placement = Resized(placement or Cropped(numbers[:, CROP], self._size, self._size), size)
        targets = self.images.batch_targets(rows, planes, placement, size)
        filled.slot.leave()
        self._slots.give(filled.slot)
        if self._finishing is not None:
            inputs, targets = self._finishing(inputs, targets, epoch, batch_index)
        self._mark("augment")
        return Batch(inputs, targets, filled.global_size, wait_s, filled.samples)

    def _laid(
        self, pixels: Tensor, numbers: Tensor, drawn: Tensor, how: Drawn | None
    ) -> tuple[Tensor, Tensor | None, Placement | None]:
        """Inputs and planes of the model's size, and where in them what was loaded lies."""
        if how is not None:
            images, planes = self._transforms.move(pixels, drawn, how)
            moved = Moved(drawn[:, FORWARD], self._size, how.tiles)
            if planes is not None:
                planes = self.images.without_remains(planes, pixels[:, self._channels :], moved)
            return self._transforms.paint(images, drawn, how, self._normalise, self.memory_format), planes, moved
        cropped = None
        if self._margin:
            cropped = Cropped(numbers[:, CROP], self._shape[1], self._size)
            pixels = crop(pixels, cropped.crops, self._size)
        inputs = self._normalise(pixels[:, : self._channels], self.memory_format)
        return inputs, pixels[:, self._channels :] if self.images.planes else None, cropped
