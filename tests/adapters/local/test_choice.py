"""Choosing tokens: the distribution drawn from, its log probabilities, and its seeds."""

import numpy as np
import pytest
import torch
from focus_adapter_local._sampling import choose, generator_for
from hypothesis import given, settings
from hypothesis import strategies as st

LOGITS = torch.tensor([2.0, 0.5, -1.0, 1.0, -3.0, 0.0])


def frequencies(draws=40_000, **shape):
    """How often each token is drawn, and the log probability it came with."""
    uniforms = torch.from_numpy(generator_for(7, 0).random(draws))
    columns = {name: torch.full((draws,), value) for name, value in shape.items()}
    tokens, logprobs = choose(LOGITS.expand(draws, -1), uniforms, **columns)
    counts = torch.bincount(tokens, minlength=len(LOGITS)) / draws
    said = torch.full((len(LOGITS),), -torch.inf)
    said[tokens] = logprobs
    return counts.numpy(), said.exp().numpy()


def expected(temperature=1.0, top_k=0, top_p=1.0):
    """Temperature, then top-k, then top-p, in numpy."""
    p = np.exp(LOGITS.double().numpy() / temperature)
    order = np.argsort(-p)
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p < 1:
        mass = np.cumsum(p[order])
        p[order[int(np.searchsorted(mass, top_p)) + 1 :]] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.8},
        {"top_p": 0.1},
        {"temperature": 1.5, "top_k": 4, "top_p": 0.9},
    ],
)
def test_distribution_and_log_probabilities(shape):
    counts, said = frequencies(**shape)
    truth = expected(**shape)
    drawn = said > 0
    np.testing.assert_allclose(said[drawn], truth[drawn], atol=1e-6)
    assert (truth[~drawn] < 1e-3).all()
    np.testing.assert_allclose(counts, truth, atol=0.01)


def test_greedy_takes_the_likeliest_for_sure():
    tokens, logprobs = choose(
        LOGITS.expand(3, -1), torch.tensor([0.0, 0.5, 0.999]).double(), temperature=torch.zeros(3)
    )
    assert tokens.tolist() == [0, 0, 0]
    assert logprobs.tolist() == [0, 0, 0]


def test_rows_keep_their_own_parameters():
    uniforms = torch.full((3,), 0.999).double()
    tokens, logprobs = choose(
        LOGITS.expand(3, -1),
        uniforms,
        temperature=torch.tensor([1.0, 0.0, 1.0]),
        top_k=torch.tensor([0, 0, 2]),
    )
    assert tokens.tolist() == [5, 0, 3]
    assert logprobs[0].item() == pytest.approx(torch.log_softmax(LOGITS, 0)[5].item())
    assert logprobs[2].item() == pytest.approx(torch.log_softmax(LOGITS[[0, 3]], 0)[1].item())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-60, 60, width=32), min_size=2, max_size=9),
    st.sampled_from([0.0, 1e-16, 0.5, 1 - 2**-53]),
)
def test_never_an_impossible_token(values, uniform):
    logits = torch.tensor([[*values, -torch.inf]])
    token, logprob = choose(logits, torch.tensor([uniform], dtype=torch.float64))
    assert torch.isfinite(logprob).all()
    assert token.item() < len(values)


def test_broken_logits_show_as_broken_log_probabilities():
    logits = torch.full((2, 4), torch.nan)
    for shape in ({}, {"temperature": torch.zeros(2)}, {"top_p": torch.full((2,), 0.5)}):
        _, logprobs = choose(logits, torch.tensor([0.1, 0.9]).double(), **shape)
        assert logprobs.isnan().all()


def test_seeds():
    first, again = generator_for(3, 0).random(4), generator_for(3, 0).random(4)
    assert (first == again).all()
    assert (first != generator_for(3, 1).random(4)).any()
    assert (first != generator_for(4, 0).random(4)).any()
    assert (generator_for(None, 0).random(4) != generator_for(None, 0).random(4)).any()
    generator_for(-5, 0).random(1)
