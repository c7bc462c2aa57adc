"""Print the classes of an image.

python predict.py IMAGE
"""

import sys

import numpy as np
from image_input import about, classes, load, predict, squared

for path in sys.argv[1:]:
    square, _ = squared(load(path))
    logits = predict(square)
    if about["task"] == "multilabel":
        likely = 1 / (1 + np.exp(-logits))
        shown = [number for number in np.argsort(-likely) if likely[number] >= float(about["score_threshold"])]
    else:
        likely = np.exp(logits - logits.max())
        likely /= likely.sum()
        shown = np.argsort(-likely)[:5]
    print(path)
    for number in shown:
        print(f"  {classes[number]}: {100 * likely[number]:.1f}%")
