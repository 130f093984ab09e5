"""The embedded default policy: C++ kernel templates, ranked by measured neighbours, revised on feedback."""

from optimizer.policies.catalog.policy import CatalogPolicy

__all__ = ["CatalogPolicy"]
