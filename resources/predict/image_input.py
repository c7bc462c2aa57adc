"""The model in model.onnx, and images as it takes them. Needs onnxruntime, numpy and Pillow."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(str(Path(__file__).with_name("model.onnx")), providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
classes, size, channels = json.loads(about["classes"]), int(about["size"]), int(about["channels"])


def load(path):
    """Return an upright image, uint8 [h, w, channels]; images with bands are arrays in a .npy file."""
    if path.endswith(".npy"):
        values = np.load(path)
        if "low" in about:
            low, high = (np.array(json.loads(about[name])) for name in ("low", "high"))
            values = np.rint(np.clip((values - low) / (high - low), 0, 1) * 255)
        return values.astype(np.uint8)
    image = ImageOps.exif_transpose(Image.open(path)).convert("L" if channels == 1 else "RGB")
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def resized(pixels, height, width):
    bands = [Image.fromarray(pixels[:, :, band]) for band in range(pixels.shape[2])]
    return np.stack([np.asarray(band.resize((width, height), Image.Resampling.BILINEAR)) for band in bands], 2)


def squared(pixels):
    """Return the image as the model's input [size, size, channels], and its position in it: top, left, height, width."""
    height, width = pixels.shape[:2]
    if about["framing"] == "crop":  # the short side is made so long, and the middle cut out
        short = int(about["resized"])
        tall, wide = (max(short, round(side * short / min(height, width))) for side in (height, width))
        margin = (short - size) // 2
        top, left = (tall - short) // 2 + margin, (wide - short) // 2 + margin
        return resized(pixels, tall, wide)[top : top + size, left : left + size], (-top, -left, tall, wide)
    tall, wide = (max(1, round(side * size / max(height, width))) for side in (height, width))
    top, left = (size - tall) // 2, (size - wide) // 2
    around = ((top, size - tall - top), (left, size - wide - left), (0, 0))
    how = "edge" if about["framing"] == "continued" else "constant"
    return np.pad(resized(pixels, tall, wide), around, mode=how), (top, left, tall, wide)


def predict(square):
    """Return the model's output for an image from `squared`."""
    given = square[None]
    if about["normalized_in_file"] == "false":
        mean, std = (np.array(json.loads(about[name]), np.float32) for name in ("mean", "std"))
        given = ((given / np.float32(255) - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)
    return session.run(None, {session.get_inputs()[0].name: given})[0][0]


def in_image(plane, place, shape):
    """Return a plane [size, size] of 0 to 255 in the image's own height and width."""
    top, left, tall, wide = place
    part = Image.fromarray(plane[top : top + tall, left : left + wide].astype(np.uint8))
    return np.asarray(part.resize((shape[1], shape[0]), Image.Resampling.NEAREST))
