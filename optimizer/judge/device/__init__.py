"""Judging on a GPU: memory shared by device IPC, timing from outside, a watch on device memory, builders ahead.

Who runs where. *Judge side* (trusted): :mod:`.arena`, :mod:`.timing`, :mod:`.watch`, :mod:`.roofline`, :mod:`.builds`,
:mod:`.bench`. *Worker side* (beside the candidate): :mod:`.memory`, :mod:`.stage`. Both: :mod:`.driver`.
"""
