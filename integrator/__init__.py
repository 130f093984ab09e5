"""From accepted kernels to a faster model: patch, parity, ledger, report."""
