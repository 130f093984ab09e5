"""From a task to its best kernel: judge, languages, policies, search, store, scores."""
