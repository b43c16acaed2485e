"""What the readings of experiments in which requests are there at once have in common."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_view import RunView
from kvbench.experiments.reading import Reading


class AtOnceReading(Reading):
    """Arms are ways to use the memory, and no tiers."""

    def title(self, view: RunView) -> Iterator[str]:
        """The requests and their lengths."""
        config = view.info.config
        if "requests" in config:
            yield f"{config['requests']:,} requests of {config['prompt_tokens']} + {config['output_tokens']}"
