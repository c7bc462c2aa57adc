"""Dataset formats, one module each: detection in a folder and reading of its annotations. Torch-free."""
