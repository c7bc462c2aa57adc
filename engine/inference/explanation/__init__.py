"""Explain a model's outputs with heat maps over images.

The methods take only a few lines each. Most of the code chooses layers and targets. The package grad-cam would add
OpenCV and matplotlib as dependencies, and it offers neither local Grad-CAM for detections nor a choice of layers.
"""
