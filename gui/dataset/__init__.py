"""Dataset page: examples, classes and augmentation."""
