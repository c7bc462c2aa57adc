"""Reading of all quantities that NVML reports, in the process that may hang with it.

`nvml_reader` holds all GPUs and schedules their readings, `device` is one GPU from discovery to loss, `queries` reads
its quantities while it is awake. `fields`, `traffic`, `activity`, `xids`, `mig`, `processes` and `topology` read parts of
them. All go through `calls`, which remembers unsupported quantities.
"""
