"""Sample the GPUs through NVML, and the processor of this host.

`python -m engine.gpus` prints one `engine.contract.devices.Snapshot` per line. Since calls of NVML and CUDA may hang or
crash, three processes share the work:

- The watchdog (`__main__`, `watch`) reads the processor, prints snapshots, and always responds.
- The reader (`reader`, the modules of `nvml`) calls NVML. It is killed and restarted when it stops responding.
- A third process (`cuda_order`) asks CUDA once for its order of the GPUs, and exits.

`quantities` defines names, units and texts for graphs, tables and exports.

No module imports torch or Qt, and the watchdog never loads NVML.
"""
