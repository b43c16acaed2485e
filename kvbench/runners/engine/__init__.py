"""The in-process engine: everything that imports torch is in here."""

import os

# Before torch loads its threads, which read it once: they spin a short while for each other, then sleep. By default they spin 30 times as
# long; with a core that others use too, a prefill then took nine times as long, so it takes twice (docs/architecture.md). Not spinning at
# all would cost a third of the speed of decoding. A choice of the user's own stays.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
