"""The rules of CUDA C++ sources, as found in the string constants of a candidate of language cuda."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from optimizer.judge.screens import cpp
from optimizer.judge.screens.pasting import pasted_name
from optimizer.judge.screens.refusal import Refusal
from optimizer.judge.screens.tokens import (
    Ban,
    Token,
    banned_name,
    hooked_attribute,
    includes,
    literal_header,
    names,
    tokenize,
)

_HEADERS = cpp.ALLOWED_HEADERS | names(
    "cooperative_groups.h cuda.h cuda_runtime.h cuda_runtime_api.h cuda_fp16.h cuda_bf16.h cuda_fp8.h "
    "cuda_fp4.h cuda_fp6.h cuda_pipeline.h cuda_pipeline_primitives.h cudaTypedefs.h cublas_v2.h cublasLt.h cudnn.h "
    "curand_kernel.h cuComplex.h cuda_awbarrier.h cuda_awbarrier_primitives.h device_launch_parameters.h "
    "math_constants.h math_functions.h mma.h sm_61_intrinsics.h vector_types.h vector_functions.h mutex map "
    "unordered_map set unordered_set string string_view sstream stdexcept optional variant iterator ranges span "
    "complex exception cinttypes inttypes.h iostream cstdio stdio.h"
) - names("kg.h omp.h")
_FOLDERS = (
    "torch/",
    "ATen/",
    "c10/",
    "cooperative_groups/",
    "cub/",
    "thrust/",
    "cuda/",
    "cutlass/",
    "cute/",
    "nv/",
)
_FOLDERS_NOT = ("torch/csrc/distributed", "torch/csrc/api/include/torch/serialize", "c10/util/tempfile")

_CURRENT_STREAM = "launch on at::cuda::getCurrentCUDAStream(); the judge captures the graph itself"
_FOR_CPP = {  # rules of the cpp language that hold here with other words
    "no files, sockets or output": "nothing is read or printed; report errors with TORCH_CHECK",
    "no signals, exits or jumps out": "report errors with TORCH_CHECK",
}
# System calls of the cpp language whose headers are not accepted here, and whose names are methods of at::Tensor.
_TENSOR_METHODS = names("clone")
BANS = (
    *(
        dataclasses.replace(
            ban, names=ban.names - _TENSOR_METHODS, instead=_FOR_CPP.get(ban.rule, ban.instead)
        )
        for ban in cpp.BANS
        if not ban.rule.startswith(("no inline assembly", "no threads"))
    ),
    Ban(
        "no threads or processes",
        names(
            "pthread_create pthread_t thread jthread async thrd_create promise packaged_task omp_set_num_threads "
            "set_num_threads intraop_launch cudaLaunchHostFunc cudaStreamAddCallback cuLaunchHostFunc"
        ),
        "a forward computes on the calling thread and is done when it returns",
        called_only=names("async thread promise"),
    ),
    Ban(
        "no streams, events or graphs",
        names(
            "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cuStreamCreate getStreamFromPool "
            "getStreamFromExternal setCurrentCUDAStream CUDAStreamGuard cudaStreamNonBlocking cudaStreamPerThread "
            "cudaStreamLegacy cudaEventCreate cudaEventCreateWithFlags cudaEventRecord cuEventRecord CUDAEvent "
            "cudaStreamWaitEvent cudaStreamBeginCapture cudaStreamEndCapture cudaGraphLaunch cudaGraphInstantiate "
            "cudaGraphExec_t CUDAGraph cudaStreamFireAndForget cudaStreamTailLaunch"
        ),
        _CURRENT_STREAM,
    ),
    Ban(
        "no probing of the judge",
        names(
            "cudaStreamIsCapturing cudaStreamGetCaptureInfo currentStreamCaptureStatus cudaMemGetInfo cuMemGetInfo"
        ),
        "compute the same in every call, whoever makes it",
    ),
    Ban(
        "no clocks",
        names("clock64 globaltimer __globaltimer cudaEventElapsedTime cuEventElapsedTime __nanosleep"),
        "what a kernel does may depend on its arguments only",
    ),
    Ban(
        "no foreign memory",
        names(
            "cudaIpcGetMemHandle cudaIpcOpenMemHandle cuIpcOpenMemHandle cudaHostRegister cudaDeviceReset "
            "cudaDeviceSetLimit cudaDeviceEnablePeerAccess cuMemImportFromShareableHandle cuCtxDestroy "
            "cudaMemPoolImportFromShareableHandle cuDevicePrimaryCtxReset cuPointerGetAttribute cuMemGetAddressRange"
        ),
        "a candidate reads its arguments and its own weights",
    ),
    Ban(
        "no calls back into Python",
        names(
            "PyRun_SimpleString PyRun_String PyEval_EvalCode PyImport_ImportModule PyImport_AddModule "
            "PyObject_CallObject PyObject_SetAttrString PyObject_SetAttr PyGILState_Ensure PyEval_GetFrame "
            "PyThreadState_Get Py_CompileString exec eval"
        ),
        "the extension only computes on tensors",
        called_only=names("exec eval"),
    ),
    Ban(
        "no patching",
        names(
            "TORCH_LIBRARY TORCH_LIBRARY_IMPL TORCH_LIBRARY_FRAGMENT TORCH_LIBRARY_THREAD_UNSAFE_LAZY_INIT "
            "TORCH_LIBRARY_FRAGMENT_THREAD_UNSAFE_LAZY_INIT TORCH_LIBRARY_IMPL_THREAD_UNSAFE_LAZY_INIT "
            "Library RegisterOperators registerImpl registerDef registerLibrary registerFallback "
            "RecordFunctionCallback addGlobalCallback addThreadLocalCallback setAllocator changeCurrentAllocator"
        ),
        "leave torch's operators as they are",
    ),
)
_IN_ASSEMBLY = ("globaltimer", "%clock", "nanosleep", "brkpt")


def screen_cuda(source: str) -> Refusal | None:
    """The first rule one CUDA or C++ source of an extension breaks, or None. Lines count within ``source``."""
    tokens = list(tokenize(source))
    return (
        _headers(tokens)
        or banned_name(tokens, BANS)
        or pasted_name(tokens, BANS)
        or _assembly(tokens)
        or _kept_answers(tokens)
        or hooked_attribute(tokens, "the functions that forward calls")
    )


def defines_kernel(source: str) -> bool:
    """True if the source has a ``__global__`` function (in code, not in a comment)."""
    return any(token.kind == "name" and token.text == "__global__" for token in tokenize(source))


def _headers(tokens: Sequence[Token]) -> Refusal | None:
    for found in includes(tokens):
        header = literal_header(found.header)
        allowed = header in _HEADERS or (
            header.startswith(_FOLDERS) and not header.startswith(_FOLDERS_NOT) and ".." not in header
        )
        if found.directive != "include" or not allowed:
            shown = header or found.header or "nothing"
            detail = (
                f"#{found.directive} of {shown} is not accepted; torch/extension.h, ATen, c10, the CUDA toolkit's "
                "device headers (cuda_fp16.h, mma.h, cub, cooperative_groups) and plain C++ headers are"
            )
            return Refusal("headers", found.line, detail)
    return None


def _assembly(tokens: Sequence[Token]) -> Refusal | None:
    """PTX may compute; it may not tell the time or wait."""
    for token in tokens:
        word = next((word for word in _IN_ASSEMBLY if token.kind == "string" and word in token.text), None)
        if word is not None:
            return Refusal(
                "no clocks", token.line, f"`{word}` in PTX is not accepted; use PTX to compute only"
            )
    return None


def _kept_answers(tokens: Sequence[Token]) -> Refusal | None:
    """Tables that look tensors up: what is found there was computed by an earlier call."""
    for i, token in enumerate(tokens):
        if token.text not in ("map", "unordered_map") or [t.text for t in tokens[i + 1 : i + 2]] != ["<"]:
            continue
        depth = 0
        for inner in tokens[i + 1 : i + 64]:
            depth += (inner.text == "<") - (inner.text == ">")
            if inner.text in ("Tensor", "TensorList"):
                detail = "a table of tensors outlives the call; compute every call from its arguments"
                return Refusal("no caching between calls", token.line, detail)
            if not depth:
                break
    return None
