"""Where the form's fields stand, and how it names the devices chosen."""

from __future__ import annotations

from engine.contract.devices import CPU, is_gpu

TRIPLE = ("epochs", "batch_size", "learning_rate")
FOLDS: dict[str, tuple[str, ...]] = {
    "Training": (
        "loss", "class_weights", "label_smoothing", "mixup", "cutmix", "accumulation", "clip_norm", "ema_decay", "ema_ramp",
        "patience", "seed", "name",
    ),
    "Optimizer": (
        "optimizer", "momentum", "beta2", "nesterov", "weight_decay", "decay_norms", "layer_decay", "head_rate",
        "optimizer_kernel",
    ),
    "Schedule": (
        "schedule", "milestones", "final_rate", "warmup_epochs", "warmup_steps", "warmup_start",
    ),
    "Checkpoints": (
        "best_by", "checkpoint_minutes", "checkpoint_steps", "keep_checkpoints", "predictions", "resume_from",
    ),
    "Queue and faults": ("start", "wait_for_others", "restarts", "on_not_finite"),
    "Data": (
        "image_size", "progressive_from", "val_crop", "augmentation", "transforms", "mirror", "oversample", "ignore_value",
        "points", "val_fraction", "picture_cache", "loader_workers",
    ),
    "Precision and speed": ("precision", "memory_format", "compile", "deterministic", "cpu_threads"),
    "Model": ("encoder", "pretrained", "weights_file", "freeze_epochs", "freeze_batchnorm", "dropout", "stochastic_depth"),
    "Strategy": (
        "replicas", "pipeline_schedule", "microbatches", "stages_per_device", "cuts", "balance", "bucket_mib",
        "gradient_compression", "static_graph", "sync_batchnorm", "shard_precision", "cpu_offload",
        "activation_checkpointing",
    ),
}  # fmt: skip
"""The fields that are folded away, by the title of their fold."""


def devices_in_words(devices: tuple[str, ...], names: dict[str, str]) -> str:
    """ "GPU 0, GPU 1" or "CPU, 2 workers"; `names` are what GPUs are called, by UUID."""
    if not devices:
        return "None chosen; check one in Devices."
    gpus = [names.get(device, device) for device in devices if is_gpu(device)]
    workers = sum(device == CPU for device in devices)
    cpu = [] if not workers else ["CPU"] if workers == 1 else [f"CPU, {workers} workers"]
    return ", ".join(gpus + cpu)
