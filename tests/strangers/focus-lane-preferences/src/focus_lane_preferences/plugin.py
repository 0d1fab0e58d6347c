"""What this distribution registers."""

from focus_core import LaneSpec, hookimpl


@hookimpl
def focus_lanes() -> list[LaneSpec]:
    """The lanes ``preferences`` and ``outcomes``."""
    return [
        LaneSpec(
            "preferences",
            "the best and the worst continuation of each branched state",
            "focus_lane_preferences.lane:preferences",
        ),
        LaneSpec(
            "outcomes",
            "what the rollouts of each tree scored",
            "focus_lane_preferences.outcomes:outcomes",
        ),
    ]
