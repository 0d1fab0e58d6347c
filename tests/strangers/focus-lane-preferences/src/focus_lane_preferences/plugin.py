"""What this distribution registers."""

from focus_core import LaneSpec, hookimpl


@hookimpl
def focus_lanes() -> list[LaneSpec]:
    """The lane ``preferences``."""
    return [
        LaneSpec(
            "preferences",
            "the best and the worst continuation of each branched state",
            "focus_lane_preferences.lane:preferences",
        )
    ]
