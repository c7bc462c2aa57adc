"""From the files of a dataset folder to batches on the device.

`formats` and `inspection` never import torch, so that the form can look a folder through at once.
"""
