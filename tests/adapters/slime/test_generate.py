"""The generate functions: a tree for a sample, exactly as the router sampled it."""

import asyncio
import copy
import functools
import inspect
import math
import threading

import attrs
import pytest
from focus_adapter_slime import hooks, make_evaluate, make_generate
from focus_adapter_slime import router as requests
from focus_adapter_slime.host import open_host
from focus_adapter_slime.samples import ADVANTAGES, FACTS, to_samples

from focus_core import (
    GroupCentered,
    Independent,
    Problem,
    SamplingParams,
    Transition,
    UsageError,
    Workspace,
)
from tests.adapters.slime.router_kit import arguments
from tests.adapters.slime.slime_double import OldSample, Sample
from tests.adapters.slime.tree_kit import (
    Parity,
    call,
    collector_for,
    sample,
    slime_state,
    well_formed,
)


def positions(samples):
    """Advantage of each trained position, by the tokens up to it: what a gradient is made of."""
    found = {}
    for made in samples:
        start = len(made.tokens) - made.response_length
        spread = made.metadata.get(ADVANTAGES, [made.reward] * made.response_length)
        for at, (mask, advantage) in enumerate(zip(made.loss_mask, spread, strict=True)):
            if mask:
                key = tuple(made.tokens[: start + at + 1])
                found.setdefault(key, []).append((advantage, made.rollout_log_probs[at]))
    return {key: sorted(values) for key, values in found.items()}


def sampled(router):
    """Tokens and log probabilities of every generation, by its prompt."""
    found = {}
    for prompt, body in router.answers:
        pairs = body["meta_info"]["output_token_logprobs"]
        tokens, logprobs = [pair[1] for pair in pairs], [pair[0] for pair in pairs]
        found.setdefault((*prompt, *tokens), []).append((len(prompt), logprobs))
    return found


def test_a_tree_is_samples_of_one_rollout(router):
    source, params = sample(), {"temperature": 0.3, "max_new_tokens": 4}
    before, hook = copy.deepcopy(source), make_generate(collector_for)
    made = call(hook, arguments(router), source, params)
    assert params == {"temperature": 0.3, "max_new_tokens": 4}
    assert source == before
    assert len(made) >= 8
    said = sampled(router)
    for each in made:
        well_formed(each, source)
        assert not each.remove_sample
        at = len(each.tokens) - each.response_length
        expected = [logprobs for start, logprobs in said[tuple(each.tokens)] if start == at]
        assert each.rollout_log_probs in [pytest.approx(logprobs) for logprobs in expected]
        assert each.response == router.tokenizer.decode(each.tokens[at:])
        assert each.weight_versions == ["1"]
        assert 0.0 <= each.metadata["raw_reward"] <= 1.0
    assert {each.metadata[FACTS]["group_index"] for each in made} == {source.index}
    assert len({each.metadata[FACTS]["edge"] for each in made}) == len(made)
    temperatures = {body["sampling_params"]["temperature"] for body in router.requests}
    assert temperatures == {1.0}, "the agent's own, not Slime's"
    assert hook.counts == {"trees": 1, "samples": len(made), "empty_trees": 0}


def test_v0_3_0_gets_its_field(router):
    made = call(make_generate(collector_for), arguments(router), sample(sample_type=OldSample))
    assert {each.group_id for each in made} == {5}


def test_paths_as_samples_train_the_same_positions(router):
    """With seeds, and one continuation at a time, a tree is the same again."""
    search = Independent(n=4, max_concurrency=1)
    one_by_one = functools.partial(collector_for, search=search)
    same = {"sglang_enable_deterministic_inference": True}
    edges = call(make_generate(one_by_one), arguments(router, **same))
    seeds = [body["sampling_params"]["sampling_seed"] for body in router.requests]
    router.clear()
    paths = call(make_generate(one_by_one), arguments(router, focus_merge=True, **same))
    assert [body["sampling_params"]["sampling_seed"] for body in router.requests] == seeds
    assert len(paths) == 4 < len(edges)
    for each in paths:
        well_formed(each, sample())
    assert any(ADVANTAGES in each.metadata for each in paths)
    ones, others = positions(edges), positions(paths)
    assert ones.keys() == others.keys()
    for key, values in ones.items():
        assert others[key] == [pytest.approx(value, abs=1e-4) for value in values]
    router.clear()
    call(make_generate(one_by_one), arguments(router, **same), params={"sampling_seed": 7})
    assert [body["sampling_params"]["sampling_seed"] for body in router.requests] != seeds


def test_critic_records_reach_the_sink_in_a_thread(router):
    found, threads = [], []

    def sink(records):
        threads.append(threading.current_thread())
        found.extend(records)

    call(make_generate(collector_for, critic_sink=sink), arguments(router))
    assert found
    assert {record["lane"] for record in found} == {"critic"}
    assert {record["metadata"]["problem"] for record in found} == {5}
    assert threading.main_thread() not in threads


def test_a_failing_sink_is_an_error_and_not_a_failed_tree(router):
    def sink(records):
        raise OSError("disk full")

    hook = make_generate(collector_for, critic_sink=sink)
    with pytest.raises(OSError, match="disk full"):
        call(hook, arguments(router))
    assert not hook.counts["failed_trees"]


def test_the_problem_is_the_sample(router):
    seen = []

    def collecting(policy, problem):
        seen.append(problem)
        return collector_for(policy, problem)

    chat = [{"role": "user", "content": "Say."}]
    hook = make_generate(collecting)
    call(hook, arguments(router), sample(prompt=chat, label={"x": 1}))
    call(hook, arguments(router), sample(metadata={"id": "one", "level": 2}))
    first, second = seen
    assert (first.prompt, first.label, first.id) == (chat, {"x": 1}, 5)
    assert (second.id, dict(second.metadata)) == ("one", {"id": "one", "level": 2})


def test_the_options_of_a_collection_are_passed_on(router):
    asked = []

    def workspace_for(problem):
        asked.append(problem)
        return Workspace()

    hook = make_generate(collector_for, workspace_for=workspace_for, min_abs_advantage=1e9)
    (made,) = call(hook, arguments(router))
    assert made.remove_sample, "no edge is that good"
    assert isinstance(asked[0], Problem)
    (made,) = call(make_generate(collector_for), arguments(router, focus_min_abs_advantage=1e9))
    assert made.remove_sample


def test_a_tree_without_records_is_one_sample_removed(router):
    """All rollouts got the same reward, so a group's baseline teaches nothing."""

    async def same(env, text):
        return 1.0

    def collecting(policy, problem):
        return collector_for(
            policy, problem, judge=same, search=Independent(n=2), recipe=GroupCentered()
        )

    hook, source = make_generate(collecting), sample()
    (made,) = call(hook, arguments(router), source)
    well_formed(made, source)
    assert made.remove_sample
    assert made.metadata["raw_reward"] == 1.0, "what it scored is known all the same"
    assert made.status is Sample.Status.COMPLETED
    assert hook.counts["empty_trees"] == 1


def test_many_at_a_time_share_connections_and_leave_none(router):
    hook, args = make_generate(collector_for), arguments(router)

    async def all_of():
        return await asyncio.gather(*(hook(args, sample(index), {}) for index in range(6)))

    trees = asyncio.run(asyncio.wait_for(all_of(), 60))
    for index, made in enumerate(trees):
        assert {each.rollout_id for each in made} == {index}
    assert not requests._SHARED


def test_slime_passes_evaluation_by_name():
    for hook in (make_generate(collector_for), make_evaluate(collector_for), hooks.generate):
        names = list(inspect.signature(hook).parameters)
        assert names == ["args", "sample", "sampling_params", "evaluation"]
        assert inspect.iscoroutinefunction(hook)


def test_the_tokenizer_is_the_one_that_slime_loaded(router):
    with slime_state(router.tokenizer):
        args = arguments(router, hf_checkpoint="/nowhere")
        assert call(make_generate(collector_for), args)


def test_a_session_is_routed_to_one_server(router):
    hook = make_generate(collector_for)
    call(hook, arguments(router, router_policy="consistent_hashing"), sample(session_id="s1"))
    assert set(router.sessions) == {"s1"}
    router.clear()
    call(hook, arguments(router, router_policy="random"), sample(session_id="s1"))
    assert set(router.sessions) == {None}


# Evaluation


@pytest.mark.parametrize("maker", [make_generate, make_evaluate])
def test_evaluation_is_one_sample_with_the_outcome(router, maker):
    source, hook = sample(), maker(collector_for)
    for _ in range(4):
        made = call(hook, arguments(router), source, evaluation=True)
        assert isinstance(made, Sample)
        well_formed(made, source)
        assert made.reward == float(len(made.response) % 2 == 0)
        assert made.status is Sample.Status.COMPLETED
        assert ADVANTAGES not in made.metadata
        assert made.response_length <= 12
    assert hook.counts["evaluations"] == 4


def test_the_tokens_evaluated_are_those_sampled(router):
    made = call(make_evaluate(collector_for), arguments(router))
    said = [token for _, body in router.answers for token in body["output_ids"]]
    assert made.tokens[-made.response_length :] == said
    assert made.tokens[: -made.response_length] == router.requests[0]["input_ids"]


def test_a_temperature_for_evaluation(router):
    call(make_evaluate(collector_for), arguments(router, focus_eval_temperature=0))
    assert {body["sampling_params"]["temperature"] for body in router.requests} == {0}


class Endless(Parity):
    """Earns a little with every reply, answers it, and never ends."""

    async def step(self, reply):
        return Transition(0.25, messages=({"role": "user", "content": "9"},))


def test_a_rollout_that_was_cut_has_what_it_earned(router):
    def collecting(policy, problem):
        collector = collector_for(policy, problem)
        collector.agent.env = Endless(policy.decode)
        collector.agent.max_transitions = 2
        return collector

    made = call(make_evaluate(collecting), arguments(router))
    assert made.status is Sample.Status.TRUNCATED
    assert made.reward == 0.5
    first, last = [body["output_ids"] for _, body in router.answers]
    assert made.tokens[-len(last) :] == last, "what answers the last reply is not of the sample"
    assert made.tokens == router.requests[1]["input_ids"] + last
    between = [0] * (made.response_length - len(first) - len(last))
    assert between
    assert made.loss_mask == [1] * len(first) + between + [1] * len(last)


def test_a_failed_evaluation_is_no_number(router):
    router.faults["all"] = "missing"
    source = sample()
    made = call(make_evaluate(collector_for), arguments(router), source)
    well_formed(made, source)
    assert math.isnan(made.reward), "a zero would be an outcome"
    assert made.remove_sample
    assert made.status is Sample.Status.FAILED


def test_what_evaluates_does_not_train(router):
    with pytest.raises(UsageError, match="gives nothing to train on"):
        call(make_evaluate(collector_for), arguments(router), evaluation=False)


def test_evaluation_alone_minds_few_flags(router):
    args = arguments(router, custom_advantage_function_path=None)
    assert call(make_evaluate(collector_for), args)
    with pytest.raises(UsageError, match="--custom-advantage-function-path is None"):
        call(make_generate(collector_for), args, evaluation=True)


# The first call


def hot(policy, problem):
    collector = collector_for(policy, problem)
    collector.agent.sampling = SamplingParams(temperature=0.7)
    return collector


def nucleus(policy, problem):
    collector = collector_for(policy, problem)
    collector.agent.sampling = SamplingParams(top_p=0.9)
    return collector


@pytest.mark.parametrize(
    ("collecting", "changed", "message"),
    [
        (collector_for, {"group_rm": True, "kl_coef": 0.1}, r"--group-rm(.|\n)*--kl-coef"),
        (collector_for, {"focus_budgte": 3}, r"focus_budgte .*did you mean budget"),
        (collector_for, {"sglang_router_ip": None}, "router is at None"),
        (collector_for, {"hf_checkpoint": None}, "--hf-checkpoint is not set"),
        (collector_for, {"hf_checkpoint": "/nowhere"}, "'/nowhere' cannot be loaded"),
        (collector_for, {"focus_profile": "hermes"}, "does not fit"),
        (collector_for, {"rollout_temperature": 0.7}, "temperature 1, .*rollout-temperature 0.7"),
        (hot, {}, "samples at temperature 0.7"),
        (nucleus, {}, "top_p=0.9"),
        (lambda policy, problem: None, {}, "NoneType, not a Collector"),
    ],
)
def test_a_mistake_is_an_error_before_anything_is_sampled(router, collecting, changed, message):
    with pytest.raises(UsageError, match=message):
        call(make_generate(collecting), arguments(router, **changed))
    assert not router.requests
    assert not requests._SHARED


def test_images_are_refused(router):
    source = sample()
    source.multimodal_inputs = {"images": ["x"], "videos": None}
    with pytest.raises(UsageError, match="multimodal inputs"):
        call(make_generate(collector_for), arguments(router), source)


# Ready-made hooks


def test_the_configuration_alone_sets_up_a_task(router, tmp_path):
    args = arguments(
        router,
        focus_task="arithmetic",
        focus_task_options={"segment_tokens": 4, "max_tokens": 12},
        focus_search_options={"max_concurrency": 1},
        focus_budget=0,
        focus_warmup=6,
        focus_critic_sink=str(tmp_path / "critic"),
    )
    source = sample(prompt="Compute 1+2. Box the answer.", label="3")
    made = call(hooks.generate, args, source)
    for each in made:
        well_formed(each, source)
    assert 6 <= len(router.requests) <= 8, "warm-up alone"
    assert {body["sampling_params"]["max_new_tokens"] for body in router.requests} == {4}
    assert len(list((tmp_path / "critic").glob("*.jsonl"))) == 1
    one = call(hooks.evaluate, args, source)
    assert one.reward in (0.0, 1.0)
    assert call(hooks.generate, args, source, evaluation=True).reward in (0.0, 1.0)
    assert len(list((tmp_path / "critic").glob("*.jsonl"))) == 1, "evaluation trains no critic"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "names no task; put 'focus_task: NAME'"),
        ({"focus_task": "arithmetik"}, "did you mean arithmetic"),
        ({"focus_task": "arithmetic", "focus_task_options": {"levls": 1}}, "task.levls does not"),
        ({"focus_task": "arithmetic", "focus_search": "best"}, "no search 'best'"),
        ({"focus_task": "arithmetic", "focus_recipe": "td"}, "no recipe 'td'"),
        (
            {"focus_task": "arithmetic", "focus_search": "independent", "focus_budget": 3},
            "search.budget does not exist",
        ),
        (
            {"focus_task": "arithmetic", "focus_search_options": {"bugdet": 3}},
            "search.bugdet does not exist",
        ),
        ({"focus_tusk": "arithmetic"}, "focus_tusk does not exist"),
    ],
)
@pytest.mark.parametrize("hook", [hooks.generate, hooks.evaluate])
def test_a_wrong_configuration_is_an_error(router, hook, changed, message):
    with pytest.raises(UsageError, match=message):
        call(hook, arguments(router, **changed), sample(label="3"))
    assert not router.requests


def test_what_is_no_problem_is_refused_with_the_flag_to_look_at(router):
    hook = make_generate(collector_for)
    for wrong, flag in (({"prompt": None}, "--input-key"), ({"metadata": "x"}, "--metadata-key")):
        with pytest.raises(UsageError, match=f"sample 5 has .*{flag}"):
            call(hook, arguments(router), sample(**wrong))


def test_errors_of_ones_own_functions_say_whose_they_are(router):
    def fails(*_):
        raise ZeroDivisionError

    for hook, said in (
        (make_generate(fails), "while collector_for made the collector of problem 5"),
        (make_generate(collector_for, critic_sink=fails), "while the critic records of problem 5"),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            call(hook, arguments(router))
        assert said in "".join(caught.value.__notes__)


def test_the_tokenizer_is_held_for_one_text_at_a_time(router):
    host = asyncio.run(open_host(arguments(router), sample(), profile=None, training=True))
    seen = []

    class Watching:
        eos_token_id = 3

        def decode(self, tokens, **options):
            seen.append((host.lock.locked(), len(tokens), options))
            return "text"

    decoder = attrs.evolve(host.decoder, tokenizer=Watching())
    assert decoder.decode([1, 2], skip_special_tokens=False) == "text"
    assert seen == [(True, 2, {"skip_special_tokens": False})]
    assert not host.lock.locked()
    assert decoder.eos_token_id == 3


def test_samples_are_made_beside_the_loop(router, monkeypatch):
    threads = []

    def noting(*args):
        threads.append(threading.current_thread())
        return to_samples(*args)

    monkeypatch.setattr("focus_adapter_slime.generate.to_samples", noting)
    call(make_generate(collector_for), arguments(router))
    (thread,) = threads
    assert thread is not threading.main_thread()


def test_a_folder_that_cannot_be_made_is_said_before_a_tree(router, tmp_path):
    (tmp_path / "file").write_text("")
    args = arguments(
        router, focus_task="arithmetic", focus_critic_sink=str(tmp_path / "file" / "critic")
    )
    before = len(router.requests)
    with pytest.raises(UsageError, match=r"focus_critic_sink .*critic: Not a directory; name"):
        call(hooks.generate, args, sample(prompt="1+1=", label="2"))
    assert len(router.requests) == before
