"""Formats of the one summary (:class:`kvbench.analysis.summary.Summary`): each is a function from a summary to text."""
