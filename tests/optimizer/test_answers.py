"""Reading candidates out of completions."""

import pytest

from optimizer.answers import MAX_SOURCE_BYTES, clean_text, fenced_blocks, parse
from optimizer.candidate import Language
from optimizer.policies.protocol import Completion, StopReason

K = "int kg_forward(); // {}"


def fence(source: str, tag: str = "cpp", fence: str = "```") -> str:
    return f"{fence}{tag}\n{source}\n{fence}"


ACCEPTED = {
    "one block": (fence(K.format(1)), 1),
    "untagged": (fence(K.format(1), ""), 1),
    "c++ tag, upper case": (fence(K.format(1), "C++"), 1),
    "tilde fence": (fence(K.format(1), fence="~~~"), 1),
    "longer fence": (fence(K.format(1), fence="````"), 1),
    "indented fence": ("  ```cpp\n" + K.format(1) + "\n  ```", 1),
    "info string with attributes": (fence(K.format(1), "cpp title=kernel.cpp"), 1),
    "last of several": (f"first\n{fence(K.format(1))}\nbetter\n{fence(K.format(2))}", 2),
    "tagged beats later untagged": (f"{fence(K.format(1))}\noutput:\n{fence('kg_forward', '')}", 1),
    "wanted beats later foreign": (f"{fence(K.format(1))}\n{fence('kg_forward', 'python')}", 1),
    "usage snippet without entry point after": (f"{fence(K.format(1))}\n{fence('g++ -O3')}", 1),
    "complete before a truncated one": (f"{fence(K.format(1))}\n```cpp\n{K.format(2)}", 1),
    "thinking ignored": (f"<think>{fence(K.format(1))}</think>\n{fence(K.format(2))}", 2),
    "only the end of thinking marked": (f"{fence(K.format(1))}</think>{chr(10)}{fence(K.format(2))}", 2),
    "windows line ends": (fence(K.format(1)).replace("\n", "\r\n"), 1),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    text, expected = ACCEPTED[name]
    answer = parse(Completion(text, notes={"unroll": "4"}), Language.CPP)
    assert answer.failure == ""
    assert answer.candidate is not None
    assert answer.candidate.source == K.format(expected) + "\n"
    assert answer.candidate.notes == {"unroll": "4"}


REFUSED = {
    "empty": ("", "no code block"),
    "prose only": ("I would fuse the loops and use AVX-512.", "no code block"),
    "inline code only": ("Use ```kg_forward``` then.", "no code block"),
    "truncated": ("```cpp\nint kg_forw", "cut off before its closing fence"),
    "wrong language": (fence("import triton", "python"), "in another language (python)"),
    "empty block": (fence(""), "empty"),
    "ended in thinking": (f"<think>maybe {fence(K.format(1))}", "inside its thinking"),
    "too long": (fence("kg_forward" + "x" * MAX_SOURCE_BYTES), "longer than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, expected = REFUSED[name]
    answer = parse(Completion(text), Language.CPP)
    assert answer.candidate is None
    assert expected in answer.failure
    assert "```cpp" in answer.failure or "longer" in answer.failure


def test_token_limit_is_named() -> None:
    answer = parse(Completion("```cpp\nint x", StopReason.LENGTH), Language.CPP)
    assert "token limit" in answer.failure


@pytest.mark.parametrize("language", [Language.TRITON, Language.CUDA])
def test_python_languages_take_python_blocks(language: Language) -> None:
    text = f"{fence('class ModelNew: pass', 'python')}\n{fence('__global__ void ModelNew()', 'cpp')}"
    answer = parse(Completion(text), language)
    assert answer.candidate is not None
    assert answer.candidate.source == "class ModelNew: pass\n"
    assert answer.candidate.language is language


def test_equal_sources_in_different_wrapping_are_one_candidate() -> None:
    plain = parse(Completion(fence(K.format(1))), Language.CPP).candidate
    wrapped = parse(Completion("Here:\n" + fence(K.format(1) + "\n\n") + "\nbye"), Language.CPP).candidate
    assert plain is not None
    assert wrapped is not None
    assert plain.sha == wrapped.sha


def test_summary_prefers_what_follows_the_block() -> None:
    def summary(text: str) -> str:
        return parse(Completion(text, notes={"b": "2", "a": "1"}), Language.CPP).summary

    assert summary(f"before\n{fence(K.format(1))}\nafter\nwords") == "after words"
    assert summary(f"before\n{fence(K.format(1))}") == "before"
    assert summary(fence(K.format(1))) == "a=1, b=2"
    assert len(summary(fence(K.format(1)) + "\n" + "word " * 1000)) == 600


def test_text_that_utf8_cannot_hold_is_cleaned() -> None:
    assert clean_text("a\ud800b") == "a?b"
    answer = parse(Completion(fence("kg_forward // \udcff")), Language.CPP)
    assert answer.candidate is not None
    assert answer.candidate.sha


def test_fence_inside_a_block_is_content() -> None:
    (block,) = fenced_blocks("````cpp\n```\ninner\n```\n````")
    assert block.source == "```\ninner\n```"
    assert block.complete
