"""Metrics: a file a family, each with a tuple ``METRICS`` that :mod:`kvbench.metrics.registry` finds."""
