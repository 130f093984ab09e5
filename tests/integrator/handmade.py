"""Hand-written C++ grafts for preset:qwen3-tiny, and a run folder that holds them, without any search."""

from __future__ import annotations

from pathlib import Path

from extractor.extract import extract
from extractor.families import Family
from extractor.models import load_model
from extractor.run_folder import RunFolder, RunManifest
from extractor.schema import Phase
from extractor.task import Task, load_tasks
from optimizer.candidate import Candidate, Language
from optimizer.grafts import GraftFile, GraftRecord

# Any number of linears on one input: out[i] = in[0] x w[i]^T, float accumulators, dense bf16.
LINEARS = r"""
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void*) {
  const kg_tensor& x = in[0];
  if (x.dtype != KG_BF16 || !kg_contiguous(x)) return KG_UNSUPPORTED;
  const int64_t columns = x.size[x.ndim - 1], rows = kg_numel(x) / columns;
  for (int i = 0; i < COUNT; ++i) {
    const kg_bf16* weight = (const kg_bf16*)w[i].data;
    const int64_t features = w[i].size[0];
    for (int64_t r = 0; r < rows; ++r) {
      const kg_bf16* value = (const kg_bf16*)x.data + r * columns;
      for (int64_t f = 0; f < features; ++f) {
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < columns; ++c) sum += kg_to_float(value[c]) * kg_to_float(weight[f * columns + c]);
        ((kg_bf16*)out[i].data)[r * features + f] = kg_to_bf16(sum * FACTOR);
      }
    }
  }
  return KG_OK;
}
"""
# silu(gate) * up with eager's rounding: the product of two values rounded to bf16.
SILU_GATE = r"""
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor*, const kg_tensor* out, const void*) {
  if (!kg_contiguous(in[0]) || !kg_contiguous(in[1])) return KG_UNSUPPORTED;
  const kg_bf16 *gate = (const kg_bf16*)in[0].data, *up = (const kg_bf16*)in[1].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) {
    float g = kg_to_float(gate[i]);
    float s = kg_to_float(kg_to_bf16(g / (1.0f + std::exp(-g))));
    ((kg_bf16*)out[0].data)[i] = kg_to_bf16(s * kg_to_float(up[i]));
  }
  return KG_OK;
}
"""
LINEAR_FAMILIES = (
    Family.FFN_DOWN,
    Family.FFN_GATE_UP,
    Family.ATTENTION_OUTPUT,
    Family.ATTENTION_QKV,
    Family.LM_HEAD,
)


def source(task: Task, factor: float = 1.0) -> str | None:
    """C++ for the task, or None. ``factor`` other than 1 makes a linear wrong by that much."""
    if task.spec.family in LINEAR_FAMILIES:
        return f"#define COUNT {len(task.spec.weights)}\n#define FACTOR {factor}f\n{LINEARS}"
    return SILU_GATE if task.spec.family is Family.SILU_GATE else None


def extracted_run(path: Path, model: str = "preset:qwen3-tiny", batches: tuple[int, ...] = (1,)) -> RunFolder:
    """A run folder with the tasks of ``model``, bfloat16 on the CPU, prompt 8, 8 tokens."""
    loaded = load_model(model)
    manifest = RunManifest(
        model=model,
        dtype=loaded.dtype,
        device=loaded.device,
        attention=loaded.attention,
        batches=batches,
        prompt=8,
        tokens=8,
        created="2026-01-01T00:00:00+00:00",
    )
    run = RunFolder(path).create(manifest)
    extract(loaded, run, batches=batches, prompt=8, tokens=8)
    return run


def write_grafts(run: RunFolder, factors: dict[Family, float] | None = None) -> GraftFile:
    """``grafts.json`` with a hand-made kernel for every task there is one for."""
    records = []
    for task in load_tasks(run.tasks_dir):
        text = source(task, (factors or {}).get(task.spec.family, 1.0))
        if text is None:
            continue
        candidate = Candidate(Language.CPP, text)
        run.sources_dir.mkdir(exist_ok=True)
        (run.sources_dir / f"{candidate.sha}.cpp").write_text(text)
        workloads = {w.id: w.rows for w in task.spec.workloads if w.phase is Phase.DECODE}
        records.append(
            GraftRecord(
                task_id=task.id,
                op_key=task.spec.op_key,
                family=task.spec.family,
                language=Language.CPP,
                candidate_sha=candidate.sha,
                source_file=f"sources/{candidate.sha}.cpp",
                workloads=tuple(workloads),
                rows=workloads,
                ratios=dict.fromkeys(workloads, 1.5),
                speedup=1.5,
                trajectory=0,
                turn=0,
                policy="hand",
            )
        )
    grafts = GraftFile(machine="test", complete=True, grafts=tuple(records))
    grafts.save(run.path)
    return grafts
