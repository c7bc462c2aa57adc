"""Fake installations of torch that consist only of descriptive files, in a folder for PYTHONPATH.

    folder = write_torch_build(folder, "2.15.0+cpu")

Code that reads the files sees that build. Code that imports torch gets the installed one.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

IMPORT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("torch", {file!r}, submodule_search_locations=[{folder!r}])
module = sys.modules["torch"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


def write_torch_build(folder: Path, version: str, cuda: str | None = None, architectures: tuple[str, ...] = ()) -> Path:
    """Write the files that describe a torch build into `folder`, and return `folder`.

    `cuda` is the version of CUDA, or None for a build for CPUs. `architectures` are those of the build's GPU code, such
    as "sm_90".
    """
    real = PathFinder.find_spec("torch")
    assert real is not None
    assert real.origin is not None
    torch = folder / "torch"
    (torch / "include" / "ATen" / "cuda").mkdir(parents=True)
    (torch / "__init__.py").write_text(IMPORT.format(file=real.origin, folder=str(Path(real.origin).parent)))
    (torch / "version.py").write_text(
        "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        f"__version__ = {version!r}\ndebug = False\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
    )
    flags = ";".join(f"-gencode;arch=compute_{name.split('_')[1]},code={name}" for name in architectures)
    if cuda is not None:
        (torch / "include" / "ATen" / "cuda" / "CUDAConfig.h").write_text(f'#define NVCC_FLAGS_EXTRA "{flags}"\n')
    return folder
