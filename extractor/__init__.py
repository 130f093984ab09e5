"""From a model to tasks: load it, record what it computes, cut it into operator tasks on disk."""
