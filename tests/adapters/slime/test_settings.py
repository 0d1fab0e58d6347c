"""The custom configuration, and the flags that would train something else."""

import itertools
import re
from types import SimpleNamespace

import pytest
from focus_adapter_slime.objective import RULES, check_objective, offences
from focus_adapter_slime.settings import Settings, read_settings

from focus_core import UsageError
from tests.adapters.slime.router_kit import arguments

OFFENDING = {
    "custom_advantage_function_path": [None, "os.path.join", "no.such.module", "advantages"],
    "custom_reward_post_process_path": [None, "focus_adapter_slime.advantages"],
    "custom_pg_loss_reducer_function_path": [None, "focus_adapter_slime.nothing"],
    "advantage_estimator": ["gspo", "cispo", "ppo", "reinforce_plus_plus"],
    "normalize_advantages": [True],
    "rewards_normalization": [True],
    "use_dynamic_batch_size": [False],
    "context_parallel_size": [2],
    "calculate_per_token_loss": [True],
    "compute_advantages_and_returns": [False],
    "loss_type": ["sft_loss", "custom_loss"],
    "group_rm": [True],
    "partial_rollout": [True],
    "dynamic_sampling_filter_path": ["slime.rollout.filter_hub.x.check"],
    "rollout_function_path": [
        "slime.rollout.fully_async_rollout.generate_rollout_fully_async",
    ],
    "custom_convert_samples_to_train_data_path": ["mine.convert"],
    "log_passrate": [True],
    "log_reward_category": ["kind"],
    "reward_key": ["score"],
    "eval_reward_key": ["score"],
    "apply_chat_template": [True],
    "multimodal_keys": [{"image": "images"}],
    "rollout_top_p": [0.9],
    "use_rollout_routing_replay": [True],
    "kl_coef": [0.1],
    "kl_loss_coef": [0.1],
    "entropy_coef": [0.01],
    "use_opd": [True],
    "use_opsm": [True],
    "use_tis": [True],
    "use_rollout_logprobs": [False, None],
    "get_mismatch_metrics": [True],
    "eps_clip_c": [3.0],
    "rollout_sample_filter_path": ["mine.filter"],
    "rollout_data_postprocess_path": ["mine.process"],
    "log_correct_samples": [True],
}
FLAG = re.compile(r"^  --([a-z-]+) is ", re.MULTILINE)


def named(error):
    """The flags that an error lists."""
    return [flag.replace("-", "_") for flag in FLAG.findall(str(error))]


def test_every_rule_is_tried():
    assert set(OFFENDING) == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_right_arguments_pass():
    check_objective(arguments())


def test_flags_of_another_version_are_not_asked_for():
    check_objective(SimpleNamespace())


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OFFENDING.items() for value in values]
)
def test_each_alone_is_named_with_its_value_and_what_to_use(name, value):
    with pytest.raises(UsageError) as caught:
        check_objective(arguments(**{name: value}))
    assert named(caught.value) == [name]
    (rule,) = [rule for rule in RULES if rule.name == name]
    assert f"is {value!r}: {rule.why}; " in str(caught.value)
    assert str(caught.value).startswith("1 of Slime's settings")
    assert rule.remedy in str(caught.value)


@pytest.mark.parametrize("pair", list(itertools.combinations(sorted(OFFENDING), 2)), ids="+".join)
def test_two_are_named_together(pair):
    changed = {name: OFFENDING[name][0] for name in pair}
    with pytest.raises(UsageError) as caught:
        check_objective(arguments(**changed))
    assert sorted(named(caught.value)) == sorted(pair)


def test_all_at_once_are_one_error():
    changed = {name: values[0] for name, values in OFFENDING.items()}
    with pytest.raises(UsageError) as caught:
        check_objective(arguments(**changed))
    assert sorted(named(caught.value)) == sorted(OFFENDING)
    assert str(caught.value).startswith(f"{len(OFFENDING)} of Slime's settings")


@pytest.mark.parametrize("name", [rule.name for rule in RULES if rule.optional])
def test_a_term_of_its_own_can_be_wanted(name):
    args = arguments(**{name: OFFENDING[name][0]})
    assert [rule.name for rule, _ in offences(args)] == [name]
    with pytest.raises(UsageError, match=rf"focus_allow: \[{name}\]"):
        check_objective(args)
    check_objective(args, [name])


def test_what_breaks_training_cannot_be_wanted():
    with pytest.raises(UsageError, match=r"focus_allow names group_rm; it may name .*kl_loss_coef"):
        check_objective(arguments(), ["group_rm"])


@pytest.mark.parametrize("home", ["focus_adapter_slime.", "focus_adapter_slime.losses."])
def test_our_hooks_are_known_by_every_path(home):
    check_objective(
        arguments(
            custom_advantage_function_path=home + "advantages",
            custom_reward_post_process_path=home + "preserve_advantages",
            custom_pg_loss_reducer_function_path=home + "sum_policy_tokens",
        )
    )


def test_evaluation_minds_only_what_it_reads():
    changed = {name: values[0] for name, values in OFFENDING.items()}
    with pytest.raises(UsageError) as caught:
        check_objective(arguments(**changed), training=False)
    assert sorted(named(caught.value)) == [
        "apply_chat_template",
        "eval_reward_key",
        "multimodal_keys",
        "reward_key",
    ]


# The custom configuration


def test_nothing_set_is_the_defaults():
    assert read_settings(arguments()) == Settings()


def test_attributes_are_read_by_their_prefix():
    found = read_settings(
        arguments(
            focus_task="math",
            focus_task_options={"segment_tokens": 64},
            focus_search_options={"max_concurrency": 2, "budget": 1},
            focus_budget=8,
            focus_warmup=4,
            focus_merge=True,
            focus_straddle="keep",
            focus_deadline=60,
        )
    )
    assert (found.task, found.merge, found.straddle, found.deadline) == ("math", True, "keep", 60)
    assert found.searching() == {"max_concurrency": 2, "budget": 8, "warmup": 4}
    assert found.task_options == {"segment_tokens": 64}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", 3),
        ("task", ""),
        ("task_options", [1]),
        ("task_options", {1: 2}),
        ("budget", -1),
        ("budget", 1.5),
        ("budget", True),
        ("warmup", "8"),
        ("merge", "yes"),
        ("arrays", 1),
        ("straddle", "maybe"),
        ("on_failure", "ignore"),
        ("max_failures", 0),
        ("deadline", 0),
        ("deadline", float("inf")),
        ("deadline", float("nan")),
        ("min_abs_advantage", -0.1),
        ("retries", -1),
        ("requests", 0),
        ("context_length", 1),
        ("eval_temperature", -1),
        ("allow", "kl_loss_coef"),
        ("deadline", None),
    ],
)
def test_a_wrong_value_is_named(name, value):
    with pytest.raises(UsageError, match=f"focus_{name} is {re.escape(repr(value))}; it must be"):
        read_settings(arguments(**{f"focus_{name}": value}))


def test_every_mistake_is_in_one_error():
    with pytest.raises(UsageError) as caught:
        read_settings(arguments(focus_tusk="math", focus_budget=-1, focus_merge=2))
    text = str(caught.value)
    assert "focus_tusk does not exist (did you mean task?)" in text
    assert "focus_budget is -1" in text
    assert "focus_merge is 2" in text
    assert "It takes focus_task, focus_task_options" in text
