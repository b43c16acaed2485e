"""How a run of ``cyclic`` is read: as any whose arms are tiers."""

from kvbench.experiments.tiers.reading import TierReading

READING = TierReading()
