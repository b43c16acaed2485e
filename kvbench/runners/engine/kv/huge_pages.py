"""Memory in huge pages, for what is copied piece by piece."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress

import torch


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros in RAM, every page touched; in huge pages where the system gives them to those who ask (Linux).

    The pieces of a chunk lie far apart in the pool, a few dozen small pages each; to look those up took up to a fifth of the copy's time
    (``benchmarks/restore.py``, figures of before and after in ``reports/README.md``).

    Raises ``MemoryError``: there is not enough.
    """
    count = math.prod(shape)
    if count == 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype).zero_()
    try:
        area = mmap.mmap(-1, count * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has other rules
    except OSError as error:
        raise MemoryError(f"{count * dtype.itemsize:,} bytes of memory for KV: {error.strerror}") from None
    with suppress(OSError):  # a kernel without them: small pages are slower, not wrong
        area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=dtype).view(shape).zero_()
