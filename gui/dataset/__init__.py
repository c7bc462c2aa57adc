"""The dataset looked at: examples, classes, augmentation."""
