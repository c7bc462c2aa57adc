"""Data pipeline, from the files in a dataset folder to batches on the device.

`formats` and `inspection` never import torch, so that the form can inspect a folder without waiting for the import.
"""
