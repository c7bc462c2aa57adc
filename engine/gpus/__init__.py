"""Sampling of GPUs through NVML and of the host's processor.

`python -m engine.gpus` prints one `engine.contract.devices.Snapshot` per line. NVML and CUDA calls can hang or crash
natively, so three processes share the work:

    watchdog (`__main__`, `watch`)            reads the processor, prints snapshots, always responds
    reader   (`reader`, the modules of `nvml`)  calls NVML; killed and restarted when it stops responding
    order    (`cuda_order`)                     asks CUDA once for its order of the GPUs, then exits

`quantities` holds the names, units and texts that graphs, tables and exports share.

Nothing here imports torch or Qt, and the watchdog never loads NVML.
"""
