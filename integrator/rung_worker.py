"""The process of one Inductor rung: load the model, compile its decode step, decode a chunk whenever asked.

Run as ``python -m integrator.rung_worker '<WorkerSpec as JSON>'``. Says one JSON line when ready, then answers one
line a request. What it cannot do it lets crash: the other side reads the last line of the traceback.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import torch

from extractor.models import load_model
from integrator.engine import DecodeEngine
from integrator.ledger_schema import Rung
from integrator.rungs import WorkerSpec


def main(spec: WorkerSpec) -> None:
    """Serve one rung until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a compiler prints must not reach the protocol
    torch.set_num_threads(spec.threads)
    loaded = load_model(
        spec.model, dtype=spec.dtype, attention=spec.attention, seed=spec.seed, revision=spec.revision
    )
    engine = DecodeEngine.prepare(
        loaded.model, batch=spec.batch, prompt=spec.prompt, tokens=spec.tokens, seed=spec.seed
    )
    mode = None
    if spec.rung == Rung.INDUCTOR_MAX:
        torch._inductor.config.freezing = True
        mode = "max-autotune"
    forward = torch.compile(loaded.model.forward, mode=mode, fullgraph=True, dynamic=False)
    started = time.perf_counter()
    engine.decode(forward, 2)
    print(json.dumps({"compile_seconds": time.perf_counter() - started}), file=answers, flush=True)
    for line in sys.stdin:
        seconds = engine.time(forward, json.loads(line)["steps"])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_rss_bytes": peak}), file=answers, flush=True)


if __name__ == "__main__":
    main(WorkerSpec(**json.loads(sys.argv[1])))
