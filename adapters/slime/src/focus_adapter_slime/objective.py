"""Flags of Slime that would train something else than the trees' advantages."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from focus_core.errors import UsageError

__all__ = ["EVALUATION", "RULES", "Rule", "check_objective", "offences"]


@attrs.frozen
class Rule:
    """One flag and what it must be.

    An attribute that ``args`` does not have is of another version of Slime and is not checked.

    Attributes:
        name: Attribute of ``args``.
        fits: Whether its value leaves the objective alone.
        remedy: What to pass instead.
        why: What goes wrong otherwise.
        optional: The flag adds a term or a filter of its own to the objective; a user who wants
            it names it in ``focus_allow``.
    """

    name: str
    fits: Callable[[Any], bool]
    remedy: str
    why: str
    optional: bool = False

    @property
    def flag(self) -> str:
        """As a command line writes it."""
        return "--" + self.name.replace("_", "-")


def _off(value: Any) -> bool:
    return not value


def _on(value: Any) -> bool:
    return bool(value)


def _ours(function: str) -> Callable[[Any], bool]:
    """Whether a dotted path leads to one of our hooks."""

    def fits(path: Any) -> bool:
        if not isinstance(path, str):
            return False
        module, _, name = path.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError):
            return False
        home = getattr(found, "__module__", None) or ""
        return home.startswith("focus_adapter_slime") and getattr(found, "__name__", "") == function

    return fits


def _hook(argument: str, function: str, why: str) -> Rule:
    flag = "--" + argument.replace("_", "-")
    return Rule(argument, _ours(function), f"{flag} focus_adapter_slime.{function}", why)


def _without(flag: str) -> str:
    return f"leave {flag} out"


def _absent(name: str, why: str, *, optional: bool = False) -> Rule:
    """Of a flag that must not be given."""
    return Rule(name, _off, _without("--" + name.replace("_", "-")), why, optional)


RULES: Sequence[Rule] = (
    _hook("custom_advantage_function_path", "advantages", "Slime's estimator replaces the trees'"),
    _hook("custom_reward_post_process_path", "preserve_advantages", "Slime centres the advantages"),
    _hook(
        "custom_pg_loss_reducer_function_path",
        "sum_policy_tokens",
        "the loss is a mean over each tree's tokens instead of a sum",
    ),
    Rule(
        "advantage_estimator",
        lambda value: value == "grpo",
        "--advantage-estimator grpo",
        "another one changes the loss, trains a critic, or whitens",
    ),
    _absent("normalize_advantages", "advantages are whitened after our hook"),
    Rule(
        "rewards_normalization",
        _off,
        "--disable-rewards-normalization",
        "what our hook does not hand on is centred like rewards",
    ),
    Rule(
        "use_dynamic_batch_size",
        _on,
        "--use-dynamic-batch-size --max-tokens-per-gpu N",
        "trees have uneven numbers of samples, which fixed micro-batches cannot hold",
    ),
    Rule(
        "context_parallel_size",
        lambda value: value in (None, 1),
        "--context-parallel-size 1",
        "the reducer would sum over a part of each sequence",
    ),
    _absent("calculate_per_token_loss", "the sum is divided by the number of tokens"),
    Rule(
        "loss_type",
        lambda value: value in (None, "policy_loss"),
        "--loss-type policy_loss",
        "another loss does not read the advantages",
    ),
    Rule(
        "compute_advantages_and_returns",
        _on,
        _without("--disable-compute-advantages-and-returns"),
        "our advantage hook is not called",
    ),
    _absent(
        "group_rm",
        "rewards of a group replace the advantages, and cannot be shared among its trees",
    ),
    _absent("partial_rollout", "half a tree has no advantages, and is not continued"),
    _absent(
        "dynamic_sampling_filter_path",
        "filters read one reward per sample, and a tree has a list of them",
    ),
    Rule(
        "rollout_function_path",
        lambda value: "fully_async" not in str(value),
        "--rollout-function-path slime.rollout.sglang_rollout.generate_rollout",
        "fully asynchronous rollouts take one sample per prompt, and mix weights",
    ),
    _absent(
        "custom_convert_samples_to_train_data_path",
        "it takes the place of what hands our advantages on",
    ),
    _absent("log_passrate", "it wants as many samples for every prompt"),
    _absent(
        "log_correct_samples",
        "it looks for samples of reward 1, and for log probabilities that are not recomputed",
    ),
    _absent("log_reward_category", "a sample's reward is a number, not an object"),
    _absent("reward_key", "a sample's reward is a number, not an object"),
    _absent("eval_reward_key", "a sample's reward is a number, not an object"),
    _absent(
        "apply_chat_template",
        "the policy renders the chat itself, and a rendered prompt would be rendered again",
    ),
    _absent("multimodal_keys", "tasks see text only, and images would be left out"),
    Rule(
        "rollout_top_p",
        lambda value: value in (None, 1),
        "--rollout-top-p 1.0",
        "Slime then wants the nucleus of every token, which records do not have",
    ),
    _absent("use_rollout_routing_replay", "records do not have the experts of every token"),
    Rule(
        "kl_coef",
        _off,
        "--kl-coef 0, and --use-kl-loss --kl-loss-coef X with focus_allow: [kl_loss_coef] if a KL "
        "term is wanted",
        "it works on rewards, which the trees' advantages replace",
    ),
    Rule(
        "use_rollout_logprobs",
        _on,
        "--use-rollout-logprobs",
        "the ratio is to log probabilities that are computed again at the update, not to those of "
        "the weights that sampled",
        optional=True,
    ),
    Rule(
        "kl_loss_coef",
        _off,
        "--kl-loss-coef 0",
        "it adds a term to the loss",
        optional=True,
    ),
    Rule("entropy_coef", _off, "--entropy-coef 0", "it adds a term to the loss", optional=True),
    _absent("use_opd", "it subtracts from the advantages", optional=True),
    _absent("use_tis", "it weighs token losses by a ratio of its own", optional=True),
    _absent(
        "get_mismatch_metrics",
        "the function that measures also weighs and masks token losses",
        optional=True,
    ),
    _absent("eps_clip_c", "it bounds the losses of negative advantages once more", optional=True),
    _absent("rollout_sample_filter_path", "it takes samples out of trees", optional=True),
    _absent(
        "rollout_data_postprocess_path",
        "it may change the advantages after our hook",
        optional=True,
    ),
    _absent("use_opsm", "it masks whole sequences", optional=True),
)


EVALUATION = frozenset(("reward_key", "eval_reward_key", "apply_chat_template", "multimodal_keys"))
"""Rules that also hold where nothing is trained."""


def offences(
    args: Any, allow: Sequence[str] = (), *, training: bool = True
) -> Iterator[tuple[Rule, Any]]:
    """Every rule that ``args`` breaks, and the value that breaks it."""
    for rule in RULES:
        if (rule.optional and rule.name in allow) or not (training or rule.name in EVALUATION):
            continue
        if hasattr(args, rule.name) and not rule.fits(getattr(args, rule.name)):
            yield rule, getattr(args, rule.name)


def check_objective(args: Any, allow: Sequence[str] = (), *, training: bool = True) -> None:
    """Refuse flags that would change what is trained.

    Args:
        args: Slime's.
        allow: Names of flags that the user changes on purpose.
        training: Whether something is trained; evaluation alone minds few flags.

    Raises:
        UsageError: Names every offending flag, its value and the one to use; or a flag in
            ``allow`` cannot be allowed.
    """
    optional = [rule.name for rule in RULES if rule.optional]
    if unknown := [name for name in allow if name not in optional]:
        raise UsageError(
            f"focus_allow names {', '.join(unknown)}; it may name {', '.join(optional)}"
        )
    found = list(offences(args, allow, training=training))
    if not found:
        return
    lines = [
        f"  {rule.flag} is {value!r}: {rule.why}; use {rule.remedy}"
        if not rule.remedy.startswith("leave")
        else f"  {rule.flag} is {value!r}: {rule.why}; {rule.remedy}"
        for rule, value in found
    ]
    some = [rule.name for rule, _ in found if rule.optional]
    hint = f"\nTo change the objective on purpose: focus_allow: [{', '.join(some)}]" if some else ""
    raise UsageError(
        f"{len(found)} of Slime's settings would change what is trained:\n"
        + "\n".join(lines)
        + hint
    )
