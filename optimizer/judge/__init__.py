"""The one judge behind search, training reward and benchmarks: screen, build, check, time, profile."""
