"""Speed of transformers models in Footplate, compared with the bare models, transformers' Trainer and rfdetr.

    python tests/benchmarks/queries_speed.py [--rounds N] [--steps N] [--size PX] [--batch N] [--only MODEL ...]
        [--places]

All sides use the same batch and optimizer in one process with one thread, and all but rfdetr the same weights. They
take turns, in reversed order in every other round. Rates are images per second of CPU time, and a ratio is the median
of the rounds' ratios. The exit code is 1 if a ratio is below the aim.

- bare: The model of transformers with prepared labels. Predictions of detectors include transformers' post-processing.
- Footplate: The model that Footplate trains, with targets as tensors.
- Trainer: `transformers.Trainer` with images in memory. It is skipped if the package accelerate is missing.
- rfdetr: For RF-DETR-Nano, the model, losses and post-processing of the package rfdetr, in the order of its
  `training_step`, without Lightning. It is skipped if the package is missing.

In one forward and backward pass of each side, operations and calls that make the host wait for a GPU are counted.
Other load on the machine does not affect these counts. `--places` lists the calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.models.registry import MODELS
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.waits import WaitCounter

DEFAULT = ("dfine_n", "rtdetrv2_r18", "deimv2_n", "rfdetr_nano", "mask2former_swin_t")
CLASSES = 3
AIM = 0.97


class OperationCounter(TorchDispatchMode):
    """Counter of the operations that torch executes (`count`), and of the elements in their results (`numbers`)."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.numbers = 0

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        result = operation(*given, **options or {})
        self.count += 1
        self.numbers += sum(each.numel() for each in tree_leaves(result) if isinstance(each, Tensor))
        return result


def make_targets(batch: int, size: int, task: str) -> Tensor:
    """Make Footplate's targets for a batch of images with three objects each.

    They are [batch, 3, 6] for detection (box, class, ignored), otherwise [batch, 2, size, size] (object and class maps).
    """
    at = torch.tensor([[0.1, 0.1, 0.4, 0.4], [0.5, 0.2, 0.9, 0.6], [0.2, 0.6, 0.6, 0.9]]) * size
    if task == "detection":
        return torch.cat([at, torch.arange(3.0)[:, None], torch.zeros(3, 1)], 1).expand(batch, -1, -1)
    planes = torch.zeros(batch, 2, size, size, dtype=torch.int64)
    planes[:, 1] = 255
    for number, (left, top, right, bottom) in enumerate(at.int().tolist()):
        planes[:, :, top:bottom, left:right] = torch.tensor([number + 1, number])[:, None, None]
    return planes


def make_arguments(model: Any, images: Tensor, targets: Tensor) -> dict[str, Any]:
    """Make the keyword arguments with which the transformers model that `model` wraps computes its loss."""
    if hasattr(model, "criterion"):
        classes, masks = zip(*model.split_by_class(targets), strict=True)
        return {"pixel_values": images, "class_labels": list(classes), "mask_labels": list(masks)}
    return {"pixel_values": images, "labels": model.labels(images, model.objects(targets))}


def create_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-5, foreach=True)


def make_step(model: torch.nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = create_optimizer(model)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def make_trainer(plain: Any, arguments: dict[str, Any], folder: str, steps: int) -> Callable[[], None]:
    """Make a function that trains the transformers model `plain` for `steps` steps with transformers' Trainer."""
    from transformers import Trainer, TrainingArguments

    count = len(arguments["pixel_values"])
    samples = [{name: each[number] for name, each in arguments.items()} for number in range(count)] * steps

    def collate(chosen: list[dict[str, Any]]) -> dict[str, Any]:
        found = {name: [each[name] for each in chosen] for name in chosen[0]}
        return found | {"pixel_values": torch.stack(found["pixel_values"])}

    options = TrainingArguments(
        folder, per_device_train_batch_size=count, max_steps=steps, save_strategy="no", report_to=[], use_cpu=True,
        max_grad_norm=0, remove_unused_columns=False, disable_tqdm=True, logging_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    optimizers = (create_optimizer(plain), None)
    return lambda: Trainer(plain, options, data_collator=collate, train_dataset=samples, optimizers=optimizers).train()


def build_rfdetr(images: Tensor, labels: list[dict[str, Tensor]]) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Build RF-DETR-Nano of the package rfdetr with random weights.

    Returns:
        model: The model, in training mode.
        sides: The functions that train for one step ("training") and that predict ("prediction").
    """
    from rfdetr.config import RFDETRNanoConfig, TrainConfig
    from rfdetr.models.lwdetr import build_criterion_from_config, build_model_from_config

    size = images.shape[-1]
    options = {"resolution": size, "positional_encoding_size": size // 16, "pretrain_weights": "", "device": "cpu"}
    configs = (RFDETRNanoConfig(num_classes=CLASSES, **options), TrainConfig(dataset_dir=".", output_dir="."))
    model, (criterion, post_process) = build_model_from_config(*configs).train(), build_criterion_from_config(*configs)
    targets = [{"labels": each["class_labels"], "boxes": each["boxes"]} for each in labels]

    def loss() -> Tensor:
        losses, weights = criterion(model(images, targets), targets), criterion.weight_dict
        return torch.stack([losses[name] * weights[name] for name in losses if name in weights]).sum()

    def predict() -> object:
        return post_process(model(images), torch.tensor([[size, size]] * len(images)))

    return model, {"training": make_step(model, loss), "prediction": predict}


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", default=DEFAULT, metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--size", type=int, default=128, help="288 for RF-DETR")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--places", action="store_true", help="list where the host waits, and measure no speed")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{describe_environment()}; {chosen.rounds} rounds of {chosen.steps} steps, batch {chosen.batch}")
    with use_empty_home() as folder:
        ratios = [ratio for name in chosen.only for ratio in compare(name, chosen, str(folder))]
    return int(min(ratios, default=AIM) < AIM)


def compare(name: str, chosen: Any, folder: str) -> list[float]:
    """Print the training and prediction speeds of a model in Footplate, in a plain loop, and in other libraries.

    `chosen` are the options of the command line. Returns Footplate's speeds relative to those of the plain loop, or an
    empty list if `chosen.places` is set.
    """
    known, size = MODELS[name], 288 if name.startswith("rfdetr") else chosen.size
    torch.manual_seed(0)
    model: Any = known.build(CLASSES + 1, 3)
    model.adapt_to_size(name, size)
    plain = model.library_class(model.config).train()
    plain.load_state_dict(model.state_dict())
    images, targets = torch.rand(chosen.batch, 3, size, size), make_targets(chosen.batch, size, known.task)
    arguments = make_arguments(model, images, targets)

    def footplate_loss() -> Tensor:
        loss: Tensor = (model(images, targets).sum(0) / model.loss_units(targets)).sum()
        return loss

    losses: dict[str, Callable[[], Tensor]] = {"bare": lambda: plain(**arguments).loss, "Footplate": footplate_loss}
    for side, loss in losses.items():
        with WaitCounter() as waits, OperationCounter() as operations:
            loss().backward()
        work = f"{operations.count:,} operations with {operations.numbers:,} results"
        print(f"{name} at {size} px, {side}: {work}; the host waits {waits.counts.total()} times in a step", flush=True)
        for (file, number, line), count in waits.counts.most_common() if chosen.places else ():
            print(f"  {count} {Path(file).name}:{number} {line}", flush=True)
    if chosen.places:
        return []
    training = {side: make_step(trained, losses[side]) for side, trained in (("bare", plain), ("Footplate", model))}
    if find_spec("accelerate") is not None:
        training["Trainer"] = make_trainer(plain, arguments, folder, chosen.steps)
    predicting = {"bare": lambda: predict_bare(plain, images, known.task), "Footplate": lambda: model(images)}
    models = [plain, model]
    if name == "rfdetr_nano" and find_spec("rfdetr") is not None:
        other, sides = build_rfdetr(images, arguments["labels"])
        models.append(other)
        training["rfdetr"], predicting["rfdetr"] = sides["training"], sides["prediction"]
    print(f"{name}: {', '.join(f'{sum(map(torch.numel, each.parameters())):,}' for each in models)} parameters")
    ratios = [measure(f"{name}, training", training, chosen)]
    for each in models:
        each.eval()
    with torch.no_grad():
        return [*ratios, measure(f"{name}, prediction", predicting, chosen)]


def predict_bare(plain: Any, images: Tensor, task: str) -> Any:
    from transformers import RTDetrImageProcessor

    outputs = plain(images)
    sizes = [tuple(images.shape[-2:])] * len(images)
    return RTDetrImageProcessor().post_process_object_detection(outputs, 0.0, sizes) if task == "detection" else outputs


def measure(title: str, sides: dict[str, Callable[[], object]], chosen: Any) -> float:
    """Time the functions `sides` in turns and print their images per second.

    Returns the speed of the side "Footplate", divided by that of the side "bare".
    """
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(chosen.rounds):
        for side in reversed(sides) if number % 2 else sides:
            repeat = 1 if side == "Trainer" else chosen.steps  # which takes all steps in one call
            started = time.process_time()
            for _ in range(repeat):
                sides[side]()
            rates[side].append(chosen.steps * chosen.batch / (time.process_time() - started))
    ratios = {side: statistics.median(map(float.__truediv__, rates["Footplate"], rates[side])) for side in sides}
    texts = [f"{side} {statistics.median(each):.2f}" for side, each in rates.items()]
    relations = [f"{ratio:.3f} of {side}" for side, ratio in ratios.items() if side != "Footplate"]
    print(f"{title}: {', '.join(texts)} images/s; Footplate is at {', '.join(relations)}", flush=True)
    return ratios["bare"]


if __name__ == "__main__":
    sys.exit(main())
