"""Building blocks of the strategies that cut the model into stages."""
