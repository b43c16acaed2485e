"""The points of a sweep that are left to do, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kvbench.config.run import RunConfig
from kvbench.errors import Interrupted, KvbenchError
from kvbench.runs.sweep_folder import Point, SweepFolder
from kvbench.sweeps.points import Planned

Measure = Callable[[RunConfig, Path], object]
"""Measures one point into a new run folder; raises ``KvbenchError`` where that could not be done."""

Tell = Callable[[str], None]
"""Told in a line what becomes of the points."""


def run_points(planned: Planned, folder: SweepFolder, measure: Measure, tell: Tell) -> None:
    """Measure each point left; one that could not be done is noted in the folder. ``Interrupted``: the user stopped it; how it goes on."""
    for point, config in left_to_do(planned, folder, tell):
        tell(f"{name_of(folder, point)} ...")
        try:
            measure(config, folder.run_folder(point))
        except (KeyboardInterrupt, Interrupted) as error:
            raise interrupted(folder, str(error)) from None
        except (KvbenchError, MemoryError) as error:
            folder.failed(point, reason_of(error))
            tell(f"{name_of(folder, point)}: {reason_of(error)}")


def left_to_do(planned: Planned, folder: SweepFolder, tell: Tell) -> Iterator[tuple[Point, RunConfig]]:
    """The points whose run did not come to its end, with their configurations; what an earlier attempt left is kept under another name."""
    for point, config in zip(folder.sweep.points, planned.configs, strict=True):
        if folder.is_finished(point):
            tell(f"{name_of(folder, point)}: measured before, and kept")
            continue
        if (kept := folder.set_aside(point)) is not None:
            tell(f"{name_of(folder, point)}: was interrupted; kept as {kept}, and run again from the start")
        yield point, config


def name_of(folder: SweepFolder, point: Point) -> str:
    """A point in a line: ``reuse=0.5 (2 of 4)``."""
    points = folder.sweep.points
    place = next(place for place, item in enumerate(points, start=1) if item.folder == point.folder)
    return f"{folder.sweep.key.replace('_', '-')}={point.label} ({place} of {len(points)})"


def reason_of(error: BaseException) -> str:
    """Why a point could not be done, in a line."""
    return " ".join(str(error).split()) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)


def interrupted(folder: SweepFolder, what: str) -> Interrupted:
    """The error of a sweep that the user stopped."""
    return Interrupted(f"{what or 'interrupted'}; the same command with --out {folder.path} goes on with the points that are left")
