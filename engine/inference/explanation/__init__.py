"""Explanation of a model's outputs by heat maps over images.

The methods are a few lines each on top of choosing layers and targets; the grad-cam package would add OpenCV and
matplotlib, and has neither local Grad-CAM of detections nor a choice of layers.
"""
