"""Dataset formats, one module for each: detecting it in a folder and reading its annotations. Torch-free."""
