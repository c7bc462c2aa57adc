"""Detectors and segmenters of the package transformers, for Footplate's tasks."""
