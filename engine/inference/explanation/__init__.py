"""Explain a model's outputs with heat maps over images.

The methods take only a few lines each. Most of the code chooses layers and targets. The grad-cam package would add
OpenCV and matplotlib, and offers neither local Grad-CAM for detections nor a choice of layers.
"""
