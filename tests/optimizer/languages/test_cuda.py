import pytest

from optimizer.languages import cuda_host
from optimizer.languages.cuda import WRAPPED, WRAPPER, ExtensionFailed, ExtensionSource, explain
from optimizer.languages.cuda_host import REQUEST_SUFFIX, BuildNeeded, Extensions

SOURCE = ExtensionSource("scale", "int a;", "int b;", cuda_flags=("-O3", "--use_fast_math"))


def test_requests_survive_the_journey():
    assert ExtensionSource.from_json(SOURCE.to_json()) == SOURCE


@pytest.mark.parametrize(
    "text", ["", "[]", '{"name": "x"}', '{"name": 1, "cpp": 2, "cuda": 3, "cpp_flags": 4}']
)
def test_malformed_requests_are_the_candidates_fault(text: str):
    with pytest.raises(ExtensionFailed, match="malformed"):
        ExtensionSource.from_json(text)


@pytest.mark.parametrize(
    "flag",
    [
        "-O3",
        "-std=c++17",
        "--use_fast_math",
        "-lineinfo",
        "-maxrregcount=64",
        "-DN=4",
        "-gencode=arch=compute_90",
    ],
)
def test_harmless_flags_are_accepted(flag: str):
    ExtensionSource("x", "", "", cuda_flags=(flag,)).validate()


@pytest.mark.parametrize(
    "flag",
    [
        "-I/etc",
        "-include/etc/passwd",
        "@/etc/passwd",
        "-ccbin=/tmp/x",
        "-O3 -I/",
        "-Xcompiler",
        "-fplugin=x.so",
    ],
)
def test_flags_that_reach_for_files_are_refused(flag: str):
    with pytest.raises(ExtensionFailed, match="not allowed"):
        ExtensionSource("x", "", "", cuda_flags=(flag,)).validate()


def test_only_known_libraries_are_linked():
    ExtensionSource("x", "", "", link_flags=("-lcublas",)).validate()
    with pytest.raises(ExtensionFailed):
        ExtensionSource("x", "", "", link_flags=("-L/tmp",)).validate()


def test_names_become_file_names_and_must_be_identifiers():
    with pytest.raises(ExtensionFailed, match="no identifier"):
        ExtensionSource("../x", "", "").validate()


def test_key_depends_on_everything_that_is_compiled():
    keys = {
        SOURCE.key("a"),
        SOURCE.key("b"),
        ExtensionSource("scale", "int a;", "int c;", cuda_flags=SOURCE.cuda_flags).key("a"),
        ExtensionSource("scale", "int a;", "int b;").key("a"),
    }
    assert len(keys) == 4


def test_every_wrapped_launch_is_defined():
    for name in WRAPPED:
        assert f"({name})" in WRAPPER


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            'cuda.cu(10): error: identifier "zz" is undefined\n',
            'cuda.cu line 10: identifier "zz" is undefined',
        ),
        ("main.cpp:3:5: error: 'f' was not declared\n", "main.cpp line 3: 'f' was not declared"),
        ("main.o: undefined reference to `f(at::Tensor)'\n", "undefined symbol: f(at::Tensor)"),
        (
            "ptxas error   : Entry function 'k' uses too much shared data\n",
            "ptxas: Entry function 'k' uses too",
        ),
        ("", "ended with status 7"),
    ],
)
def test_errors_are_one_sentence(log: str, expected: str):
    assert expected in explain(log, 7)


def test_missing_extensions_are_asked_for(tmp_path):
    extensions = Extensions(tmp_path, "toolchain", tmp_path)
    with pytest.raises(BuildNeeded):
        extensions.load_inline("scale", "void f();", "__global__ void k() {}", functions=["f"], verbose=True)
    (request,) = tmp_path.glob(f"*{REQUEST_SUFFIX}")
    source = ExtensionSource.from_json(request.read_text(encoding="utf-8"))
    assert request.name == source.key("toolchain") + REQUEST_SUFFIX
    assert "PYBIND11_MODULE" in source.cpp
    assert source.cuda.startswith("#include <torch/types.h>")


def test_a_measured_worker_asks_for_nothing(tmp_path):
    with pytest.raises(BuildNeeded):
        Extensions(tmp_path, "toolchain", None).load_inline("scale", "void f();", "x")
    assert not list(tmp_path.iterdir())


def test_arguments_that_are_not_served_are_named(tmp_path):
    with pytest.raises(ExtensionFailed, match="extra_include_paths"):
        Extensions(tmp_path, "t", None).load_inline("x", "", extra_include_paths=["/"])


def test_bindings_as_torch_makes_them():
    text = cuda_host._cpp("void f();", {"f": "doc"}, True, False)
    assert text.startswith("#include <torch/extension.h>\nvoid f();")
    assert 'm.def("f", torch::wrap_pybind_function(f), R"KGDOC(doc)KGDOC");' in text
    assert "PYBIND11" not in cuda_host._cpp("PYTHON", None, True, False)
