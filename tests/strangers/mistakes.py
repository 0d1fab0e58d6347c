"""One mistake for each contract, as changes of the strangers' code."""

from tests.strangers.strangers_kit import Break

KEPT_LIST = {
    "self.tried: tuple[str, ...] = ()": "self.tried: list[str] = []",
    "self.said, self.tried = (), (*self.tried, guess)": (
        "self.said = ()\n        self.tried.append(guess)"
    ),
}
"""The environment keeps its guesses in a list that it appends to."""

COUNT = "import itertools\n\n_COUNT = itertools.count(8, 5)\n\n\n"

ENV = [
    Break(
        "task",
        "env_has_the_methods",
        "task",
        {"def restore(": "def put_back("},
        "a state needs both",
    ),
    Break(
        "task",
        "reset_gives_messages",
        "task",
        {'"content": problem.prompt}': '"content": problem.prompt + str(random.random())}'},
        "other messages the second time",
    ),
    Break(
        "task",
        "step_gives_transitions",
        "task",
        {'"right_letters": right / len(self.word)': '"right_letters": float("nan")'},
        "metrics are finite numbers",
    ),
    Break(
        "task",
        "reset_starts_over",
        "task",
        {"self.word, self.said, self.tried = problem.label, (), ()": "self.word = problem.label"},
        r"reset() must put back everything",
    ),
    Break(
        "task",
        "copies_are_apart",
        "task",
        KEPT_LIST
        | {
            "self.word, self.said, self.tried = problem.label, (), ()": (
                "self.word, self.said = problem.label, ()\n        self.tried.clear()"
            ),
            "return self.word, self.said, self.tried": (
                "return self.word, self.said, tuple(self.tried)"
            ),
            "self.word, self.said, self.tried = state": (
                "self.word, self.said, tried = state\n        self.tried = list(tried)"
            ),
        },
        "two copies of CodewordsEnv disturb each other",
    ),
    Break(
        "task",
        "snapshots_stay_as_they_were",
        "task",
        KEPT_LIST
        | {
            "self.word, self.said, self.tried = problem.label, (), ()": (
                "self.word, self.said, self.tried = problem.label, (), []"
            ),
            "self.word, self.said, self.tried = state": (
                "self.word, self.said, tried = state\n        self.tried = list(tried)"
            ),
        },
        "return immutable values",
    ),
    Break(
        "task",
        "restore_goes_on",
        "task",
        {"self.word, self.said, self.tried = state": "self.word, self.said, _ = state"},
        "restore() must put all of it back",
    ),
    Break(
        "task",
        "branches_are_apart",
        "task",
        KEPT_LIST
        | {
            "self.word, self.said, self.tried = problem.label, (), ()": (
                "self.word, self.said, self.tried = problem.label, (), []"
            ),
            "return self.word, self.said, self.tried": (
                "return self.word, self.said, list(self.tried)"
            ),
        },
        "branches of one state of CodewordsEnv disturb each other",
    ),
    Break(
        "task",
        "step_does_not_hold_the_loop",
        "task",
        {
            "import random\n": "import random\nimport time\n",
            "self.said = (*self.said, *reply.tokens)": (
                "time.sleep(0.03)\n        self.said = (*self.said, *reply.tokens)"
            ),
        },
        "await self.execution.run",
    ),
]

TASK = [
    Break("task", "has_the_methods", "task", {'= "codewords"': '= "words"'}, "use one name"),
    Break(
        "task",
        "options_can_be_set",
        "task",
        {"letters: str =": "letters: Any ="},
        "task.letters has no type",
    ),
    Break(
        "task",
        "problems_are_the_same_each_time",
        "task",
        {'id=f"word-{number}",': 'id=f"word-{number}",\nmetadata={"x": random.random()},'},
        "draw with a seed",
    ),
    Break(
        "task",
        "problem_ids_are_unique",
        "task",
        {'id=f"word-{number}"': 'id="word"'},
        "two problems have the id 'word'",
    ),
    Break(
        "task",
        "held_out_problems_are_held_out",
        "task",
        {
            'TaskDefaults(source="all"': 'TaskDefaults(source="all", eval_source="heldout"',
            'if source != "all":': 'if source not in ("all", "heldout"):',
        },
        "both trained and evaluated on",
    ),
    Break(
        "task",
        "prompts_render",
        "task",
        {'return ({"role": "user"': 'return ({"role": "human"'},
        "no chat template knows the role 'human'",
        also={"collects_without_failures"},
    ),
    Break(
        "task",
        "the_label_stays_out_of_the_prompt",
        "task",
        {'"content": problem.prompt}': '"content": problem.prompt + problem.label}'},
        "the policy sees the answer",
    ),
    Break(
        "task",
        "collectors_are_fresh",
        "task",
        {
            "def right_letters": "_SHARED: list[Any] = []\n\n\ndef right_letters",
            "        agent = Agent(": (
                "        _SHARED.append(CodewordsEnv(policy.decode, self.guesses))\n"
                "        agent = Agent("
            ),
            "            CodewordsEnv(policy.decode, self.guesses),\n": "            _SHARED[0],\n",
        },
        "two collectors share an environment",
    ),
    Break(
        "task",
        "collects_without_failures",
        "task",
        {
            "        guess = self.decode": (
                "        if len(self.said) < len(self.word):\n"
                '            raise ValueError("too short a guess")\n'
                "        guess = self.decode"
            )
        },
        "too short a guess",
    ),
    Break(
        "task",
        "collecting_repeats",
        "task",
        {
            "def right_letters": COUNT + "def right_letters",
            "Selective(budget=12": "Selective(budget=next(_COUNT)",
        },
        "grew another tree",
    ),
    Break(
        "task",
        "validates",
        "task",
        {"is not expected": "is expected"},
        "was not judged",
    ),
    Break(
        "task",
        "bad_sources_are_explained",
        "task",
        {'if source != "all":': 'if source == "":'},
        "there is no such source",
    ),
]

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
        also={"a_saved_state_resumes"},
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
        {"if batch.policy_lag == 0 and ": "if "},
        "OffPolicyError",
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

LANE = [
    Break("lane", "is_a_lane", "lane", {'export, "sink")': 'export, "update")'}, "consumer='sink'"),
    Break(
        "lane",
        "something_is_exported",
        "lane",
        {"margin > 0.0": "margin > 100.0"},
        "is the selection right?",
    ),
    Break(
        "lane",
        "small_trees_are_fine",
        "lane",
        {"    return found\n": "    return [found[0], *found[1:]]\n"},
        "give no record where there is nothing",
    ),
    Break(
        "lane",
        "records_are_of_the_type",
        "lane",
        {'Lane("preferences", Preference': 'Lane("preferences", dict'},
        "export gave a Preference; the lane says dict",
    ),
    Break(
        "lane",
        "plain_records_are_complete",
        "lane",
        {'                "group_index": collection.group_index,\n': ""},
        "the metadata lacks group_index",
    ),
    Break(
        "lane",
        "metadata_is_each_records_own",
        "lane",
        {'"metadata": dict(self.metadata)': '"metadata": {**self.metadata, "training": None}'},
        "give each record a dict of its own",
    ),
    Break(
        "lane",
        "export_repeats",
        "lane",
        {
            "@attrs.frozen\n": COUNT + "@attrs.frozen\n",
            "margin = float(": "margin = next(_COUNT) + float(",
        },
        "exported otherwise the second time",
    ),
    Break(
        "lane",
        "export_leaves_the_tree_alone",
        "lane",
        {"        worst, best =": "        tree.reward[parent] += 1.0\n        worst, best ="},
        "other lanes read it too",
    ),
    Break(
        "lane",
        "plain_records_read_back",
        "lane",
        {'plain["margin"],': "0.0,"},
        "is another record",
    ),
]

OBSERVER = [
    Break(
        "observer",
        "hooks_fit",
        "observer",
        {"    @hookimpl\n    def focus_step": "    def focus_step"},
        "decorate it with hookimpl",
    ),
    Break(
        "observer",
        "takes_a_whole_run",
        "observer",
        {'report.metrics.get(name, "")': 'report.metrics[f"mean_{name}"]'},
        "focus_step_finished raised KeyError",
    ),
    Break(
        "observer",
        "takes_a_run_that_ends_early",
        "observer",
        {"(event.status,)": "(event.status, event.reports[-1].batch)"},
        "focus_run_finished raised IndexError",
    ),
    Break(
        "observer",
        "events_stay_as_they_were",
        "observer",
        {"report.metrics.get(name": "report.metrics.pop(name"},
        "focus_step_finished changed the event",
    ),
    Break(
        "observer",
        "does_not_hold_the_run",
        "observer",
        {
            "import csv\n": "import csv\nimport time\n",
            "        report = event": "        time.sleep(0.03)\n        report = event",
        },
        "hand slow work to a thread",
    ),
]

MISTAKES = [*ENV, *TASK, *POLICY, *TRAINER, *LANE, *OBSERVER]
