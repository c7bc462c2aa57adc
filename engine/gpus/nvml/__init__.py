"""What NVML tells of the GPUs, in the process that may hang with it.

`nvml_reader` holds all GPUs and says when what is due, `device` is one of them from being found to being lost,
`queries` is what it tells while it is awake; `fields`, `traffic`, `activity`, `xids`, `mig`, `processes` and
`topology` are parts of that, and all of them ask through `calls`, which knows what a GPU does not support.
"""
