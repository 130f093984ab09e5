"""Judging Python candidates (a KernelBench file with ``ModelNew``): a warm process that forks one worker for each.

``zygote`` is the warm process, ``spawn`` the judge's handle on it and on its workers, ``host`` what runs in a worker,
``launches`` counts and suppresses custom kernels, ``claims`` checks what a forward returned, ``interpreter`` makes
Triton's interpreter exact and bounds-checked, ``bench`` judges Triton candidates where there is no GPU.
"""
