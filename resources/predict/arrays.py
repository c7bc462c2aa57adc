"""Print the model's output for an array.

    python predict.py INPUT.npy

INPUT.npy holds one sample in the model's input format.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(str(Path(__file__).with_name("model.onnx")), providers=["CPUExecutionProvider"])

for path in sys.argv[1:]:
    output = session.run(None, {session.get_inputs()[0].name: np.load(path)[None]})[0][0]
    print(path, output.shape)
    print(output)
