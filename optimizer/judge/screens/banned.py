"""Rules about names in Python candidates: what may be imported, and which names are accepted nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from optimizer.judge.screens.origins import Origins, attribute_of, under
from optimizer.judge.screens.refusal import Refusal
from optimizer.judge.screens.tokens import names

IMPORTS = names(
    "__future__ abc collections contextlib copy dataclasses enum functools itertools math numbers numpy operator "
    "string textwrap torch triton typing typing_extensions warnings"
)
# Standard modules that torch, triton or numpy modules happen to carry as attributes.
_CARRIED = names(
    "os sys subprocess inspect gc ctypes importlib builtins threading multiprocessing time socket io pickle shutil "
    "tempfile pathlib signal atexit asyncio concurrent weakref traceback types mmap platform runpy code marshal"
)


class _Ban(NamedTuple):
    rule: str
    instead: str
    prefixes: frozenset[str] = frozenset()  # dotted names, with everything under them
    attributes: frozenset[str] = frozenset()  # attribute names of whatever object


_BANS = (
    _Ban(
        "no streams, events or graphs",
        "launch on the current stream; the judge times the whole device and captures the graph itself",
        names(
            "torch.cuda.Stream torch.cuda.ExternalStream torch.cuda.stream torch.cuda.streams torch.cuda.StreamContext "
            "torch.cuda.set_stream torch.cuda.default_stream torch.cuda.Event torch.cuda.CUDAGraph torch.cuda.graph "
            "torch.cuda.graphs torch.cuda.make_graphed_callables torch.Stream torch.Event torch.accelerator"
        ),
        names(
            "record_stream wait_stream record_event wait_event capture_begin capture_end make_graphed_callables "
            "ExternalStream CUDAGraph"
        ),
    ),
    _Ban(
        "no threads or processes",
        "a forward computes on the calling thread and is done when it returns",
        names(
            "torch.multiprocessing torch.distributed torch.futures torch.utils.data torch.jit.fork torch.jit._fork "
            "torch.cuda.ipc_collect"
        ),
        names("share_memory_ ThreadPoolExecutor ProcessPoolExecutor"),
    ),
    _Ban(
        "no clocks",
        "what a candidate does may depend on its arguments only; for tuning use @triton.autotune",
        names("triton.testing triton.profiler torch.profiler torch.autograd.profiler torch.utils.benchmark"),
        names("globaltimer perf_counter monotonic elapsed_time do_bench do_bench_cudagraph"),
    ),
    _Ban(
        "no probing of the judge",
        "compute the same in every call, whoever makes it",
        names(
            "torch.compiler.is_compiling torch.compiler.is_dynamo_compiling triton.knobs torch.cuda.memory_stats "
            "torch.cuda.memory_snapshot torch.cuda.utilization torch.cuda.mem_get_info"
        ),
        names("is_current_stream_capturing is_capturing _cuda_isCurrentStreamCapturing"),
    ),
    _Ban(
        "no torch.compile",
        "a candidate is a kernel of its own: write what the compiler would, in Triton or CUDA",
        names("torch.compile torch._dynamo torch.jit torch.export torch.fx torch.onnx"),
    ),
    _Ban(
        "no patching",
        "leave torch and triton as they are",
        names(
            "torch.library.Library torch.library.impl torch.overrides torch.utils._python_dispatch torch.package "
            "triton.runtime.jit triton.runtime.interpreter triton.compiler triton.backends "
            "torch.cuda.memory.CUDAPluggableAllocator torch.cuda.memory.change_current_allocator torch.cuda.MemPool "
            "torch.cuda.use_mem_pool"
        ),
        names("register_module_forward_hook register_module_forward_pre_hook py_impl redispatch"),
    ),
    _Ban(
        "no tensor subclasses",
        "return plain torch.Tensor objects that are computed when forward returns",
        attributes=names(
            "as_subclass _make_subclass _make_wrapper_subclass __torch_function__ __torch_dispatch__"
        ),
    ),
    _Ban(
        "no files or output",
        "nothing is read or printed; everything a candidate needs is in its source",
        names(
            "torch.load torch.save torch.hub torch.from_file torch.serialization torch.classes torch.ops.load_library "
            "torch.ops.load numpy.load numpy.save numpy.savez numpy.savez_compressed numpy.loadtxt numpy.savetxt "
            "numpy.fromfile numpy.memmap numpy.genfromtxt numpy.lib torch.cuda.memory._dump_snapshot"
        ),
        names("from_file tofile load_library"),
    ),
    _Ban(
        "no introspection",
        "a candidate sees its arguments and its own weights, nothing of its caller",
        names("numpy.ctypeslib torch.monitor"),
        names(
            "f_back f_locals f_globals f_builtins f_code gi_frame cr_frame ag_frame tb_frame tb_next co_consts co_code "
            "_getframe get_objects get_referrers get_referents func_globals"
        ),
    ),
    _Ban(
        "no foreign memory",
        "a candidate reads its arguments and its own weights, by torch operators and kernels",
        names(
            "torch.frombuffer torch.UntypedStorage torch.TypedStorage torch.Storage torch.FloatStorage "
            "torch.storage torch.from_dlpack torch.utils.dlpack numpy.frombuffer numpy.from_dlpack "
            "torch.cuda.caching_allocator_alloc torch.cuda.memory torch.utils.cpp_extension.CUDA_HOME"
        ),
        names("untyped_storage _untyped_storage set_ ctypes __array_interface__ __cuda_array_interface__"),
    ),
)
_ALLOWED_PRIVATE = (  # private names of torch that have no public spelling and only compute
    "torch._scaled_mm",
    "torch._int_mm",
    "torch._grouped_mm",
    "torch._scaled_grouped_mm",
    "torch._weight_int8pack_mm",
    "torch._weight_int4pack_mm",
    "torch._addmm_activation",
    "torch._softmax",
    "torch._check",
    "torch._assert",
    "torch.ops",
    "torch.nn.modules.utils",
    "torch._inductor.runtime.triton_helpers",
    "torch._inductor.runtime.libdevice",
)
ALLOWED_DUNDERS = names(
    "__init__ __call__ __repr__ __str__ __len__ __getitem__ __setitem__ __iter__ __next__ __contains__ __post_init__ "
    "__enter__ __exit__ __hash__ __eq__ __lt__ __name__ __version__ __all__ __slots__ __doc__ __annotations__ __bool__ "
    "__int__ __float__ __add__ __mul__ __sub__ __matmul__ __setstate__"
)
# Refused in any use, and refused only when called or not bound by the file (they are fair names for a variable).
_CODE = names("exec eval compile __import__ breakpoint")
_REACH = names("globals locals vars delattr __builtins__ __loader__ __spec__ __file__")
_FILES = names("open input print help")
_SOFT_REACH = names("dir memoryview exit quit")


def imports(tree: ast.Module, *, extensions: bool) -> Iterator[Refusal]:
    """Imports outside of what a kernel needs. ``extensions`` accepts ``torch.utils.cpp_extension``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level or any(item.name == "*" for item in node.names):
                what = "a relative import" if node.level else "import *"
                yield Refusal(
                    "imports", node.lineno, f"{what} is not accepted; name what you use of torch or triton"
                )
                continue
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if module.split(".")[0] not in IMPORTS:
                shown = "torch, triton, numpy, math, typing, dataclasses, functools, itertools, collections, contextlib"
                yield Refusal(
                    "imports", node.lineno, f"`{module}` is not accepted; use only {shown} and enum"
                )
            elif under(module, "torch.utils.cpp_extension") and not extensions:
                yield Refusal("imports", node.lineno, _NO_EXTENSION)


_NO_EXTENSION = (
    "`torch.utils.cpp_extension` is for candidates of language cuda; here write the kernel with triton.jit"
)


def names_used(tree: ast.Module, origins: Origins, *, extensions: bool) -> Iterator[Refusal]:
    """Names that no rule accepts, however they are spelled: imported, aliased, or as an attribute of any object."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for item in node.names:
                yield from _dotted(f"{node.module}.{item.name}", node.lineno, extensions)
        elif isinstance(node, ast.Import):
            for item in node.names:
                yield from _dotted(item.name, node.lineno, extensions)
        elif isinstance(node, ast.Name) and node.id == "__name__" and not isinstance(node.ctx, ast.Load):
            yield Refusal("no dynamic code", node.lineno, "`__name__` is not the candidate's to set")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield from _builtin(node, origins, id(node) in called)
            origin = origins.of(node)
            if origin is not None:
                yield from _dotted(origin, node.lineno, extensions)
        elif isinstance(node, ast.Attribute | ast.Call):
            step = attribute_of(node)
            if step is None:
                continue
            yield from _attribute(step[1], node.lineno)
            origin = origins.of(node)
            if origin is not None:
                yield from _dotted(origin, node.lineno, extensions)


def _dotted(origin: str, line: int, extensions: bool) -> Iterator[Refusal]:
    for ban in _BANS:
        if any(under(origin, prefix) for prefix in ban.prefixes):
            yield Refusal(ban.rule, line, f"`{origin}` is not accepted; {ban.instead}")
            return
    root, *parts = origin.split(".")
    if root not in ("torch", "triton", "numpy"):
        if origin in ("operator.attrgetter", "operator.methodcaller"):
            yield Refusal("no dynamic code", line, f"`{origin}` is not accepted; write the attribute out")
        if origin in ("contextlib.suppress", "contextlib.redirect_stdout", "contextlib.redirect_stderr"):
            yield Refusal("no fallback", line, f"`{origin}` is not accepted; let errors show")
        if origin in ("copy._deepcopy_dispatch", "copy.copyreg", "functools.singledispatch"):
            yield Refusal("no patching", line, f"`{origin}` is not accepted; leave the library as it is")
        if any(part in _CARRIED for part in parts):
            yield Refusal("imports", line, f"`{origin}` is not accepted; a kernel needs no such module")
        return
    if under(origin, "torch.utils.cpp_extension") and not extensions:
        yield Refusal("imports", line, _NO_EXTENSION)
        return
    if any(part in _CARRIED for part in parts):
        yield Refusal("imports", line, f"`{origin}` is not accepted; a kernel needs no such module")
    elif any(_is_private(part) for part in parts) and not any(
        under(origin, allowed) or under(allowed, origin) for allowed in _ALLOWED_PRIVATE
    ):
        detail = f"`{origin}` is private to {root}; use its public functions"
        yield Refusal("no private parts of torch and triton", line, detail)


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("_foreach") and part not in ALLOWED_DUNDERS


def _attribute(name: str, line: int) -> Iterator[Refusal]:
    for ban in _BANS:
        if name in ban.attributes:
            yield Refusal(ban.rule, line, f"`{name}` is not accepted; {ban.instead}")
            return
    if name.startswith("__") and name.endswith("__") and name not in ALLOWED_DUNDERS:
        yield Refusal(
            "no introspection", line, f"`{name}` is not accepted; use plain attributes and functions"
        )


def _builtin(node: ast.Name, origins: Origins, called: bool) -> Iterator[Refusal]:
    name, line = node.id, node.lineno
    loose = called or name not in origins.bound
    if name in _CODE:
        yield Refusal("no dynamic code", line, f"`{name}` is not accepted; write the code out")
    elif name in _REACH or (name in _SOFT_REACH and loose):
        yield Refusal("no introspection", line, f"`{name}` is not accepted; use plain names and attributes")
    elif name in _FILES and loose:
        yield Refusal("no files or output", line, f"`{name}` is not accepted; nothing is read or printed")
