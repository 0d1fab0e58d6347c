"""Planted bugs: one small change each that the default tests have to notice; ``scripts/mutate``.

A change names a text and not a line, so that it survives what moves around it; a text that does
not occur exactly once is an error, not a bug that was caught.
"""

import attrs

CORE, TINKER = "focus_core", "adapters/tinker/src/focus_adapter_tinker"
LOCAL = "adapters/local/src/focus_adapter_local"
SLIME = "adapters/slime/src/focus_adapter_slime"
COOKBOOK = "adapters/cookbook/src/focus_adapter_cookbook"


@attrs.frozen
class Mutation:
    """A planted bug.

    Attributes:
        file: Where, from the root.
        old: Text that occurs there once.
        new: What replaces it.
        breaks: What is wrong then.
        tests: Files below ``tests`` that should notice, tried before all others.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: str


MUTATIONS = (
    # Values, credit and search
    Mutation(
        f"{CORE}/tree/returns.py",
        "value = (kappa * value + total[node]) / (kappa + n)",
        "value = (kappa * value + total[node]) / (kappa + n + 1)",
        "refined values count a branch that is not there",
        "core/test_values.py",
    ),
    Mutation(
        f"{CORE}/tree/returns.py",
        "total[parent] += tree.reward[node] + gamma ** tree.duration[node] * value",
        "total[parent] += tree.reward[node] + gamma * value",
        "a fold, which takes no time, is discounted",
        "core/test_values.py core/test_agent_folding.py",
    ),
    Mutation(
        f"{CORE}/tree/returns.py",
        "if tree.launch[parent] == tree.launch[node]:",
        "if True:",
        "returns of one continuation are observed by another",
        "core/test_recipes.py core/test_values.py",
    ),
    Mutation(
        f"{CORE}/recipes/direct_branch.py",
        "            - values[tree.parent[node]]\n",
        "            - values[node]\n",
        "advantages compare a state with itself",
        "core/test_recipes.py",
    ),
    Mutation(
        f"{CORE}/recipes/group.py",
        "centred = outcomes - outcomes.mean()",
        "centred = outcomes - outcomes.min()",
        "a group is not centred on its mean",
        "core/test_recipes.py",
    ),
    Mutation(
        f"{CORE}/recipes/group.py",
        "centred /= outcomes.std()",
        "centred /= outcomes.std(ddof=1)",
        "the scale is the sample's deviation",
        "core/test_recipes.py",
    ),
    Mutation(
        f"{CORE}/recipes/refined_td.py",
        "values[np.asarray(tree.kind) == TERMINAL] = 0.0",
        "values[np.asarray(tree.kind) == TERMINAL] += 0.0",
        "an ended rollout is worth its prediction",
        "core/test_recipes.py",
    ),
    Mutation(
        f"{CORE}/search/worth.py",
        "(effective - kappa) * s2",
        "effective * s2",
        "the worth of a branch forgets what the critic knows",
        "core/test_worth.py",
    ),
    Mutation(
        f"{CORE}/search/worth.py",
        "effective = n + evidence.in_flight",
        "effective = n",
        "launches in flight are not counted: all go to one state",
        "core/test_worth.py",
    ),
    Mutation(
        f"{CORE}/search/calibration.py",
        "mu = (kappa * v + n * _clamp(mean)) / (kappa + n)",
        "mu = (v + n * _clamp(mean)) / (1 + n)",
        "kappa does not reach the search's beliefs",
        "core/test_worth.py",
    ),
    Mutation(
        f"{CORE}/search/frontier.py",
        "if self._standing[state].width < 2:",
        "if self._standing[state].width < 3:",
        "warm-up gives three branches",
        "core/test_search.py",
    ),
    Mutation(
        f"{CORE}/search/selective.py",
        "        self._ranking = Ranking()\n        self._generated = 0\n",
        "        self._ranking = Ranking()\n",
        "warm-up is paid from the budget of refinement",
        "core/test_search.py",
    ),
    # Trees, records and lanes
    Mutation(
        f"{CORE}/tree/tree.py",
        "        for node in nodes:\n            self.alive[node] = 0\n",
        "        for node in nodes[1:]:\n            self.alive[node] = 0\n",
        "a part of a failed continuation is trained",
        "core/test_tree.py core/test_growth_failures.py",
    ),
    Mutation(
        f"{CORE}/tree/tree.py",
        "nodes = [node]\n        while not self.fresh[node]:",
        "nodes = [node]\n        while node:",
        "a re-rendered chat is appended to the one before",
        "core/test_tree.py core/test_contexts.py",
    ),
    Mutation(
        f"{CORE}/records/actor.py",
        "if not end <= span.start < span.stop <= len(self.tokens):",
        "if not 0 <= span.start < span.stop <= len(self.tokens):",
        "overlapping spans are taken",
        "core/test_records.py",
    ),
    Mutation(
        f"{CORE}/records/actor.py",
        "if (advantages[mask == 0] != 0).any():",
        "if (advantages[mask == 1] != 0).all():",
        "records with advantages on conditioning tokens are taken",
        "core/test_records.py",
    ),
    Mutation(
        f"{CORE}/records/shifted.py",
        "advantages[span.start - 1 : span.stop - 1] = span.advantage",
        "advantages[span.start : span.stop] = span.advantage",
        "each advantage weighs the next token",
        "core/test_shifting.py",
    ),
    Mutation(
        f"{CORE}/records/shifted.py",
        "record.logprobs[1:], advantages, mask)",
        "record.logprobs[:-1], advantages, mask)",
        "log probabilities are of the token before",
        "core/test_shifting.py",
    ),
    Mutation(
        f"{CORE}/lanes/actor.py",
        "            left.remove(node)\n",
        "",
        "shared edges are trained once for each path",
        "core/test_export.py",
    ),
    Mutation(
        f"{CORE}/lanes/actor.py",
        "while node != ROOT and not tree.fresh[node]:",
        "while node != ROOT:",
        "edges before a re-rendered chat are not trained",
        "core/test_export.py core/test_contexts.py properties/test_merging.py",
    ),
    # Collecting
    Mutation(
        f"{CORE}/collect/continuation.py",
        "fresh = not np.array_equal(prompt[:length], prefix)",
        "fresh = False",
        "a prompt that was rendered anew is taken for a longer one",
        "core/test_contexts.py core/test_agent_folding.py core/test_collect.py",
    ),
    Mutation(
        f"{CORE}/collect/continuation.py",
        "(*self._key, launch, transition)",
        "(*self._key, transition)",
        "all continuations of a state draw the same tokens",
        "core/test_collect.py core/test_opening.py",
    ),
    Mutation(
        f"{CORE}/collect/continuation.py",
        'tree.snapshot[node] = call_plain(env, "snapshot")',
        "tree.snapshot[node] = tree.snapshot[ROOT]",
        "branches begin with the environment of the root",
        "core/test_agent_env.py core/test_collect.py core/test_agent.py",
    ),
    Mutation(
        f"{CORE}/collect/growth.py",
        "value = tree.reward[node] + gamma * value",
        "value = tree.reward[node] + value",
        "the search sees returns without discount",
        "core/test_collect.py core/test_search.py properties/test_search_properties.py",
    ),
    Mutation(
        f"{CORE}/collect/growth.py",
        "        self.tree.remove(branch.chain)\n",
        "",
        "failed continuations stay in the tree",
        "core/test_growth_failures.py",
    ),
    Mutation(
        f"{CORE}/env/workspace.py",
        "other._shared = self._shared = True",
        "other._shared = True",
        "what a state writes appears in its branches",
        "core/test_agent_workspace.py",
    ),
    # The schedule
    Mutation(
        f"{CORE}/schedule/loop.py",
        "learner_step=before.learner_step + trains",
        "learner_step=before.learner_step + 1",
        "a skipped batch counts as an update",
        "core/test_schedule.py core/test_schedule_reports.py",
    ),
    Mutation(
        f"{CORE}/schedule/loop.py",
        "if old is not None and (self.pending is None or old is not self.sampling):",
        "if old is not None:",
        "the policy that is sampled is closed",
        "core/test_schedule.py core/test_schedule_limits.py core/test_schedule_faults.py",
    ),
    Mutation(
        f"{CORE}/schedule/loop.py",
        'record.metadata["training"]["learner_step"] = learner_step',
        'record.metadata["training"]["learner_step"] = learner_step + 1',
        "critic records name the step after theirs",
        "core/test_schedule.py core/test_schedule_reports.py core/test_sinks.py",
    ),
    Mutation(
        f"{CORE}/schedule/progress.py",
        "if not 0 <= batch.policy_lag <= async_depth:",
        "if not 0 <= batch.policy_lag <= async_depth + 1:",
        "batches a step too old are trained",
        "core/test_schedule_limits.py core/test_schedule.py",
    ),
    Mutation(
        f"{CORE}/schedule/batches.py",
        "found = await collect(self._at(index * self.problems_per_step + place), 0)",
        "found = await collect(self._at(index + place), 0)",
        "problems are seen several times an epoch",
        "core/test_schedule.py core/test_order.py",
    ),
    Mutation(
        f"{CORE}/schedule/order.py",
        'random.Random(f"{self.seed},{epoch}")',
        'random.Random(f"{self.seed}")',
        "every epoch has one order",
        "core/test_order.py",
    ),
    # Adapters
    Mutation(
        f"{LOCAL}/losses.py",
        "return -torch.minimum(",
        "return -torch.maximum(",
        "PPO takes the greater side",
        "adapters/local/test_losses.py",
    ),
    Mutation(
        f"{LOCAL}/losses.py",
        "weight = ratio.detach().clamp(",
        "weight = ratio.clamp(",
        "CISPO's weight has a gradient",
        "adapters/local/test_losses.py",
    ),
    Mutation(
        f"{LOCAL}/_sampling.py",
        "before = mass.cumsum(-1) - mass",
        "before = mass.cumsum(-1)",
        "top-p leaves out the token that reaches it",
        "adapters/local/test_choice.py",
    ),
    Mutation(
        f"{LOCAL}/learner.py",
        "(len(groups[-1]) + 1) * width[groups[-1][0]] <= max_tokens",
        "len(groups[-1]) * width[groups[-1][0]] <= max_tokens",
        "micro-batches hold a row too many",
        "adapters/local/test_items.py",
    ),
    Mutation(
        f"{LOCAL}/learner.py",
        "return int(np.flatnonzero(item.mask)[-1]) + 1",
        "return int(np.flatnonzero(item.mask)[-1])",
        "the last generated token is not trained",
        "adapters/local/test_learner.py",
    ),
    Mutation(
        f"{LOCAL}/checkpoint.py",
        "    learner.step = saved.step\n",
        "",
        "a resumed learner counts from zero",
        "adapters/local/test_checkpoint.py",
    ),
    Mutation(
        f"{TINKER}/metrics.py",
        "np.mean((ratio < low) | (ratio > high))",
        "np.mean(ratio > high)",
        "the clip fraction counts one side",
        "adapters/tinker/test_update.py adapters/tinker/test_train.py",
    ),
    Mutation(
        f"{TINKER}/update.py",
        "        spoil(client, None)  # until it went through whole\n",
        "",
        "a client with half an update's gradients is used again",
        "adapters/tinker/test_spoilt.py",
    ),
    Mutation(
        f"{TINKER}/policy.py",
        "stop=stop_ids(params, self.end_tokens),",
        "stop=stop_ids(params, ()),",
        "the server does not stop at the end of a turn",
        "adapters/tinker/test_policy.py",
    ),
    Mutation(
        f"{TINKER}/datums.py",
        'columns["weights"] = made.advantages',
        'columns["weights"] = made.mask.astype(np.float32)',
        "cross entropy ignores the advantages",
        "adapters/tinker/test_datums.py",
    ),
    Mutation(
        f"{TINKER}/trainer.py",
        "            telling.future().cancel()  # which the SDK's retries lose now and then\n"
        "            _sdk.silence(service)\n",
        "",
        "a session that was given up goes on with its heartbeats",
        "adapters/tinker/test_connection.py",
    ),
    Mutation(
        f"{COOKBOOK}/trajectories.py",
        "own.append((_trajectory(record, spans), advantage))",
        "own.append((_trajectory(record, record.spans), advantage))",
        "tokens are trained with other segments' advantages, too",
        "adapters/cookbook/test_trajectories.py",
    ),
    Mutation(
        f"{SLIME}/samples.py",
        "response_length=len(record.tokens) - start,",
        "response_length=len(record.tokens),",
        "the prompt counts as response",
        "adapters/slime/test_samples.py",
    ),
    Mutation(
        f"{SLIME}/samples.py",
        "reward = float(advantages.sum() / record.trained_tokens)",
        "reward = float(advantages.sum() / len(advantages))",
        "a mean over tokens that are not trained",
        "adapters/slime/test_samples.py",
    ),
)
