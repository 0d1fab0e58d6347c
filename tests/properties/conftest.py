"""One hypothesis profile for all: the same examples every time, without a database.

``HYPOTHESIS_PROFILE=explore`` draws new ones each time.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "focus",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("focus"), derandomize=False, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "focus"))
