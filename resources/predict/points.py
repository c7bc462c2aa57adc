"""Write the class of each point of a cloud as POINTS-predicted.npy.

    python predict.py POINTS.npy

POINTS.npy holds an array [points, 3 + features]: x, y, z and the features of the training. Use parts of clouds of about the
size in the training.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(str(Path(__file__).with_name("model.onnx")), providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
classes, count = json.loads(about["classes"]), int(about["points"])

for path in sys.argv[1:]:
    points = np.load(path).astype(np.float64)
    points[:, :3] -= points[:, :3].mean(0)  # before float32, which has no room for coordinates of maps
    order = np.random.default_rng(0).permutation(len(points))
    found = np.zeros(len(points), np.uint8)
    for begin in range(0, len(points), count):
        rows = np.resize(order[begin : begin + count], count)  # points come twice where there are too few
        given = points[rows].astype(np.float32)
        if about["normalized_in_file"] == "false":
            mean, std = (np.array(json.loads(about[name]), np.float32) for name in ("mean", "std"))
            given = ((given - mean) / std).T
        found[rows] = session.run(None, {session.get_inputs()[0].name: given[None]})[0][0].argmax(0)
    print(path)
    for number in np.unique(found):
        print(f"  {classes[number]}: {100 * (found == number).mean():.1f}%")
    np.save(f"{Path(path).with_suffix('')}-predicted.npy", found)
