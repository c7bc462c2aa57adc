"""Data augmentation: random numbers for each sample, and the transforms that apply them on the device."""
