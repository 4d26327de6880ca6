"""The adaptive persistent kernel (APK): decode and prefill of all layers share one expert GPU.

shape.py       rows, extents, units                    pure
interface.py   ExpertKernel: slots, ready, done        the contract
numerics.py    formats, FP32 arithmetic, error bound
reference.py   the contract in torch, on the CPU
csrc/          the kernel for sm_90a
layout.py      structs shared with csrc/               pure
build.py       nvcc, cubin cache, build gates
device.py      the contract on an H100 or H200
command.py     afd kernels build | test | bench | tune
"""
