"""Line plots that share a time axis, with their axes, annotations and readouts."""
