"""How one MATH problem is collected: the search, the critic and what the critic reads."""

from math_quickstart import make_agent

from focus_core import Collector, Critic, Selective


def search_config():
    """Sixteen transitions first come, first served; then 32 where they teach the critic most."""
    return Selective(budget=32, warmup=16, max_concurrency=1)


def math_context(policy):
    """The critic reads what the policy saw and said, to the token, unfinished thoughts included."""

    def render(rollout):
        if not rollout.turns:
            return policy.decode(policy.prepare(rollout.messages).tokens)
        turn = rollout.turns[-1]
        return policy.decode(turn.prefix + turn.tokens)

    return render


def make_collector(policy, solution, *, critic=None, search=None, execution=None):
    """The collector of a problem with this reference solution.

    Without a critic every unfinished state is predicted to be worth 0.5, which is where a first
    round may start.
    """
    return Collector(
        make_agent(policy, solution, policy.decode, execution=execution),
        critic=critic or Critic.constant(0.5, context=math_context(policy)),
        search=search or search_config(),
    )


def collector_for(policy, problem):
    """What every trainer asks for; the label stays in the environment."""
    return make_collector(policy, problem.label)
