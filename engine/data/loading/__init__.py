"""Load samples into batches on the device, ahead of the training step."""
