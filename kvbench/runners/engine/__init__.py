"""The in-process engine: everything that imports torch is in here."""

import os

# Before torch loads its thread pool, which reads it once: threads that wait sleep instead of spinning. With a core that others use too,
# spinning made a prefill nine times slower, sleeping less than two (docs/architecture.md). A value of the user's own stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
