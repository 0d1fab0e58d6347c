"""The contract of policies: exact tokens, exact log probabilities, in anybody's company."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np

from focus_core.errors import GenerationError
from focus_core.policy import Policy, SamplingParams, check_generation
from focus_core.testing._looking import form, longest_hold, require_methods
from focus_core.testing._sampling import draw, first_logprobs, require_frequencies, tokens_of
from focus_core.testing.base import (
    Broken,
    Contract,
    NotApplicable,
    contract,
    require,
    scratch_directory,
)

__all__ = ["PolicyContract"]


class PolicyContract(Contract):
    """What every policy keeps.

    Inherit it in a pytest module::

        class TestMyPolicy(PolicyContract):
            def subject(self):
                return MyTrainer()  # its published policy; or a policy itself

    Attributes:
        samples: Draws with which probabilities are compared.
        tolerance: Difference of log probabilities, in nats, that rounding explains.
        longest_hold: Seconds for which sampling may keep the event loop.
        longest_prompt: The context's length is tried if it is at most this.
    """

    samples: int = 1024
    tolerance: float = 1e-3
    longest_hold: float = 0.5
    longest_prompt: int = 4096

    def messages(self) -> Sequence[Any]:
        """A chat the policy can render and reply to."""
        return [{"role": "user", "content": "1 2"}]

    def surroundings(self) -> contextlib.AbstractContextManager[None]:
        """An empty directory."""
        return scratch_directory()

    @contextlib.asynccontextmanager
    async def policy(self) -> AsyncIterator[Policy]:
        """The subject, or what the trainer publishes that it is."""
        async with contextlib.AsyncExitStack() as stack:
            subject = self.subject()
            if hasattr(subject, "publish_policy"):
                trainer = await stack.enter_async_context(subject)
                subject = await trainer.publish_policy()
            yield subject

    @contract()
    async def test_has_the_methods(self) -> None:
        """A policy has a version, prepare, decode and generate."""
        async with self.policy() as policy:
            require_methods(
                policy, "Policy", ("prepare", "decode", "generate"), awaited={"generate"}
            )
            require(
                isinstance(getattr(policy, "version", None), int | str),
                f"{type(policy).__name__}.version must name the snapshot, as text or a number",
            )

    @contract()
    async def test_prepare_repeats(self) -> None:
        """A chat always renders to the same tokens, and is left as it was."""
        async with self.policy() as policy:
            chat = self.messages()
            before = copy.deepcopy(chat)
            first = np.asarray(policy.prepare(chat).tokens)
            again = np.asarray(policy.prepare(chat).tokens)
            require(len(first), "prepare() rendered a chat to no token; nothing can follow it")
            require((first >= 0).all(), f"prepare() gave the token {first.min()}")
            require(np.array_equal(first, again), "prepare() rendered one chat in two ways")
            require(chat == before, "prepare() changed the messages it was given")

    @contract()
    async def test_a_chat_extends_its_prompt(self) -> None:
        """A chat that goes on renders to its earlier prompt and more, so that nothing is re-read.

        A template that drops earlier thinking does not; excuse it: each turn is then a sequence of
        its own.
        """
        async with self.policy() as policy:
            chat = list(self.messages())
            prompt = list(policy.prepare(chat).tokens)
            reply = {"role": "assistant", "content": chat[-1]["content"]}
            longer = list(policy.prepare([*chat, reply, *chat]).tokens)
            require(
                longer[: len(prompt)] == prompt,
                "the prompt of a longer chat does not begin with the prompt of the shorter one; "
                "render the opening of the assistant's turn as a finished turn begins",
            )

    @contract()
    async def test_decode_takes_any_ids(self) -> None:
        """Any tokens decode to text, cut anywhere, in any order, the same each time."""
        async with self.policy() as policy:
            prompt = list(policy.prepare(self.messages()).tokens)
            said = [
                t for each in tokens_of(await draw(policy, prompt, 4, max_tokens=8)) for t in each
            ]
            mixed = [*said, *prompt]
            for tokens in ([], mixed, mixed[::-1], said[1:], *([t] for t in set(mixed))):
                text = policy.decode(tokens)
                require(
                    isinstance(text, str) and text == policy.decode(tokens),
                    f"decode({tokens}) gave {text!r}; it must give the same text each time",
                )

    @contract()
    async def test_generations_can_be_trained_on(self) -> None:
        """Tokens and log probabilities agree in number; each is finite and at most 0."""
        async with self.policy() as policy:
            for generation in await draw(policy, self._prompt(policy), 8, max_tokens=8):
                try:
                    check_generation(generation, max_tokens=8)
                except GenerationError as error:
                    raise Broken(str(error)) from error
                require(len(generation.tokens), "a generation has no token; sample at least one")
                require(
                    all(isinstance(t, int | np.integer) and t >= 0 for t in generation.tokens),
                    f"the tokens {list(generation.tokens)!r:.80} are not all ids, integers from 0",
                )

    @contract()
    async def test_max_tokens_is_kept(self) -> None:
        """A generation is cut at max_tokens, and says so."""
        async with self.policy() as policy:
            for most in (1, 2, 7):
                for generation in await draw(policy, self._prompt(policy), 4, max_tokens=most):
                    size = len(generation.tokens)
                    require(size <= most, f"max_tokens={most} gave {size} tokens; stop there")
                    require(
                        generation.stop_reason == "stop" or size == most,
                        f"a generation of {size} of {most} tokens says it was cut by length; "
                        "if a token ended it, say 'stop'",
                    )

    @contract()
    async def test_stop_tokens_end_a_turn(self) -> None:
        """The first stop token, asked for or the policy's own, is the last one, and is included."""
        async with self.policy() as policy:
            prompt = self._prompt(policy)
            said = tokens_of(await draw(policy, prompt, 4, max_tokens=8))
            own = set(getattr(policy, "end_tokens", ()))
            for stop in (tuple({t for each in said for t in each[1:]} - own), ()):
                params = SamplingParams(max_tokens=8, stop=stop, seed=0)
                for generation in await policy.generate(prompt, params, 4):
                    (tokens,) = tokens_of([generation])
                    ends = [place for place, token in enumerate(tokens) if token in own | set(stop)]
                    require(
                        not ends or ends[0] == len(tokens) - 1,
                        f"token {tokens[ends[0]] if ends else ''} ends a turn, but sampling went "
                        "on after it",
                    )
                    require(
                        (generation.stop_reason == "stop") == bool(ends),
                        f"a generation that ends with token {tokens[-1]} says "
                        f"{generation.stop_reason!r}; say 'stop' exactly when a stop token was "
                        "sampled, and keep that token in it",
                    )

    @contract()
    async def test_n_asks_for_n(self) -> None:
        """``n`` continuations come back, drawn independently."""
        async with self.policy() as policy:
            prompt = self._prompt(policy)
            params = SamplingParams(max_tokens=16, seed=1)
            for n in (1, 3, 16):
                found = await policy.generate(prompt, params, n)
                require(len(found) == n, f"n={n} gave {len(found)} generations")
            alike = len({tuple(tokens) for tokens in tokens_of(found)}) == 1
            chance = (len(found) - 1) * sum(map(float, found[0].logprobs))
            require(
                not alike or chance > -21,  # 1e-9
                f"{len(found)} samples of one request are the same, which happens by chance once "
                f"in e^{-chance:.0f} times; draw each on its own, with a seed too",
            )

    @contract()
    async def test_a_seed_repeats(self) -> None:
        """A request with a seed gives the same tokens each time, another seed others.

        A policy that cannot be seeded excuses this one, and what it samples is not reproducible.
        """
        async with self.policy() as policy:
            prompt = self._prompt(policy)
            first, again, other = [
                tokens_of(await draw(policy, prompt, 16, max_tokens=8, seed=seed))
                for seed in (3, 3, 4)
            ]
            require(first == again, "the same request and seed gave other tokens; honour seed")
            logprobs = [s for g in await draw(policy, prompt, 16, max_tokens=8) for s in g.logprobs]
            require(
                first != other or sum(map(float, logprobs)) > -21,
                "two seeds gave the same 16 samples; the seed must choose them",
            )

    @contract()
    async def test_log_probabilities_are_those_drawn_with(self) -> None:
        """Tokens are drawn exactly as often as their log probabilities say."""
        async with self.policy() as policy:
            counts, logprobs = await first_logprobs(policy, self._prompt(policy), self.samples)
            require_frequencies(counts, logprobs)

    @contract()
    async def test_a_continuation_knows_its_prefix(self) -> None:
        """A token has one log probability, whether sampled in one go or in a continued request."""
        async with self.policy() as policy:
            prompt = self._prompt(policy)
            whole = await draw(policy, prompt, 8, max_tokens=3)
            compared = 0
            for generation in whole:
                tokens = [int(token) for token in generation.tokens]
                if len(tokens) < 2:
                    continue
                _, found = await first_logprobs(policy, [*prompt, tokens[0]], 64)
                if tokens[1] in found:
                    compared += 1
                    gap = abs(found[tokens[1]] - float(generation.logprobs[1]))
                    require(
                        gap <= self.tolerance,
                        f"token {tokens[1]} has another log probability when its prefix is sent in "
                        f"a new request, by {gap:.3g} nats; condition on exactly the tokens given",
                    )
            if not compared:
                raise NotApplicable("no second token was drawn twice")

    @contract()
    async def test_greedy_repeats(self) -> None:
        """At temperature 0 there is one answer, whatever the seed."""
        async with self.policy() as policy:
            asked = [SamplingParams(max_tokens=6, temperature=0.0, seed=seed) for seed in (1, 2)]
            one, other = [
                tokens_of(await policy.generate(self._prompt(policy), params)) for params in asked
            ]
            require(one == other, "temperature 0 gave two answers; take the most likely token")

    @contract()
    async def test_requests_side_by_side_do_not_mix(self) -> None:
        """A seeded request is answered alike alone and among others."""
        async with self.policy() as policy:
            chats = [self.messages(), [*self.messages()] * 2, [*self.messages()] * 3]
            asked = [list(policy.prepare(chat).tokens) for chat in chats] * 2
            params = [SamplingParams(max_tokens=4, seed=seed) for seed in range(len(asked))]
            pairs = list(zip(asked, params, strict=True))
            alone = [tokens_of(await policy.generate(*pair)) for pair in pairs]
            if alone != [tokens_of(await policy.generate(*pair)) for pair in pairs]:
                raise NotApplicable("the policy does not repeat with a seed")
            together = await asyncio.gather(*(policy.generate(*pair) for pair in pairs))
            require(
                [tokens_of(answer) for answer in together] == alone,
                "requests at one time were answered otherwise than one after another; keep each "
                "request's state apart",
            )

    @contract()
    async def test_the_prefix_is_left_alone(self) -> None:
        """Sampling does not change the tokens it was given."""
        async with self.policy() as policy:
            prompt = self._prompt(policy)
            before = form(prompt)
            await policy.generate(prompt, SamplingParams(max_tokens=4, seed=0), 2)
            require(form(prompt) == before, "generate() changed the tokens it was given; copy them")

    @contract()
    async def test_the_context_length_is_kept(self) -> None:
        """A reply ends where the context is full, and a full context is refused."""
        async with self.policy() as policy:
            length = getattr(policy, "context_length", None)
            if length is None:
                raise NotApplicable("the policy has no context_length")
            if length > self.longest_prompt:
                raise NotApplicable(f"its {length} tokens are more than {self.longest_prompt}")
            filling = itertools.islice(itertools.cycle(self._prompt(policy)), length)
            full = list(filling)
            params = SamplingParams(max_tokens=8, seed=0)
            (found,) = await policy.generate(full[:-2], params)
            require(
                len(found.tokens) <= 2,
                f"a prompt of {length - 2} tokens was given {len(found.tokens)} more, but "
                f"context_length is {length}",
            )
            with _refused(f"a prompt that fills the context of {length} tokens was answered"):
                await policy.generate(full, params)

    @contract()
    async def test_sampling_does_not_hold_the_loop(self) -> None:
        """Sampling leaves the event loop to others."""
        async with self.policy() as policy:
            prompt = self._prompt(policy)
            held = await longest_hold(lambda: draw(policy, prompt, 16, max_tokens=16))
            require(
                held < self.longest_hold,
                f"generate() kept the event loop for {held:.2f} s; compute in a thread",
            )

    @contract()
    async def test_closed_it_refuses(self) -> None:
        """After aclose a policy refuses to sample, and closing twice is safe."""
        async with self.policy() as policy:
            close = getattr(policy, "aclose", None)
            if close is None:
                raise NotApplicable("the policy has no aclose")
            prompt = self._prompt(policy)
            await close()
            await close()
            with _refused("a closed policy went on sampling"):
                await policy.generate(prompt, SamplingParams(max_tokens=1))

    def _prompt(self, policy: Policy) -> list[int]:
        return [int(token) for token in policy.prepare(self.messages()).tokens]


@contextlib.contextmanager
def _refused(otherwise: str) -> Iterator[None]:
    """Something raises an error."""
    try:
        yield
    except Exception:
        return
    raise Broken(f"{otherwise}; raise an error")
