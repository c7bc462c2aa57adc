"""Write the class of each pixel of an image as IMAGE-predicted.png.

python predict.py IMAGE
"""

import json
import sys
from pathlib import Path

import numpy as np
from image_input import about, classes, in_image, load, predict, squared
from PIL import Image

for path in sys.argv[1:]:
    pixels = load(path)
    square, place = squared(pixels)
    logits = predict(square)
    if about["task"] == "edge_detection":  # how likely an edge is there, white on black
        made = Image.fromarray(in_image(255 / (1 + np.exp(-logits[0])), place, pixels.shape))
        print(f"{path}: edges")
    else:
        lines = about["task"] == "road_extraction"  # whose first two scores are for background and line
        plane = in_image((logits[:2] if lines else logits).argmax(0), place, pixels.shape)
        made = Image.fromarray(plane)
        names = ["background", "line"] if lines else classes
        colors = ["#000000", "#ffffff"] if lines else json.loads(about["colors"])
        made.putpalette(b"".join(bytes.fromhex(color[1:] or "000000") for color in colors))
        print(path)
        for number in np.unique(plane):
            print(f"  {names[number]}: {100 * (plane == number).mean():.1f}%")
    made.save(f"{Path(path).with_suffix('')}-predicted.png")
