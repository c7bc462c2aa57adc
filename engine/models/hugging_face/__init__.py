"""Detectors and segmentation models of the package transformers, adapted to Footplate's tasks."""
