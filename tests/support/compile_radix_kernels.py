"""Compile the kernels of the radix select for an H100. This needs triton 3.4 or later, but no GPU. Prints the name of each kernel.

Triton's interpreter accepts programs that its compiler refuses.
"""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_reservoir.masks import radix_kernels

POINTERS = {"totals": "*i32", "parts": "*i32", "mask": "*i8"}


def compile_for_gpu(name, dtype, multiple_of_16, warps=4, **constants):
    """Compile one kernel for scores of ``dtype``, such as ``fp32``."""
    kernel = getattr(radix_kernels, name)
    types = POINTERS | {"scores": f"*{dtype}"} | dict.fromkeys(constants, "constexpr")
    signature = {argument: types.get(argument, "i32") for argument in kernel.arg_names}
    aligned = {(i,) for i, argument in enumerate(kernel.arg_names) if types.get(argument, "").startswith("*")}
    aligned |= {(kernel.arg_names.index("n"),)} if multiple_of_16 else set()
    source = ASTSource(kernel, signature, constants, dict.fromkeys(aligned, [["tt.divisibility", 16]]))
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    assert len(binary.asm["cubin"])
    print(name, flush=True)


def main():
    for dtype, magnitude in (("fp32", True), ("bf16", False), ("fp16", True)):
        multiple = dtype == "fp32"
        sizes = {"MAGNITUDE": magnitude, "BLOCKS": 8 if multiple else 1, "BLOCK": 2048}
        for level in range(radix_kernels.LEVELS):
            compile_for_gpu("count_digits", dtype, multiple, LEVEL=level, **sizes)
        compile_for_gpu("write_mask", dtype, multiple, ADD=not magnitude, **sizes)
    for rows, columns, warps in ((64, 16, 1), (1, 1024, 1), (1, 16_384, 16)):
        shape = {"ROWS": rows, "COLUMNS": columns}
        compile_for_gpu("select_in_registers", "fp32", warps > 1, warps, MAGNITUDE=warps > 1, ADD=True, **shape)


if __name__ == "__main__":
    main()
