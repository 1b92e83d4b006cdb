"""Builds the compiled extension: kernels without torch and bindings through torch's stable ABI.

On request it also builds the ccl backend, which does not use the stable ABI.
"""

import os
import platform
import sys
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

sys.path.insert(0, str(Path(__file__).resolve().parent / "build_tools"))
import ccl_extension
import package_page

ROOT = Path(__file__).resolve().parent
FOLDERS = ("csrc/bindings", "csrc/kernels")
SOURCES = sorted(str(file.relative_to(ROOT)) for folder in FOLDERS for file in (ROOT / folder).rglob("*.cpp"))

WARNINGS = ["-Wall", "-Wextra"]
# Torch's headers are included as system headers, so that only our code is checked for warnings.
STRICT = ["-Werror"] if os.environ.get("PYG_BATCHGNN_WERROR") == "1" else []
NATIVE = ["-march=native"] if os.environ.get("PYG_BATCHGNN_NATIVE") == "1" else []
# On aarch64 compilers join a product and a sum into one rounding by default. The baseline of x86-64
# cannot, and equal bits on both need two.
PORTABLE = [] if platform.machine() == "x86_64" else ["-ffp-contract=off"]


def _extension() -> CppExtension:
    extension = CppExtension(
        "pyg_batchgnn._C",
        SOURCES,
        py_limited_api=True,
        define_macros=[("TORCH_TARGET_VERSION", "0x020b000000000000")],
        # -g1: stacks and profiles show lines. Python's own -g takes a quarter longer to compile.
        extra_compile_args=["-std=c++20", "-O3", "-g1", "-fvisibility=hidden", *WARNINGS],
        extra_link_args=["-Wl,--as-needed", "-Wl,--compress-debug-sections=zlib"],
    )
    system = [flag for folder in extension.include_dirs for flag in ("-isystem", folder)]
    extension.extra_compile_args += [*STRICT, *NATIVE, *PORTABLE, *system]
    extension.include_dirs = [str(ROOT / "csrc")]
    return extension


class KeptObjects(BuildExtension):
    """Keeps objects in build/, so that ninja compiles only what has changed since the last build,
    be it an editable one or a wheel. Pip's own folder is temporary."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = str(ROOT / "build" / f"objects-torch-{torch.__version__}")


CCL = [ccl_extension.extension([*WARNINGS, *STRICT])] if ccl_extension.wanted() else []

setup(
    ext_modules=[_extension(), *CCL],
    cmdclass={"build_ext": KeptObjects},
    **package_page.metadata(ROOT),
    options={} if CCL else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
