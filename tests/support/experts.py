"""Training recipes that experts use. `tests/benchmarks/outcome.py` compares Footplate with them.

    PYTHON tests/support/experts.py RECIPE SETTING

trains with one of the recipes. The last line of output is a JSON object with the metrics on the validation images after
each epoch and the versions of the packages. SETTING is a `Setting` as JSON. This file imports nothing from Footplate,
so that it runs in a separate environment with fastai, torch and timm. Every recipe trains on the first GPU, or on the
CPU if there is none.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
IGNORED = 255
SPLITS = ("train", "val")
VOC_SIDES = ("xmin", "ymin", "xmax", "ymax")
MNIST_CNN = "mnist_cnn"
"""Name that selects the network of PyTorch's examples/mnist."""


@dataclass(frozen=True)
class Setting:
    """Configuration of a training recipe.

    Attributes:
        data: Dataset folder: class folders or `images` and `masks` below `train` and `val`, the MNIST files, or a folder
            in the format of Pascal VOC.
        weights: File of timm's pretrained weights for `model`. "" trains a torchvision model, or the model `MNIST_CNN`,
            from random weights.
        size: Side of the images in pixels.
        ignored: Mask value of pixels without a class, or None if there is no such value.
    """

    data: str
    model: str
    weights: str
    size: int
    epochs: int
    batch: int
    seed: int
    threads: int
    ignored: int | None = None


def train_with_fastai(setting: Setting) -> list[float]:
    """Train with fastai's defaults, and return the accuracy after each epoch.

    These are `vision_learner` and `fine_tune`, with the presizing of its book (chapter 5). `fine_tune` trains only the
    head in the first epoch. Without pretrained weights, `Learner` and `fit_one_cycle` are used.
    """
    from fastai.vision import all as vision

    vision.set_seed(setting.seed, reproducible=True)
    accuracies: list[float] = []

    class SavedMetrics(vision.Callback):
        order = 70  # after the recorder

        def after_epoch(self) -> None:
            accuracies.append(float(self.learn.recorder.values[-1][-1]))

    dls, values = create_fastai_loaders(setting), {"metrics": vision.accuracy, "cbs": SavedMetrics()}
    if setting.weights:
        overlay = {"file": setting.weights}
        learner = vision.vision_learner(dls, setting.model, pretrained_cfg_overlay=overlay, **values)
    else:
        learner = vision.Learner(dls, create_random_model(setting), loss_func=nn.CrossEntropyLoss(), **values)
    with learner.no_bar(), learner.no_logging():
        if setting.weights:
            learner.fine_tune(setting.epochs - 1)
        else:
            learner.fit_one_cycle(setting.epochs)
    return accuracies


def create_fastai_loaders(setting: Setting) -> Any:
    """Create fastai's `DataLoaders` with its default augmentation. MNIST is not augmented."""
    from fastai.vision import all as vision

    if setting.model == MNIST_CNN:
        loaders = (DataLoader(load_digits(setting, split), setting.batch, shuffle=split == "train") for split in SPLITS)
        return vision.DataLoaders(*loaders)
    changes = vision.aug_transforms(size=setting.size, min_scale=0.75)
    if not setting.weights:  # with weights, `vision_learner` normalizes as they require
        changes.append(vision.Normalize.from_stats(*vision.imagenet_stats))
    return vision.ImageDataLoaders.from_folder(
        setting.data, train="train", valid="val", bs=setting.batch, num_workers=0, device=DEVICE,
        item_tfms=vision.Resize(2 * setting.size), batch_tfms=changes,
    )  # fmt: skip


def train_with_timm(setting: Setting) -> list[float]:
    """Train with the defaults of timm's train.py, and return the accuracy after each epoch.

    The defaults are SGD with a learning rate of 0.1 for a batch of 256, cosine decay and label smoothing of 0.1.
    Because the run is short, it warms up for one epoch instead of five, and updates the learning rate at every step
    (`--sched-on-updates`).
    """
    from timm.data import create_transform, resolve_data_config
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2

    model = create_classifier(setting)
    config = resolve_data_config({}, model=model)
    shape = (3, setting.size, setting.size)
    of_both = {"mean": config["mean"], "std": config["std"]}
    train, val = create_folder_loaders(
        setting,
        create_transform(shape, is_training=True, color_jitter=0.4, interpolation="random", **of_both),
        create_transform(shape, interpolation=config["interpolation"], crop_pct=config["crop_pct"], **of_both),
        drop_last=True,
    )
    rate = 0.1 * setting.batch / 256
    optimizer = create_optimizer_v2(model, opt="sgd", lr=rate, weight_decay=2e-5, momentum=0.9)
    scheduler, _ = create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=setting.epochs, warmup_epochs=1, warmup_lr=1e-5, step_on_epochs=False,
        updates_per_epoch=len(train),
    )  # fmt: skip
    return train_model(
        model, train, LabelSmoothingCrossEntropy(0.1), optimizer, setting.epochs,
        after_update=scheduler.step_update, measure=lambda: measure_accuracy(model, val),
    )  # fmt: skip


def train_with_torchvision(setting: Setting) -> list[float]:
    """Train with the defaults of torchvision's references/classification/train.py. Return the accuracy after each epoch.

    The defaults are SGD with a learning rate of 0.1 for a batch of 256, i.e. 8 GPUs with 32 images each. The learning
    rate is divided by 10 after each third of the run. The reference does so after 30 and 60 of its 90 epochs.
    """
    from timm.data import resolve_data_config
    from torchvision import transforms

    model = create_classifier(setting)
    config = resolve_data_config({}, model=model)
    to_input = [transforms.ToTensor(), transforms.Normalize(config["mean"], config["std"])]
    train, val = create_folder_loaders(
        setting,
        transforms.Compose([
            transforms.RandomResizedCrop(setting.size), transforms.RandomHorizontalFlip(), *to_input,
        ]),
        transforms.Compose([
            transforms.Resize(round(setting.size * 256 / 224)), transforms.CenterCrop(setting.size), *to_input,
        ]),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * setting.batch / 256, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=max(1, round(setting.epochs / 3)), gamma=0.1)

    def measure() -> float:
        scheduler.step()
        return measure_accuracy(model, val)

    return train_model(model, train, nn.CrossEntropyLoss(), optimizer, setting.epochs, measure=measure)


def train_with_pytorch(setting: Setting) -> list[float]:
    """Train with the defaults of PyTorch's examples/mnist/main.py, and return the accuracy after each epoch.

    The defaults are Adadelta with a learning rate of 1.0, which is multiplied by 0.7 after each epoch.
    """
    model = create_random_model(setting)
    train = DataLoader(load_digits(setting, "train"), setting.batch, shuffle=True)
    val = DataLoader(load_digits(setting, "val"), 1000)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

    def measure() -> float:
        scheduler.step()
        return measure_accuracy(model, val)

    return train_model(model, train, nn.CrossEntropyLoss(), optimizer, setting.epochs, measure=measure)


def train_with_smp(setting: Setting) -> list[float]:
    """Train like segmentation_models_pytorch's notebook, and return the mean IoU after each epoch.

    The notebook is examples/camvid_segmentation_multiclass.ipynb. It uses the Dice loss, Adam, and a cosine decay of
    the learning rate from 0.0002 to 0.00001 over all steps. Torchvision's transforms replace its augmentations. The
    IoU of a class is computed from the pixels of all validation images together.
    """
    import segmentation_models_pytorch as models
    from safetensors.torch import load_file
    from torchvision.transforms import v2
    from torchvision.tv_tensors import Image, Mask

    train_set, val_set = (MaskDataset(setting, split) for split in ("train", "val"))
    train_set.changes = v2.Compose([
        v2.RandomHorizontalFlip(),
        v2.RandomAffine(0, translate=(0.1, 0.1), scale=(0.5, 1.5), fill={Image: 0, Mask: IGNORED}),
        v2.ColorJitter(0.2, 0.2, 0.2, 0.05),
    ])  # fmt: skip
    train = DataLoader(train_set, setting.batch, shuffle=True)
    val = DataLoader(val_set, setting.batch)
    model = models.Unet(f"tu-{setting.model}", encoder_weights=None, classes=train_set.classes)
    missing, _ = model.encoder.model.load_state_dict(load_file(setting.weights), strict=False)
    if missing:
        raise SystemExit(f"{setting.weights} lacks {missing[:3]} of the encoder.")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    steps = setting.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=1e-5)
    criterion = models.losses.DiceLoss("multiclass", from_logits=True, ignore_index=IGNORED)

    @torch.no_grad()
    def measure() -> float:
        model.eval()
        counts = torch.zeros(train_set.classes, train_set.classes, dtype=torch.long)
        for inputs, targets in val:
            found = model(inputs.to(DEVICE)).argmax(1).cpu()
            known = targets != IGNORED
            pairs = targets[known] * train_set.classes + found[known]
            counts += torch.bincount(pairs, minlength=train_set.classes**2).view_as(counts)
        both = counts.diagonal()
        either = counts.sum(0) + counts.sum(1) - both
        return float((both / either)[either > 0].mean())

    return train_model(
        model, train, criterion, optimizer, setting.epochs, after_update=lambda _: scheduler.step(), measure=measure
    )


def train_with_ultralytics(setting: Setting) -> list[dict[str, float]]:
    """Train a randomly initialized network with Ultralytics' defaults.

    The dataset has boxes in the format of Pascal VOC. Its `val` list is the validation split. Returns the average
    precision after each epoch: "map" (over all IoU thresholds) and "ap50" (at the IoU threshold 0.5).
    """
    import tempfile

    from ultralytics import YOLO

    values: list[dict[str, float]] = []

    def save_metrics(trainer: Any) -> None:
        if len(values) < setting.epochs:  # the best weights are validated once more after the last epoch
            found = trainer.metrics
            values.append({"map": found["metrics/mAP50-95(B)"], "ap50": found["metrics/mAP50(B)"]})

    with tempfile.TemporaryDirectory() as folder:
        model = YOLO(f"{setting.model}.yaml")
        model.add_callback("on_fit_epoch_end", save_metrics)
        model.train(
            data=convert_to_yolo(Path(setting.data), Path(folder)), epochs=setting.epochs, imgsz=setting.size,
            batch=setting.batch, seed=setting.seed, device=DEVICE.type, workers=0, pretrained=False, plots=False,
            project=folder, verbose=False, amp=DEVICE.type != "cpu",
        )  # fmt: skip
    return values


def convert_to_yolo(voc: Path, folder: Path) -> str:
    """Convert a dataset from Pascal VOC's format to YOLO's in `folder`. Return the path of its data.yaml."""
    from xml.etree import ElementTree

    classes: list[str] = []
    for split in SPLITS:
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for name in (voc / f"ImageSets/Main/{split}.txt").read_text().split():
            (folder / f"images/{split}/{name}.jpg").symlink_to((voc / f"JPEGImages/{name}.jpg").resolve())
            root = ElementTree.parse(voc / f"Annotations/{name}.xml")
            width, height = (float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
            lines = []
            for each in root.iter("object"):
                left, top, right, bottom = (float(each.findtext(f"bndbox/{side}") or 0) for side in VOC_SIDES)
                label = each.findtext("name") or ""
                if label not in classes:
                    classes.append(label)
                if right > left and bottom > top:
                    box = ((left + right) / 2 / width, (top + bottom) / 2 / height)
                    box = (*box, (right - left) / width, (bottom - top) / height)
                    lines.append(f"{classes.index(label)} {' '.join(map(str, box))}")
            (folder / f"labels/{split}/{name}.txt").write_text("\n".join(lines))
    description = {"path": str(folder), "names": dict(enumerate(classes))}
    description |= {split: f"images/{split}" for split in SPLITS}
    path = folder / "data.yaml"
    path.write_text(json.dumps(description))  # JSON is YAML, too
    return str(path)


def create_classifier(setting: Setting) -> nn.Module:
    """Create the classification model `setting.model`. Its weights are random if `setting.weights` is ""."""
    return create_timm_model(setting) if setting.weights else create_random_model(setting)


def create_timm_model(setting: Setting) -> nn.Module:
    import timm as models

    torch.manual_seed(setting.seed)
    overlay = {"file": setting.weights}
    return models.create_model(
        setting.model, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=count_classes(setting)
    )


def create_random_model(setting: Setting) -> nn.Module:
    """Create the classification model `setting.model` with random weights."""
    from torchvision import models

    torch.manual_seed(setting.seed)
    if setting.model == MNIST_CNN:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
            nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
        )  # fmt: skip
    return models.get_model(setting.model, num_classes=count_classes(setting))


def count_classes(setting: Setting) -> int:
    return sum(path.is_dir() for path in (Path(setting.data) / "train").iterdir())


def load_digits(setting: Setting, split: str) -> TensorDataset:
    """Load a split of MNIST: images, normalized as in PyTorch's example, and their classes."""
    name = "train" if split == "train" else "t10k"

    def values(file: str, header: int) -> Tensor:
        content = gzip.decompress((Path(setting.data) / f"{name}-{file}-ubyte.gz").read_bytes())
        return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header)

    images = values("images-idx3", 16).view(-1, 1, 28, 28)
    return TensorDataset((images / 255 - 0.1307) / 0.3081, values("labels-idx1", 8).long())


def create_folder_loaders(
    setting: Setting, train: Any, val: Any, *, drop_last: bool = False
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    from torchvision.datasets import ImageFolder

    train_set, val_set = ImageFolder(f"{setting.data}/train", train), ImageFolder(f"{setting.data}/val", val)
    return DataLoader(train_set, setting.batch, shuffle=True, drop_last=drop_last), DataLoader(val_set, setting.batch)


class MaskDataset(Dataset[tuple[Tensor, Tensor]]):
    """Dataset of images and masks, both resized and cropped to squares of `size` pixels.

    Images are normalized as EfficientNet-Lite expects them.
    """

    def __init__(self, setting: Setting, split: str) -> None:
        self._size, self._ignored = setting.size, setting.ignored
        images, masks = Path(setting.data) / "images" / split, Path(setting.data) / "masks" / split
        self._paths = [(path, masks / f"{path.stem}.png") for path in sorted(images.iterdir())]
        self.changes: Callable[[Any, Any], tuple[Tensor, Tensor]] = lambda image, mask: (image, mask)
        values = {value for _, mask in self._paths for value in read_image(mask, "L").unique().tolist()}
        self.classes = max(values - {self._ignored, IGNORED}) + 1

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        from torchvision.transforms import v2
        from torchvision.tv_tensors import Image, Mask

        image, mask = (read_image(path, mode) for path, mode in zip(self._paths[index], ("RGB", "L"), strict=True))
        if self._ignored is not None:
            mask[mask == self._ignored] = IGNORED
        square = v2.Compose([v2.Resize(self._size), v2.CenterCrop(self._size)])
        pixels, target = self.changes(*square(Image(image), Mask(mask)))
        return (pixels / 255 - 0.5) / 0.5, target[0].long()


def read_image(path: Path, mode: str) -> Tensor:
    from PIL import Image
    from torchvision.transforms.functional import pil_to_tensor

    return pil_to_tensor(Image.open(path).convert(mode))


def train_model(
    model: nn.Module, train: DataLoader[Any], criterion: nn.Module, optimizer: torch.optim.Optimizer, epochs: int, *,
    measure: Callable[[], float], after_update: Callable[[int], object] = lambda _: None,
) -> list[float]:  # fmt: skip
    """Train with a plain loop, call `measure` after each epoch, and return its results.

    After each step, `after_update` is called with the number of finished steps.
    """
    model.to(DEVICE)
    values = []
    updates = 0
    for _ in range(epochs):
        model.train()
        for inputs, targets in train:
            optimizer.zero_grad()
            criterion(model(inputs.to(DEVICE)), targets.to(DEVICE)).backward()
            optimizer.step()
            updates += 1
            after_update(updates)
        values.append(measure())
    return values


@torch.no_grad()
def measure_accuracy(model: nn.Module, val: DataLoader[Any]) -> float:
    """Return the fraction of correctly classified validation images."""
    model.eval()
    right = sum(int((model(inputs.to(DEVICE)).argmax(1).cpu() == labels).sum()) for inputs, labels in val)
    return right / len(val.dataset)  # type: ignore[arg-type]


RECIPES: dict[str, Callable[[Setting], list[Any]]] = {
    "fastai": train_with_fastai, "timm": train_with_timm, "torchvision": train_with_torchvision, "pytorch": train_with_pytorch, "smp": train_with_smp, "ultralytics": train_with_ultralytics,
}  # fmt: skip
PACKAGES = {"smp": "segmentation_models_pytorch", "pytorch": "torch"}


def main() -> None:
    recipe, setting = sys.argv[1], Setting(**json.loads(sys.argv[2]))
    torch.set_num_threads(setting.threads)
    torch.manual_seed(setting.seed)
    values = RECIPES[recipe](setting)
    versions = {name: version(name) for name in ("torch", PACKAGES.get(recipe, recipe))}
    print(json.dumps({"values": values, "versions": versions}), flush=True)


if __name__ == "__main__":
    main()
