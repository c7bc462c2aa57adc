"""Read all quantities that NVML reports. This is done in a separate process because NVML may hang.

`nvml_reader` reads all GPUs and decides which quantities are due, `device` represents a GPU from discovery to loss, and
`queries` reads its quantities while it is awake. `fields`, `traffic`, `activity`, `xids`, `mig`, `processes` and
`topology` each read some of them. All use `calls`, which remembers unsupported quantities.
"""
