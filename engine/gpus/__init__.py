"""Who is there, what they do and who uses them: NVIDIA's GPUs through NVML, and the host's processor.

`python -m engine.gpus` prints one `engine.contract.devices.Snapshot` a line. Three processes take part, since
NVML's and CUDA's calls can hang or crash natively:

    watchdog (`__main__`, `sampler`, `watch`)   reads the processor, prints the snapshots, always answers
    reader   (`reader`, the modules of `nvml`)  asks NVML; killed and started again when it falls silent
    order    (`cuda_order`)                     asks CUDA once in which order it counts the GPUs, and ends

`quantities` and `xid_words` are the vocabulary that graphs, tables and exports share.

Neither torch nor Qt is imported anywhere here, and NVML is never loaded into the watchdog.
"""
