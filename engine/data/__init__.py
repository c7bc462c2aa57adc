"""Data pipeline from the files of a dataset folder to batches on the device.

`formats` and `inspection` never import torch, so that the form inspects a folder without delay.
"""
