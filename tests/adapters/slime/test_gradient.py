"""From the generate hook to a gradient, through the double of Slime's stages: no stage skipped.

What is trained has to be the local trainer's gradient of the same trees, however the trees are
cut into samples, micro-batches and ranks. ``test_fidelity.py`` runs the same over Slime's code.
"""

import pytest

from tests.adapters.slime import slime_checks as checks
from tests.adapters.slime.slime_double import OldSlime, Slime


@pytest.fixture(params=[Slime, OldSlime], ids=["rollout_id", "group_id"])
def slime(request):
    return request.param()


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_through_the_double(check, slime, router, learner):
    check(slime, router, learner)
