"""The compiled extension: torch-free kernels and thin bindings through torch's stable ABI. On request another
one, which is not stable ABI: the ccl backend."""

import os
import sys
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

sys.path.insert(0, str(Path(__file__).resolve().parent / "build_tools"))
import ccl_extension

SOURCES = [
    "csrc/kernels/allocation.cpp",
    "csrc/kernels/csc.cpp",
    "csrc/kernels/gather.cpp",
    "csrc/kernels/nn/activation.cpp",
    "csrc/kernels/nn/covariance.cpp",
    "csrc/kernels/nn/folded_norm.cpp",
    "csrc/kernels/nn/linear.cpp",
    "csrc/kernels/nn/linear_grads.cpp",
    "csrc/kernels/nn/linear_grads_pairs.cpp",
    "csrc/kernels/nn/norm.cpp",
    "csrc/kernels/node_set.cpp",
    "csrc/kernels/pages.cpp",
    "csrc/kernels/parallel.cpp",
    "csrc/kernels/relay/answer.cpp",
    "csrc/kernels/relay/relay.cpp",
    "csrc/kernels/partition/group.cpp",
    "csrc/kernels/partition/place.cpp",
    "csrc/kernels/partition/stream.cpp",
    "csrc/kernels/sample.cpp",
    "csrc/kernels/simd/activation.cpp",
    "csrc/kernels/nn/aggregate.cpp",
    "csrc/kernels/nn/degrees.cpp",
    "csrc/kernels/nn/edge_dots.cpp",
    "csrc/kernels/nn/max.cpp",
    "csrc/kernels/nn/transpose.cpp",
    "csrc/kernels/nn/attention.cpp",
    "csrc/kernels/nn/attention_blocks.cpp",
    "csrc/kernels/simd/attention.cpp",
    "csrc/kernels/simd/attention_avx2.cpp",
    "csrc/kernels/simd/attention_avx512.cpp",
    "csrc/kernels/simd/attention_baseline.cpp",
    "csrc/kernels/simd/covariance.cpp",
    "csrc/kernels/simd/dispatch.cpp",
    "csrc/kernels/simd/finish_pairs.cpp",
    "csrc/kernels/simd/norm.cpp",
    "csrc/kernels/simd/products.cpp",
    "csrc/kernels/simd/products_avx2.cpp",
    "csrc/kernels/simd/products_avx512.cpp",
    "csrc/kernels/simd/products_baseline.cpp",
    "csrc/kernels/simd/products_pairs.cpp",
    "csrc/kernels/simd/sparse_pairs.cpp",
    "csrc/kernels/simd/scan.cpp",
    "csrc/kernels/simd/sum_rows.cpp",
    "csrc/kernels/simd/sum_rows_avx2.cpp",
    "csrc/kernels/simd/sum_rows_avx512.cpp",
    "csrc/bindings/operators.cpp",
    "csrc/bindings/aggregate_ops.cpp",
    "csrc/bindings/attention_ops.cpp",
    "csrc/bindings/folded_norm_ops.cpp",
    "csrc/bindings/graph_ops.cpp",
    "csrc/bindings/linear_ops.cpp",
    "csrc/bindings/memory_ops.cpp",
    "csrc/bindings/norm_ops.cpp",
    "csrc/bindings/relay_ops.cpp",
    "csrc/bindings/partition_ops.cpp",
    "csrc/bindings/sample_ops.cpp",
]

WARNINGS = ["-Wall", "-Wextra"]
# Torch's headers are not ours to mend, so they are included as system headers and only our code may not warn.
STRICT = ["-Werror"] if os.environ.get("PYG_BATCHGNN_WERROR") == "1" else []
NATIVE = ["-march=native"] if os.environ.get("PYG_BATCHGNN_NATIVE") == "1" else []


def _extension() -> CppExtension:
    extension = CppExtension(
        "pyg_batchgnn._C",
        SOURCES,
        py_limited_api=True,
        define_macros=[("TORCH_TARGET_VERSION", "0x020d000000000000")],
        extra_compile_args=["-std=c++20", "-O3", "-fvisibility=hidden", *WARNINGS, *STRICT, *NATIVE],
        extra_link_args=["-Wl,--as-needed"],
    )
    system = [flag for folder in extension.include_dirs for flag in ("-isystem", folder)]
    extension.extra_compile_args += system
    extension.include_dirs = [str(Path(__file__).resolve().parent / "csrc")]
    return extension


CCL = [ccl_extension.extension([*WARNINGS, *STRICT])] if ccl_extension.wanted() else []

setup(
    ext_modules=[_extension(), *CCL],
    cmdclass={"build_ext": BuildExtension},
    options={} if CCL else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
