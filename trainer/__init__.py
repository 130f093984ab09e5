"""The policy's RL post-training. Nothing is built here yet; the plan is in docs/."""
