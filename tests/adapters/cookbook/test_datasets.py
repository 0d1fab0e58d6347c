"""FOCUS tasks as cookbook datasets: the cookbook's own rollouts, groups and training step."""

import asyncio
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import attrs
import pytest
from focus_adapter_cookbook import Chat, CookbookTask, FocusDatasetBuilder, FocusGroupBuilder
from focus_task_arithmetic import ArithmeticTask
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollout_strategy import RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.train import train_step

from focus_core import (
    Agent,
    Collector,
    Critic,
    Folding,
    Problem,
    ReplyEnv,
    Segments,
    TaskDefaults,
    Transition,
    Turns,
    UsageError,
)
from tests.adapters.cookbook.cookbook_kit import TalkGroup, Uniform


class Guesser(Uniform):
    """Says digits of the tiny tokenizer, and ends now and then."""

    def __init__(self, renderer, text="0123456789", **options):
        encode = renderer.tokenizer.encode
        tokens = [encode(letter, add_special_tokens=False)[-1] for letter in text]
        super().__init__([*tokens, renderer.tokenizer.eos_token_id], **options)


class Steady(Guesser):
    """Says two digits and ends."""

    def say(self, stop, most):
        said = [self.tokens[1], self.tokens[2], self.tokens[-1]]
        return TokensWithLogprobs(said, [-1.0] * 3, "stop")


@attrs.frozen
class Task:
    """A task of one environment class."""

    make: type
    context: object = Segments(3)
    system_prompt: str | None = None
    limit: int = 64

    name = "told"
    defaults = TaskDefaults(source="all")

    def problems(self, source):
        return [Problem(str(n), str(n), id=str(n)) for n in range(5)]

    def collector_for(self, policy, problem):
        agent = Agent(
            policy,
            self.make(policy.decode, 7),
            context=self.context,
            system_prompt=self.system_prompt,
            max_transitions=self.limit,
        )
        return Collector(agent, critic=Critic.constant(0.5))


class Length(ReplyEnv):
    """Worth the length of the text."""

    graded = ()

    async def grade(self, text):
        type(self).graded = (*type(self).graded, text)
        return float(len(text))


class Talking(ReplyEnv):
    """Answers each reply with its number, three times."""

    answered = 0

    async def grade(self, text):
        return 1.0

    async def step(self, reply):
        transition = await super().step(reply)
        if not transition.done:
            return transition
        self.answered, self._said = self.answered + 1, None
        if self.answered == 3:
            return transition
        return Transition(0.5, messages=({"role": "user", "content": str(self.answered)},))


class Cut(ReplyEnv):
    async def step(self, reply):
        return Transition(truncated=True)


def group_of(task, renderer, size=3, problem=None):
    return FocusGroupBuilder(task, problem or Problem("2+3", "5", id="p"), Chat(renderer), size)


def rolled(builder, completer, **options):
    return asyncio.run(do_group_rollout(builder, completer, **options))


def test_a_reply_in_segments_is_one_datum_graded_once(renderer):
    Length.graded = ()
    completer = Guesser(renderer)
    builder = group_of(Task(Length), renderer, size=4)
    group = rolled(builder, completer)
    assert builder.logging_tags() == ["told"]
    assert len(Length.graded) == 4
    prompt = list(Chat(renderer).prepare([{"role": "user", "content": "2+3"}]).tokens)
    data, _ = assemble_training_data([group], compute_advantages([group]))
    assert len(data) == 4
    for trajectory, total in zip(group.trajectories_G, group.get_total_rewards(), strict=True):
        said = []
        for transition in trajectory.transitions:
            assert transition.ob.to_ints() == [*prompt, *said]
            assert len(transition.ac.tokens) <= 3
            said += transition.ac.tokens
        assert total == len(renderer.tokenizer.decode(said))
        assert len(said) >= 7 or said[-1] == renderer.tokenizer.eos_token_id
        assert trajectory.transitions[-1].metrics["finished"] in (0.0, 1.0)
    assert {most for _, _, most in completer.asked} == {3}


def test_turns_are_rendered_as_the_agent_renders_them(renderer):
    builder = group_of(Task(Talking, Turns(7), system_prompt="Add."), renderer)
    group = rolled(builder, Guesser(renderer))
    chat = Chat(renderer)
    for trajectory in group.trajectories_G:
        messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2+3"}]
        assert [t.reward for t in trajectory.transitions] == [0.5, 0.5, 1.0]
        for number, transition in enumerate(trajectory.transitions, 1):
            assert transition.ob.to_ints() == list(chat.prepare(messages).tokens)
            said = [t for t in transition.ac.tokens if t not in chat.end_tokens]
            messages.append({"role": "assistant", "content": chat.decode(said)})
            messages.append({"role": "user", "content": str(number)})


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (Task(Cut), "max_turns"),
        (Task(Length, Segments(1), limit=2), "max_turns"),
    ],
)
def test_what_is_cut_says_so(renderer, task, reason):
    group = rolled(group_of(task, renderer), Guesser(renderer, "01234567890123456789"))
    cut = [t for t in group.trajectories_G if t.stop_reason is not None]
    assert cut
    assert {trajectory.stop_reason for trajectory in cut} == {reason}


def test_a_folding_context_folds_there_as_well(renderer):
    folding = Folding(inner=Turns(7), summary_tokens=5, max_turns=1)
    group = rolled(group_of(Task(Talking, folding), renderer), Steady(renderer))
    for trajectory in group.trajectories_G:
        rewards = [transition.reward for transition in trajectory.transitions]
        assert rewards == [0.5, 0.0, 0.5, 0.0, 1.0], "a summary after each answered turn"


def test_groups_pickle_and_close_what_they_opened(renderer):
    builder = group_of(ArithmeticTask(), renderer, problem=ArithmeticTask().problems()[0])
    again = pickle.loads(pickle.dumps(builder))
    assert again.problem == builder.problem

    async def use():
        await again.make_envs()
        await again.make_envs()
        assert len(again._open) == 2
        assert pickle.loads(pickle.dumps(again))._open == []
        await again.cleanup()
        await again.cleanup()
        assert again._open == []

    asyncio.run(use())


def rewards_of(builder):
    """In another process: the rewards of a group."""
    completer = Guesser(builder.chat.renderer)
    return asyncio.run(do_group_rollout(builder, completer)).get_total_rewards()


def test_a_group_can_be_rolled_out_in_another_process(renderer):
    builder = group_of(ArithmeticTask(), renderer, problem=ArithmeticTask().problems()[0])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(rewards_of, builder).result() == rewards_of(builder)


def test_a_failed_rollout_is_retried_in_a_fresh_environment(renderer):
    class Once(Length):
        failed = False

        async def grade(self, text):
            if not Once.failed:
                Once.failed = True
                raise OSError("flaky")
            return 1.0

    group = rolled(
        group_of(Task(Once), renderer), Guesser(renderer), strategy=RetryOnFailure(max_retries=1)
    )
    assert [error.error_message for error in group.rollout_errors] == ["flaky"]
    assert group.get_total_rewards() == [1.0] * 3


def test_the_cookbooks_step_trains_what_was_rolled_out(renderer):
    """With a training client that answers as the SDK's does, in this process."""
    import tinker
    import torch

    class Future:
        def __init__(self, value):
            self.value = value

        async def result_async(self):
            return self.value

    class Client:
        def __init__(self):
            self.trained = []

        async def forward_backward_async(self, data, loss_fn, loss_fn_config=None):
            self.trained += data
            outputs = [{"logprobs": datum.loss_fn_inputs["logprobs"]} for datum in data]
            kind = "ArrayRecord"
            return Future(
                tinker.ForwardBackwardOutput(
                    loss_fn_output_type=kind, loss_fn_outputs=outputs, metrics={}
                )
            )

        async def optim_step_async(self, params):
            return Future(tinker.OptimStepResponse(metrics={"lr": params.learning_rate}))

    async def step():
        group = await do_group_rollout(group_of(Task(Length), renderer), Guesser(renderer))
        data, _ = assemble_training_data([group], compute_advantages([group]))
        client, metrics = Client(), {}
        found = await train_step(data, client, 0.1, 1, "importance_sampling", metrics=metrics)
        assert metrics == {"lr": 0.1}
        assert len(found) == len(client.trained) == 3
        for logprobs, datum in zip(found, client.trained, strict=True):
            assert torch.equal(logprobs, datum.loss_fn_inputs["logprobs"].to_torch())
            assert set(datum.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}

    asyncio.run(step())


# Datasets ---------------------------------------------------------------------------------------


def made(**options):
    return asyncio.run(FocusDatasetBuilder(**options)())


def ids(dataset):
    return [[group.problem.id for group in dataset.get_batch(i)] for i in range(len(dataset))]


def test_batches_are_whole_and_the_same_each_time(tiny):
    common = {"model_name_for_tokenizer": tiny, "batch_size": 2, "group_size": 3}
    train, test = made(task=Task(Length), shuffle=False, **common)
    assert test is None
    assert ids(train) == [["0", "1"], ["2", "3"]]
    assert all(group.group_size == 3 for group in train.get_batch(0))
    train, _ = made(task=Task(Length), epochs=2, **common)
    assert ids(train) == ids(train)
    flat = [name for batch in ids(train) for name in batch]
    assert (len(train), sorted(flat[:5])) == (5, ["0", "1", "2", "3", "4"])
    assert flat[:5] != flat[5:]


def test_a_task_is_named_with_its_options(tiny):
    train, test = made(
        task="arithmetic",
        options={"levels": "3", "count": "40", "segment_tokens": "80"},
        model_name_for_tokenizer=tiny,
        batch_size=4,
        group_size=2,
        eval_problems=6,
    )
    assert (len(train), len(test)) == (10, 1)
    assert [group.group_size for group in test.get_batch(0)] == [1] * 6
    assert {group.problem.metadata["split"] for group in test.get_batch(0)} == {"heldout"}
    assert train.get_batch(0)[0].task.segment_tokens == 80


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "arithmetik"}, r"no task 'arithmetik' \(did you mean arithmetic\?\)"),
        ({"task": "arithmetic", "options": {"level": "3"}}, r"task\.level does not exist"),
        ({"task": Task(Length), "options": {"x": "3"}}, "options go with a task's name"),
        ({"task": Task(Length), "batch_size": 6}, "5 problems make no batch of 6"),
        ({"task": Task(Length), "eval_problems": 2}, "holds no problems out"),
    ],
)
def test_mistakes_are_told(tiny, options, said):
    with pytest.raises(UsageError, match=said):
        made(**{"model_name_for_tokenizer": tiny, "batch_size": 2, "group_size": 2} | options)


def test_a_task_of_the_cookbooks_own_does_not_go_around(renderer):
    task = CookbookTask(TalkGroup())
    builder = group_of(task, renderer, problem=task.problems()[0])
    with pytest.raises(UsageError, match="an environment of the cookbook's own needs no task"):
        asyncio.run(builder.make_envs())
    asyncio.run(builder.cleanup())


def test_the_stop_reason_is_read_from_the_action_where_the_runner_gives_none(renderer):
    async def play():
        builder = group_of(Task(Length, Turns(7)), renderer, size=1)
        (env,) = await builder.make_envs()
        _, stop = await env.initial_observation()
        said = TokensWithLogprobs([20, *stop], [-1.0, -1.0])
        result = await env.step(said.tokens)
        await builder.cleanup()
        return result

    assert asyncio.run(play()).episode_done
