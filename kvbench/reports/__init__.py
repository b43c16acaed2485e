"""Formats of the one summary (:class:`kvbench.summary.summary.Summary`): each is a function from a summary to text."""
