"""Batched sampling: exact log probabilities, joins and leaves, seeds, cancellation, faults."""

import asyncio
import threading

import numpy as np
import pytest
import torch

from focus_core import GenerationError, SamplingParams, TrainerError
from focus_core.policy import check_generation
from tests.adapters.local.local_kit import batch, gap, prompts, record, run, sample_records

KINDS = ["llama", "mistral", "gemma3", "lfm2", "gpt2", "olmoe"]


# Greedy: the mini Llama then goes on to the limit from every prompt that the tests hold up.
LONG = SamplingParams(max_tokens=200, temperature=0.0)


def hold(policy, monkeypatch):
    """Make the forward pass wait: returns the events (entered, go)."""
    entered, go = threading.Event(), threading.Event()
    model = policy._snapshot.model
    forward = model.forward

    def slow(*args, **kwargs):
        entered.set()
        assert go.wait(30)
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", slow)
    return entered, go


async def idle(trainer):
    """Wait until the engine samples nothing; a test's time limit ends a wait in vain."""
    while any(each.rows or each.waiting for each in trainer._engine._queues.values()):
        await asyncio.sleep(0.01)


def fail(policy, monkeypatch, after):
    """Make the forward pass raise from its ``after``-th call on; returns how to heal it."""
    model = policy._snapshot.model
    forward, calls = model.forward, []

    def broken(*args, **kwargs):
        calls.append(1)
        if len(calls) > after:
            raise ZeroDivisionError("a cosmic ray")
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", broken)
    return lambda: monkeypatch.setattr(model, "forward", forward)


@pytest.mark.parametrize("kind", KINDS)
def test_sampler_and_learner_agree(kind, model_of, trainer_of):
    """Ragged prompts, more of them than rows fit, several samples each, before and after a step."""

    async def main():
        async with trainer_of(model=model_of(kind), max_sampling_batch=5) as trainer:
            for seed in range(2):
                policy = await trainer.publish_policy()
                lengths = (1, 2, 5, 12, 30, 17)
                records = await sample_records(policy, lengths, tokens=20, n=3, seed=seed)
                assert await gap(trainer, records) < 1e-4
                metrics = await trainer.update(batch(trainer, records))
                assert metrics["ratio_max_deviation"] < 1e-4
                await policy.aclose()

    run(main())


@pytest.mark.parametrize("keep", [0, 200, 16384])
def test_continuations_of_what_was_sampled_agree(keep, trainer_of):
    """Segment after segment, with branches, whatever is kept or already thrown away."""

    async def main():
        async with trainer_of(prefix_cache_tokens=keep, max_sampling_batch=8) as trainer:
            policy = await trainer.publish_policy()
            states = prompts((6, 11, 6))
            draw = np.random.default_rng(0)
            for depth in range(4):
                chosen = [states[i] for i in draw.integers(len(states), size=8)]
                params = [SamplingParams(max_tokens=5, seed=depth * 8 + i) for i in range(8)]
                answers = await asyncio.gather(
                    *(policy.generate(p, s) for p, s in zip(chosen, params, strict=True))
                )
                records = []
                for prompt, (generation,) in zip(chosen, answers, strict=True):
                    records.append(record(prompt, generation))
                    if generation.stop_reason == "length":
                        states.append([*prompt, *generation.tokens])
                        states.append([*prompt, *generation.tokens, 2, 40, 41, 3])  # a new turn
                assert await gap(trainer, records) < 1e-4

    run(main())


def test_kept_prefixes_spare_their_computation(trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            widths = []
            model = policy._snapshot.model
            forward = model.forward

            def watch(*args, **kwargs):
                widths.append(kwargs["input_ids"].shape)
                return forward(*args, **kwargs)

            monkeypatch.setattr(model, "forward", watch)
            (prompt,) = prompts((40,))
            params = SamplingParams(max_tokens=4, seed=0)
            (first,) = await policy.generate(prompt, params)
            assert widths == [(1, 39), *[(1, 1)] * len(first.tokens)]
            widths.clear()
            await asyncio.gather(
                policy.generate([*prompt, *first.tokens], params),  # goes on from there
                policy.generate(prompt, params, 2),  # branches off at the prompt
            )
            assert all(width == 1 for _, width in widths)
            widths.clear()
            await policy.generate([*prompt, *first.tokens, 8, 9, 10], params)  # a new turn: 8 and 9
            assert widths[0] == (1, 2)
            (other,) = prompts((30,), seed=1)
            running = asyncio.create_task(policy.generate(other, LONG))
            while (1, 29) not in widths:
                await asyncio.sleep(0.001)
            widths.clear()
            await policy.generate(other, params)  # its prompt was computed a moment ago
            assert all(width == 1 for _, width in widths)
            await running

    run(main())


def test_requests_share_forward_passes(trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            entered, go = hold(policy, monkeypatch)
            rows = []
            step = policy._snapshot.model.forward

            def count(*args, **kwargs):
                rows.append(len(kwargs["input_ids"]))
                return step(*args, **kwargs)

            monkeypatch.setattr(policy._snapshot.model, "forward", count)
            params = SamplingParams(max_tokens=6, seed=3)
            asked = [asyncio.create_task(policy.generate(p, params)) for p in prompts((4,) * 9)]
            await asyncio.to_thread(entered.wait)
            await asyncio.sleep(0.05)
            go.set()
            await asyncio.gather(*asked)
            assert max(rows) == 9
            assert len(rows) <= 2 + 2 + 6  # two prefills and at most two steps more than one row

    run(main())


def test_a_seed_decides_whatever_the_company(trainer_of):
    async def main():
        async with trainer_of(max_sampling_batch=7) as trainer:
            policy = await trainer.publish_policy()
            (prompt,) = prompts((10,))
            params = SamplingParams(max_tokens=16, seed=42)
            alone = await policy.generate(prompt, params, 3)
            crowd = [
                policy.generate(p, SamplingParams(max_tokens=5 + i, temperature=1.0 + i / 9), 2)
                for i, p in enumerate(prompts((3, 25, 9, 14), seed=1))
            ]
            *_, company = await asyncio.gather(*crowd, policy.generate(prompt, params, 3))
            (one,) = await policy.generate(prompt, params)
            for a, b in zip(alone, company, strict=True):
                assert a.tokens == b.tokens
                np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
            assert one.tokens == alone[0].tokens
            assert len({tuple(each.tokens) for each in alone}) == 3
            free = await policy.generate(prompt, SamplingParams(max_tokens=16), 4)
            assert len({tuple(each.tokens) for each in free}) > 1

    run(main())


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_more_samples_than_rows(kind, model_of, trainer_of):
    async def main():
        (prompt,) = prompts((6,))
        params = SamplingParams(max_tokens=7, seed=4)
        said = []
        for rows in (2, 64):
            async with trainer_of(model=model_of(kind), max_sampling_batch=rows) as trainer:
                policy = await trainer.publish_policy()
                answers = await policy.generate(prompt, params, 5)
                said.append([each.tokens for each in answers])
        assert said[0] == said[1]
        assert len(said[0]) == 5

    run(main())


def test_stops_limits_and_reasons(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            assert policy.end_tokens == {1}
            (prompt,) = prompts((5,))
            everything = tuple(range(2, 64))
            (stopped,) = await policy.generate(prompt, SamplingParams(stop=everything, seed=1))
            assert stopped.stop_reason == "stop"
            assert len(stopped.tokens) == 1
            short, *_ = await policy.generate(prompt, SamplingParams(max_tokens=1, seed=1))
            assert short.tokens == stopped.tokens
            assert short.stop_reason == "length"
            assert short.logprobs == stopped.logprobs
            several = await policy.generate(prompt, SamplingParams(max_tokens=200, seed=2), 8)
            for each in several:
                check_generation(each, max_tokens=200)
                assert (each.stop_reason == "stop") == (each.tokens[-1] == 1)
                assert 1 not in each.tokens[:-1]
            assert {each.stop_reason for each in several} == {"stop", "length"}

    run(main())


def test_greedy_and_tempered_log_probabilities(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            (prompt,) = prompts((5,))
            params = [
                SamplingParams(max_tokens=9, temperature=0.0),
                SamplingParams(max_tokens=9, temperature=0.5, seed=1),
                SamplingParams(max_tokens=9, top_k=3, seed=1),
                SamplingParams(max_tokens=9, top_p=0.5, seed=1),
            ]
            answers = await asyncio.gather(*(policy.generate(prompt, each) for each in params))
            (greedy,), (cold,), (few,), (nucleus,) = answers
            assert greedy.logprobs == [0.0] * len(greedy.tokens)
            model = policy._snapshot.model
            with torch.no_grad():
                for generation, change in (
                    (greedy, None),
                    (cold, "cold"),
                    (few, 3),
                    (nucleus, "p"),
                ):
                    ids = torch.tensor([[*prompt, *generation.tokens]])
                    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
                    chosen = torch.tensor(generation.tokens)
                    if change is None:
                        assert logits.argmax(-1).tolist() == generation.tokens
                        continue
                    if change == "cold":
                        logits = logits / 0.5
                    elif change == 3:
                        kept = logits.topk(3).values[:, -1:]
                        logits = logits.masked_fill(logits < kept, -torch.inf)
                    else:
                        ordered, order = logits.softmax(-1).sort(descending=True)
                        out = ordered.cumsum(-1) - ordered >= 0.5
                        out = torch.zeros_like(out).scatter(-1, order, out)
                        logits = logits.masked_fill(out, -torch.inf)
                    truth = logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
                    np.testing.assert_allclose(generation.logprobs, truth.numpy(), atol=1e-4)

    run(main())


def test_what_cannot_be_sampled_is_refused(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            assert policy.context_length == 256
            for prompt, n, message in (
                ([], 1, "prompt is empty"),
                ([5, 64], 1, "token 1 of the prompt is 64"),
                ([5, -1], 1, "token 1 of the prompt is -1"),
                ([5] * 256, 1, "no room in the model's context of 256"),
                ([5], 0, "n is 0"),
            ):
                with pytest.raises(GenerationError, match=message):
                    await policy.generate(prompt, SamplingParams(), n)
            (generation,) = await policy.generate([5] * 250, SamplingParams(max_tokens=50, seed=0))
            assert len(generation.tokens) <= 6

    run(main())


def test_a_cancelled_request_frees_its_rows_and_nobody_else_notices(trainer_of, monkeypatch):
    async def main():
        async with trainer_of(max_sampling_batch=4) as trainer:
            policy = await trainer.publish_policy()
            first, second = prompts((5, 8))
            params = SamplingParams(max_tokens=30, seed=5)
            (undisturbed,) = await policy.generate(second, params)
            entered, go = hold(policy, monkeypatch)
            doomed = asyncio.create_task(policy.generate(first, LONG, 3))
            kept = asyncio.create_task(policy.generate(second, params))
            waiting = asyncio.create_task(policy.generate(first, LONG))
            await asyncio.to_thread(entered.wait)
            await asyncio.sleep(0.02)
            for task in (doomed, waiting):
                task.cancel()
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await doomed
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await kept)[0].tokens == undisturbed.tokens
            await policy.generate(first, SamplingParams(max_tokens=2), 4)  # all rows are free
            await idle(trainer)
            assert (await policy.generate(first, LONG))[0].stop_reason == "length"

    run(main())


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_fault_reaches_everyone_it_concerns_and_nobody_hangs(after, trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            policy, other = await trainer.publish_policy(), await trainer.publish_policy()
            heal = fail(policy, monkeypatch, after)
            params = SamplingParams(max_tokens=30, temperature=0.0)  # ends at no end token
            asked = [policy.generate(p, params, 2) for p in prompts((5, 9, 7))]
            *broken, fine = await asyncio.gather(
                *asked, other.generate([5, 6], params), return_exceptions=True
            )
            assert len({id(error) for error in broken}) == 3
            for error in broken:
                assert isinstance(error, TrainerError)
                assert "ZeroDivisionError: a cosmic ray" in str(error)
                assert isinstance(error.__cause__, ZeroDivisionError)
            assert fine[0].tokens
            heal()
            assert await policy.generate([5, 6], params)

    run(main())


def test_a_fault_reaches_who_is_half_admitted(model_of, trainer_of, monkeypatch):
    """Two rows, which cannot join one another later: the short request's second sample waits."""

    async def main():
        async with trainer_of(model=model_of("gemma3"), max_sampling_batch=2) as trainer:
            policy = await trainer.publish_policy()
            (prompt,) = prompts((6,))
            entered, go = hold(policy, monkeypatch)
            first = asyncio.create_task(policy.generate(prompt, SamplingParams(max_tokens=1)))
            assert await asyncio.to_thread(entered.wait, 30)
            fail(policy, monkeypatch, after=3)
            long = asyncio.create_task(policy.generate(prompt, LONG))
            short = asyncio.create_task(policy.generate(prompt, SamplingParams(max_tokens=1), n=2))
            await asyncio.sleep(0.05)
            go.set()
            await first
            for asked in (long, short):
                with pytest.raises(TrainerError, match="a cosmic ray"):
                    await asyncio.wait_for(asked, 30)

    run(main())


def test_diverged_weights_are_named(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            head = policy._snapshot.model.lm_head
            head.weight = torch.nn.Parameter(head.weight * torch.nan, requires_grad=False)
            for params in (SamplingParams(seed=1), SamplingParams(temperature=0.0)):
                with pytest.raises(TrainerError, match="logits are not finite"):
                    await policy.generate([5, 6], params)

    run(main())


def test_closing_a_policy_ends_its_requests_and_frees_it(trainer_of, monkeypatch):
    import gc
    import weakref

    async def main():
        async with trainer_of() as trainer:
            policy, other = await trainer.publish_policy(), await trainer.publish_policy()
            entered, go = hold(policy, monkeypatch)
            asked = asyncio.create_task(policy.generate([5, 6], LONG))
            await asyncio.to_thread(entered.wait)
            closing = asyncio.create_task(policy.aclose())
            await asyncio.sleep(0)
            go.set()
            await closing
            with pytest.raises(TrainerError, match="closed while it was sampling"):
                await asked
            with pytest.raises(TrainerError, match="policy 0 was closed"):
                await policy.generate([5, 6], SamplingParams())
            await policy.aclose()
            assert (await other.generate([5, 6], LONG))[0].stop_reason == "length"
            weight = weakref.ref(other._snapshot.model.model.layers[0].mlp.up_proj.weight)
            await other.aclose()
            gc.collect()
            assert weight() is None

    run(main())


def test_closing_the_trainer_ends_what_is_asked(trainer_of, monkeypatch, own_threads):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            entered, go = hold(policy, monkeypatch)
            asked = asyncio.create_task(policy.generate([5, 6], LONG))
            await asyncio.to_thread(entered.wait)
            engine, closing = trainer._engine, asyncio.create_task(trainer.close("interrupted"))
            while not engine._closing:
                await asyncio.sleep(0.01)
            go.set()
            await closing
        with pytest.raises(TrainerError, match="trainer was closed"):
            await asked
        with pytest.raises(TrainerError, match="trainer was closed"):
            await policy.generate([5, 6], SamplingParams())
        await policy.aclose()
        assert not own_threads()

    run(main())


def test_a_dead_sampler_thread_does_not_leave_callers_waiting(trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            monkeypatch.setattr(trainer._engine, "_advance", lambda queue: 1 / 0)
            with pytest.raises(TrainerError, match="ZeroDivisionError"):
                await policy.generate([5, 6], SamplingParams())
            with pytest.raises(TrainerError):
                await policy.generate([5, 6], SamplingParams())

    run(main())
