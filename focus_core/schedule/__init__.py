"""Training steps in a row, collection of the next batch beside the update on this one."""

from focus_core.schedule.schedule import (
    run_batches,
    run_schedule,
)

__all__ = [
    "run_batches",
    "run_schedule",
]
