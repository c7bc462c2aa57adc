"""Print the objects in an image with their boxes.

    python predict.py IMAGE

Masks, if the model has any, are written as IMAGE-NUMBER.png.
"""

import sys
from pathlib import Path

import numpy as np
from image_input import about, classes, load, predict, squared
from PIL import Image

for path in sys.argv[1:]:
    pixels = load(path)
    square, (top, left, tall, wide) = squared(pixels)
    height, width = pixels.shape[:2]
    print(path)
    for number, found in enumerate(predict(square)):
        x1, y1, x2, y2, score, of_class = found[:6]
        if score < float(about["score_threshold"]):
            continue
        across, down = width / wide, height / tall
        box = [
            round(each) for each in ((x1 - left) * across, (y1 - top) * down, (x2 - left) * across, (y2 - top) * down)
        ]
        print(f"  {classes[int(of_class)]} {100 * score:.0f}%: from ({box[0]}, {box[1]}) to ({box[2]}, {box[3]})")
        if len(found) > 6:
            side = round((len(found) - 6) ** 0.5)
            part = Image.fromarray(np.rint(found[6:].reshape(side, side) * 255).astype(np.uint8))
            mask = Image.new("L", (width, height))
            sides = max(1, box[2] - box[0]), max(1, box[3] - box[1])
            mask.paste(part.resize(sides, Image.Resampling.BILINEAR).point(lambda value: 255 * (value > 127)), box[:2])
            mask.save(f"{Path(path).with_suffix('')}-{number}.png")
