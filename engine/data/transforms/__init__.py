"""Augmentation: what is drawn for each sample, and what becomes of it on the device."""
