"""A run as people and programs read it: ``report.json``, ``report.html``, ``ledger.png`` and terminal tables."""

from integrator.report.assemble import build_report, write_report

__all__ = ["build_report", "write_report"]
