"""Building: the cache, concurrent builders, errors a policy can act on, and what a compilation cannot reach."""

import ctypes
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.languages.cpp import CompileFailed, CppBuilder
from optimizer.languages.cpp_cache import BuildCache, BuildCacheUnusable, default_cache_dir
from tests.optimizer.fixtures import kernels


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache with a space")


@pytest.fixture(scope="module")
def builder(cache: Path) -> CppBuilder:
    return CppBuilder(cache, limit_s=20.0)


def _build(builder: CppBuilder, source: str) -> Path:
    return builder.build(Candidate(Language.CPP, source)).path


def test_the_same_source_is_built_once(builder: CppBuilder) -> None:
    source = kernels.silu(after="// once")
    first = builder.build(Candidate(Language.CPP, source))
    second = builder.build(Candidate(Language.CPP, source, notes={"other": "notes"}))
    assert (first.cached, second.cached) == (False, True)
    assert first.path == second.path
    assert first.seconds > 0.0 == second.seconds
    assert _build(builder, source + " ") != first.path


def test_flags_are_part_of_the_key(builder: CppBuilder) -> None:
    assert builder.build_source(kernels.silu()).path != builder.build_source(kernels.silu(), ("-DX=1",)).path


def _build_in_process(arguments: tuple[str, str]) -> str:
    cache, source = arguments
    return str(CppBuilder(Path(cache)).build_source(source).path)


def test_concurrent_builders_agree(tmp_path: Path) -> None:
    """Two processes, an empty cache, the same source and prelude: no lock, no wait, one result."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as pool:
        paths = set(pool.map(_build_in_process, [(str(tmp_path), kernels.silu())] * 2))
    assert len(paths) == 1
    assert len(list((tmp_path / "build").iterdir())) == 1
    assert len(list((tmp_path / "pch").iterdir())) == 1
    assert not list(tmp_path.glob("building-*"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\n\nint x = ;", ("line 3", "expected")),
        ('#include "/etc/passwd"', ("line 1", "/etc/passwd")),
        ('asm(".incbin \\"/etc/passwd\\"");', ("not found", "/etc/passwd")),
        (
            'extern "C" void elsewhere(); extern "C" void f() { elsewhere(); }',
            ("undefined symbol", "elsewhere"),
        ),
        ("template<int N> struct A { static constexpr int v = A<N + 1>::v; }; int q = A<0>::v;", ("depth",)),
    ],
)
def test_errors_are_one_sentence(builder: CppBuilder, source: str, words: tuple[str, ...]) -> None:
    with pytest.raises(CompileFailed) as caught:
        _build(builder, source)
    for word in words:
        assert word in caught.value.reason + caught.value.log
    assert "building-" not in caught.value.log
    assert "\n" not in caught.value.reason


def test_an_error_behind_many_warnings_is_found(builder: CppBuilder) -> None:
    with pytest.raises(CompileFailed, match="compile error at line 201: ") as caught:
        _build(builder, "#warning again\n" * 200 + "int x = ;")
    assert caught.value.log.endswith("(shortened)")


def test_a_failed_build_leaves_nothing(builder: CppBuilder, cache: Path) -> None:
    before = sorted((cache / "build").iterdir())
    with pytest.raises(CompileFailed):
        _build(builder, "int x = ;  // fails")
    assert sorted((cache / "build").iterdir()) == before
    assert not list(cache.glob("building-*"))


def test_abandoned_scratch_folders_are_swept(tmp_path: Path) -> None:
    BuildCache(tmp_path)
    old, young = tmp_path / "building-old", tmp_path / "building-young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    BuildCache(tmp_path)
    assert not old.exists()
    assert young.exists()


def test_an_unusable_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BuildCacheUnusable, match="XDG_CACHE_HOME"):
        BuildCache(tmp_path / "file" / "cache")


@pytest.fixture
def no_xdg(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return monkeypatch


def test_default_cache_folder(no_xdg: pytest.MonkeyPatch) -> None:
    assert default_cache_dir() == Path.home() / ".cache" / "kernelgraft"
    no_xdg.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert default_cache_dir() == Path("/elsewhere/kernelgraft")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:100] + bytes(4096) + data[4196:],
        lambda data: data[:-1],
    ],
    ids=["empty", "half", "a hole", "a byte short"],
)
def test_a_damaged_library_is_built_anew(builder: CppBuilder, damage: Callable[[bytes], bytes]) -> None:
    candidate = Candidate(Language.CPP, kernels.silu(after="// damaged"))
    path = builder.build(candidate).path
    whole = path.read_bytes()
    path.unlink()  # another file: this process may have the old one mapped, and would die of a shorter one
    path.write_bytes(damage(whole))
    again = builder.build(candidate)
    assert not again.cached
    assert again.path.stat().st_size == len(whole)
    ctypes.CDLL(str(again.path))
    assert builder.build(candidate).cached


def test_a_damaged_prelude_is_built_anew(tmp_path: Path) -> None:
    _build(CppBuilder(tmp_path), kernels.silu())
    (compiled,) = [*tmp_path.glob("pch/*/*.gch"), *tmp_path.glob("pch/*/*.pch")]
    size = compiled.stat().st_size
    os.truncate(compiled, size // 2)
    _build(CppBuilder(tmp_path), kernels.silu(after="// with another prelude"))
    assert compiled.stat().st_size > 0.9 * size
    assert not list(tmp_path.glob("building-*"))
