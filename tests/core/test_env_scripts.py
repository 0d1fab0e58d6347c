"""The contract of environments under a script of meaningful replies."""

import pytest

from focus_core import Problem, Reply, Transition
from focus_core.testing import EnvContract, check


class Hints:
    """A hint may be asked for with 1; then an answer of 7 is worth less."""

    forgets = False

    def reset(self, problem):
        self.hinted, self.turns = False, 0
        return ({"role": "user", "content": "Which number?"},)

    async def step(self, reply):
        self.turns += 1
        if reply.tokens[0] == 7:
            return Transition(0.5 if self.hinted else 1.0, done=True)
        self.hinted = self.hinted or reply.tokens[0] == 1
        return Transition(messages=({"role": "user", "content": "Go on."},))

    def snapshot(self):
        return self.turns, not self.forgets and self.hinted

    def restore(self, state):
        self.turns, self.hinted = state


class Forgetful(Hints):
    forgets = True


def said(*tokens):
    return [Reply((token, 0), f"{token} 0", "stop") for token in tokens]


def kit(env, replies):
    class Script(EnvContract):
        problem = Problem("guess", "7", id="p")

        def subject(self):
            return env()

    Script.replies = replies
    return {outcome.contract: outcome for outcome in check(Script())}


def plain(self):
    return said(1, 2, 3, 7)


async def coroutine(self):
    return said(1, 2, 3, 7)


@pytest.mark.parametrize("replies", [plain, coroutine])
def test_what_is_forgotten_shows_however_much_later(replies):
    assert all(outcome.status == "ok" for outcome in kit(Hints, replies).values())
    outcome = kit(Forgetful, replies)["restore_goes_on"]
    assert outcome.status == "failed"
    assert "restored after 1 replies, went on otherwise" in outcome.detail


@pytest.mark.parametrize("script", [(), said(1, 7), ["1", "2", "7"]])
def test_a_script_that_is_none_is_named(script):
    outcome = kit(Hints, lambda self: script)["step_gives_transitions"]
    assert outcome.status == "failed"
    assert "Script.replies() gave" in outcome.detail
    assert "give three or more" in outcome.detail
