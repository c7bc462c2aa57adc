"""Where a model is wrong, where the labels of its dataset may be, and which samples occur twice."""
