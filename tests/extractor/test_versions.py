"""Versions recorded with a run, installed or not."""

from importlib import metadata

import pytest

from extractor.versions import CHECKOUT, version_of, versions


def test_all_four_are_named() -> None:
    assert set(versions()) == {"python", "torch", "transformers", "kernelgraft"}
    assert versions()["torch"].startswith("2.")


def test_an_uninstalled_checkout_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert version_of("kernelgraft") == CHECKOUT
    assert version_of("transformers") == "none"
