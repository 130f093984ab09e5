"""Who writes candidates. Every policy speaks the protocol in :mod:`optimizer.policies.protocol`."""
