"""The in-process engine: everything that imports torch is in here."""

import os

# Before torch loads its threads, which read it once: they spin a short while for each other, then sleep. By default they spin 30 times as
# long, and then a core that others use too makes every time several times longer; not spinning at all costs short steps a third
# (benchmarks/shared_cores.py). A choice of the user's own stays.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
