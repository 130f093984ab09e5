"""Worker side of CUDA extensions: ``load_inline`` imports what was built ahead, or asks for it to be built.

Replaces ``load_inline`` and ``load`` of ``torch.utils.cpp_extension`` before the candidate is loaded. What the
finished libraries count of their launches is read through them.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from optimizer.languages.cuda import ExtensionFailed, ExtensionSource

REQUEST_SUFFIX = ".extension.json"
_PREFIX = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
_IGNORED = {"build_directory", "verbose", "with_cuda", "keep_intermediates", "use_pch", "is_python_module"}


class BuildNeeded(RuntimeError):
    """The extension is not in the cache; a request for it was written down."""


class Extensions:
    """The extensions of one candidate.

    Args:
        folder: where finished libraries are, named by key.
        toolchain: the other half of their keys.
        requests: where to ask for missing ones; None if that time is over.
    """

    def __init__(self, folder: Path, toolchain: str, requests: Path | None) -> None:
        self._folder = folder
        self._toolchain = toolchain
        self._requests = requests
        self._libraries: dict[Path, ctypes.CDLL] = {}
        self._suppressed = False

    def install(self) -> None:
        """Put this in the place of torch's functions."""
        from torch.utils import cpp_extension

        replaced: Any = cpp_extension
        replaced.load_inline = self.load_inline
        replaced.load = self._load

    def launches(self) -> int:
        """Kernel launches of all extensions so far."""
        return sum(int(library.kg_launches()) for library in self._libraries.values())

    def knock_out(self, on: bool) -> None:
        """Suppress launches, those of extensions loaded later too, or let them through again."""
        self._suppressed = on
        for library in self._libraries.values():
            library.kg_knock_out(int(on))

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str],
        cuda_sources: str | Sequence[str] | None = None,
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        with_pytorch_error_handling: bool = True,
        no_implicit_headers: bool = False,
        **others: Any,
    ) -> ModuleType:
        """As torch's, from the cache of what was built ahead.

        Raises:
            BuildNeeded: it was not.
            ExtensionFailed: a flag or an argument is not allowed.
        """
        unknown = [key for key, value in others.items() if key not in _IGNORED and value]
        if unknown:
            raise ExtensionFailed(f"load_inline: argument {unknown[0]} is not supported by the judge")
        source = ExtensionSource(
            name=name,
            cpp=_cpp(_lines(cpp_sources), functions, with_pytorch_error_handling, no_implicit_headers),
            cuda=("" if no_implicit_headers else _PREFIX) + _lines(cuda_sources) if cuda_sources else "",
            cpp_flags=tuple(extra_cflags or ()),
            cuda_flags=tuple(extra_cuda_cflags or ()),
            link_flags=tuple(extra_ldflags or ()),
        )
        source.validate()
        key = source.key(self._toolchain)
        path = self._folder / f"{key}.so"
        if not path.exists():
            if self._requests is not None:
                (self._requests / f"{key}{REQUEST_SUFFIX}").write_text(source.to_json(), encoding="utf-8")
            raise BuildNeeded(f"extension {name} is not built yet")
        return self._import(source.name, path)

    def _import(self, name: str, path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        library = ctypes.CDLL(str(path))
        library.kg_launches.restype = ctypes.c_ulonglong
        library.kg_knock_out(int(self._suppressed))
        self._libraries[path] = library
        return module

    def _load(self, *_: Any, **__: Any) -> ModuleType:
        raise ExtensionFailed("load() reads files, which the judge does not offer; use load_inline()")


def _lines(sources: str | Sequence[str] | None) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or ())


def _cpp(
    text: str, functions: str | Sequence[str] | Mapping[str, str] | None, guarded: bool, bare: bool
) -> str:
    """The C++ file: header, the candidate's text, bindings of ``functions``."""
    lines = [] if bare else ["#include <torch/extension.h>"]
    lines.append(text)
    if functions is not None:
        names = [functions] if isinstance(functions, str) else list(functions)
        documented = functions if isinstance(functions, Mapping) else {name: name for name in names}
        lines.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        for name in names:
            target = f"torch::wrap_pybind_function({name})" if guarded else name
            lines.append(f'm.def("{name}", {target}, R"KGDOC({documented[name]})KGDOC");')
        lines.append("}")
    return "\n".join(lines) + "\n"
