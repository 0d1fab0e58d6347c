"""One mistake for each contract of tasks and environments."""

from tests.strangers.strangers_kit import COUNT, Break

KEPT_LIST = {
    "self.tried: tuple[str, ...] = ()": "self.tried: list[str] = []",
    "self.said, self.tried = (), (*self.tried, guess)": (
        "self.said = ()\n        self.tried.append(guess)"
    ),
}
"""The environment keeps its guesses in a list that it appends to."""

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
        also={"collects_without_failures"},
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
    Break(
        "task",
        "ended_rollouts_hold_nothing",
        "task",
        {
            "import random\n": "import os\nimport random\n",
            "self.word, self.said, self.tried = problem.label, (), ()": (
                "self.word, self.said, self.tried = problem.label, (), ()\n"
                "        os.open(__file__, os.O_RDONLY)"
            ),
        },
        "give it a release() to close",
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
