"""Page of the dataset: examples, classes and augmentation."""
