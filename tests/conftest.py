"""What all tests share; one hypothesis profile: the same examples every time, without a database.

``HYPOTHESIS_PROFILE=explore`` draws new ones each time.
"""

import os
import signal

from hypothesis import HealthCheck, settings

# Started in the background of a shell, this process and its children ignore SIGINT; the tests
# that interrupt a run need it as a terminal would leave it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "focus",
    deadline=None,  # a loaded machine is no failure
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("focus"), derandomize=False, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "focus"))
