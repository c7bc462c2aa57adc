"""Reading of all quantities that NVML reports, in a process of its own because NVML may hang.

`nvml_reader` reads all GPUs and schedules their readings, `device` handles a GPU from discovery to loss, and `queries`
reads its quantities while it is awake. `fields`, `traffic`, `activity`, `xids`, `mig`, `processes` and `topology` each
read some of them. All use `calls`, which remembers unsupported quantities.
"""
