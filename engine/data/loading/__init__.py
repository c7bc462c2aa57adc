"""From samples to batches on the device, in time for the step."""
