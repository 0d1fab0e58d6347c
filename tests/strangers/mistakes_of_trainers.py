"""One mistake for each contract of policies and trainers."""

from tests.strangers.strangers_kit import Break

POLICY = [
    Break(
        "policy",
        "has_the_methods",
        "policy",
        {"self.version = version": "self.version = (version,)"},
        "must name the snapshot",
    ),
    Break(
        "policy",
        "prepare_repeats",
        "policy",
        {
            "        for message in messages:\n": (
                '        for message in messages:\n            message["seen"] = True\n'
            )
        },
        "changed the messages",
    ),
    Break(
        "policy",
        "a_chat_extends_its_prompt",
        "policy",
        {'[*tokens, 1 + ROLES.index("assistant")]': "[*tokens, 5]"},
        "does not begin with the prompt of the shorter one",
    ),
    Break(
        "policy",
        "decode_takes_any_ids",
        "policy",
        {"NAMES[token] for": "CHARACTERS[token - 5 if token > 4 else 200] for"},
        "IndexError",
    ),
    Break(
        "policy",
        "generations_can_be_trained_on",
        "policy",
        {
            "logprobs.append(logprob)": (
                'logprobs.append(logprob if len(logprobs) < 7 else float("nan"))'
            )
        },
        "log probability 7 of 8 is nan",
    ),
    Break(
        "policy",
        "max_tokens_is_kept",
        "policy",
        {"< params.max_tokens": "< min(params.max_tokens, 6)"},
        "says it was cut by length",
    ),
    Break(
        "policy",
        "stop_tokens_end_a_turn",
        "policy",
        {" or tokens[-1] in params.stop": ""},
        "sampling went on after it",
    ),
    Break(
        "policy",
        "n_asks_for_n",
        "policy",
        {"in range(n)": "in range(min(n, 2))"},
        "n=3 gave 2",
    ),
    Break(
        "policy",
        "a_seed_repeats",
        "policy",
        {"if params.seed is None": "if params.seed != -1"},
        "honour seed",
    ),
    Break(
        "policy",
        "log_probabilities_are_those_drawn_with",
        "policy",
        {"float(every[place])": "float(every[place]) - 0.7"},
        "but reported with probability",
    ),
    Break(
        "policy",
        "a_continuation_knows_its_prefix",
        "policy",
        {
            "log_softmax(logits / params.temperature)": (
                "log_softmax(logits / params.temperature"
                " + 0.3 * len(tokens) * np.arange(len(logits)))"
            )
        },
        "condition on exactly the tokens given",
    ),
    Break(
        "policy",
        "greedy_repeats",
        "policy",
        {
            "if params.temperature == 0.0:": "if params.temperature < 0.0:",
            "logits / params.temperature": "logits / (params.temperature or 1.0)",
        },
        "take the most likely token",
    ),
    Break(
        "policy",
        "requests_side_by_side_do_not_mix",
        "policy",
        {
            "        await asyncio.sleep(0)\n": (
                "        self._size = len(tokens)\n        await asyncio.sleep(0)\n"
            ),
            "default_rng([params.seed, sample])": "default_rng([params.seed, sample, self._size])",
        },
        "keep each request's state apart",
    ),
    Break(
        "policy",
        "the_prefix_is_left_alone",
        "policy",
        {
            "        await asyncio.sleep(0)\n": (
                "        await asyncio.sleep(0)\n        tokens.append(END)\n"
            )
        },
        "copy them",
    ),
    Break(
        "policy",
        "the_context_length_is_kept",
        "policy",
        {"    end_tokens = frozenset": "    context_length = 64\n    end_tokens = frozenset"},
        "context_length is 64",
    ),
    Break(
        "policy",
        "sampling_does_not_hold_the_loop",
        "policy",
        {
            "import string\n": "import string\nimport time\n",
            "        await asyncio.sleep(0)\n": "        time.sleep(0.03)\n",
        },
        "compute in a thread",
    ),
    Break(
        "policy",
        "closed_it_refuses",
        "policy",
        {"self._closed = True": "self._closed = False"},
        "a closed policy went on sampling",
    ),
]

TRAINER = [
    Break(
        "trainer",
        "has_the_methods",
        "trainer",
        {"async def save_state(": "async def keep("},
        "has no method save_state()",
        also={"a_saved_state_resumes", "merged_records_train_as_single_ones"},
    ),
    Break(
        "trainer",
        "options_can_be_set",
        "trainer",
        {'loss: Literal["ppo"': 'loss: Literal["PPO"'},
        "--set trainer.loss=ppo",
    ),
    Break(
        "trainer",
        "capabilities_are_those_registered",
        "plugin",
        {', "resumes"}': "}"},
        "write the same in both",
    ),
    Break(
        "trainer",
        "closes_twice",
        "trainer",
        {'"""Nothing to end."""': "del self._table"},
        "AttributeError",
    ),
    Break(
        "trainer",
        "convert_is_pure",
        "trainer",
        {
            "        token = int(record.tokens[at])\n": (
                "        token = int(record.tokens[at])\n"
                '        record.metadata["converted"] = True\n'
            )
        },
        "changed the records",
    ),
    Break(
        "trainer",
        "convert_keeps_order",
        "trainer",
        {"for record in records": "for record in sorted(records, key=lambda r: len(r.tokens))"},
        "does not keep the order",
    ),
    Break(
        "trainer",
        "an_update_follows_the_advantage",
        "trainer",
        {"slope *= ratio * step.advantage": "slope *= -ratio * step.advantage"},
        "an update ascends",
    ),
    Break(
        "trainer",
        "metrics_are_finite",
        "trainer",
        {"float(ratios.mean())": "float(ratios.sum())"},
        "at lag 0 ratio_mean is",
    ),
    Break(
        "trainer",
        "older_batches_train",
        "trainer",
        {"if batch.on_policy and ": "if "},
        "OffPolicyError",
        ("replayed_batches_train",),
    ),
    Break(
        "trainer",
        "replayed_batches_train",
        "trainer",
        {"if batch.on_policy and ": "if batch.policy_lag == 0 and "},
        "compare log probabilities where batch.on_policy is true",
    ),
    Break(
        "trainer",
        "off_policy_is_noticed",
        "trainer",
        {"> 1e-4": "> 1e4"},
        "took log probabilities that are 3 nats off",
    ),
    Break(
        "trainer",
        "no_advantage_no_change",
        "trainer",
        {"self.learning_rate * slope": "self.learning_rate * (slope + 0.05 * np.arange(5))"},
        "a batch without advantages changed the policy",
    ),
    Break(
        "trainer",
        "nothing_and_nonsense_do_not_train",
        "trainer",
        {
            '            raise RecordError("the items of a batch must be what convert() made")\n': (
                "            return {}\n"
            )
        },
        "took an item that convert() did not make",
    ),
    Break(
        "trainer",
        "a_cancelled_update_is_whole_or_nothing",
        "trainer",
        {
            "import json\n": "import asyncio\nimport json\n",
            '        """One exact step."""\n': (
                '        if b"busy" in self._table:\n'
                '            raise TrainerError("an update is running")\n'
                '        self._table[b"busy"] = np.zeros(1)\n'
                "        await asyncio.sleep(0)\n"
            ),
            "        self._updates += 1\n": (
                '        self._updates += 1\n        del self._table[b"busy"]\n'
            ),
        },
        "an update is running",
    ),
    Break(
        "trainer",
        "published_policies_are_frozen",
        "trainer",
        {"self._sayable, self._updates)": "self._sayable, 0)"},
        "different weights never share one",
    ),
    Break(
        "trainer",
        "sampling_goes_on_during_an_update",
        "trainer",
        {"TabularPolicy(dict(self._table)": "TabularPolicy(self._table"},
        "sampling during an update saw weights change",
        also={"published_policies_are_frozen"},
    ),
    Break(
        "trainer",
        "a_saved_state_resumes",
        "trainer",
        {"logits.tolist() for prefix, logits": "logits.round(1).tolist() for prefix, logits"},
        "is not the one that was saved",
    ),
    Break(
        "trainer",
        "merged_records_train_as_single_ones",
        "trainer",
        {"float(record.advantages[at])": "float(record.advantages[at]) / record.trained_tokens"},
        "sum the loss over tokens",
    ),
]
