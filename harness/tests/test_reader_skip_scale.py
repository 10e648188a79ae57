"""Skip-scale softmax against the one-shot softmax in float64.

Tolerances and the threshold 6: the tests of DeepSeek's Ascend sparse attention kernel (FlashMLA repository, September 2026).
"""

import math

import pytest
import torch

from harness.inputs import Draws
from harness.reader import skip_scale

LSE = {"atol": 1e-6, "rtol": 2.01 / 65536}
OUT = {"atol": 1e-3, "rtol": 2.01 / 128}
COSINE = 5e-6
HEADS, KEYS, DIM = 16, 512, 64


def draw(purpose, keys=KEYS):
    draws = Draws(7, purpose)
    query, key = (torch.from_numpy(draws.normal(rows, DIM)).to(torch.bfloat16).float() for rows in (HEADS, keys))
    return query, key, torch.ones(keys, dtype=torch.bool)


def close(got, truth):
    assert torch.allclose(got.lse.double(), truth.lse, **LSE)
    assert torch.allclose(got.out.double(), truth.out, **OUT)
    assert torch.allclose(got.max_logit.double(), truth.max_logit, **LSE)
    a, b = got.out.double().flatten(), truth.out.flatten()
    if b.any():
        assert 1 - 2 * (a @ b) / (a @ a + b @ b) < COSINE


@pytest.mark.parametrize("rows", ["random", "peaked", "all_invalid", "first_block_invalid", "half_invalid", "ragged"])
@pytest.mark.parametrize("with_sink", [False, True])
def test_equals_the_one_shot_softmax(rows, with_sink):
    query, keys, valid = draw(rows, 500 if rows == "ragged" else KEYS)
    scale = 2.0 if rows == "peaked" else DIM**-0.5
    if rows == "all_invalid":
        valid[:] = False
    if rows == "first_block_invalid":
        valid[:64] = False
    if rows == "half_invalid":
        valid[::2] = False
    keys[~valid] = torch.nan  # poison: the value of an invalid key must not reach a product
    sink = torch.from_numpy(Draws(7, "sink").normal(HEADS)) if with_sink else None
    got = skip_scale.attend(query, keys, valid, scale, sink=sink)
    close(got, skip_scale.attend_float64(query, keys, valid, scale, sink=sink))
    if rows == "all_invalid":
        assert not got.out.any() and (got.lse == math.inf).all() and (got.max_logit == -math.inf).all()
    assert got.rescales == {"all_invalid": 0, "peaked": got.rescales}.get(rows, 1), "ordinary rows need the first shift only"


def test_a_literal_minus_infinity_start_would_be_nan():
    """What the guards of `absorb` are for: exp(-inf - -inf)."""
    assert torch.exp(torch.tensor(-math.inf) - torch.tensor(-math.inf)).isnan()


@pytest.mark.parametrize("step", [0.0, 1.0, 6.0 - 2**-10, 6.0, 6.0 + 2**-10, 40.0, -6.0])
def test_factors_stay_below_e_to_the_6(step):
    """The maximum climbs by `step` a block. No factor exceeds e^6, and a rescale comes only where it must."""
    state = skip_scale.SoftmaxState.start(2, 4)
    values = torch.ones(8, 4)
    for block in range(20):
        logits = torch.full((2, 8), step * block)
        logits[1] -= 3.0
        skip_scale.absorb(state, logits, values)
        shift = state.max_for_softmax
        assert (state.running_max - shift <= skip_scale.RESCALE_THRESHOLD).all()
    assert state.largest_factor <= float(torch.exp(torch.tensor(6.0)))
    assert state.rescales == {0.0: 1, 1.0: 3, 6.0 - 2**-10: 10, 6.0: 10, 6.0 + 2**-10: 20, 40.0: 20, -6.0: 1}[step]
    result = skip_scale.finish(state)
    assert torch.allclose(result.out, torch.ones(2, 4), **OUT)


def test_factors_of_random_climbs_stay_below_e_to_the_6():
    draws = Draws(3, "climb")
    most = 0.0
    for _ in range(50):
        state = skip_scale.SoftmaxState.start(8, 1)
        for block in range(12):
            logits = torch.from_numpy(draws.normal(8, 16)) * 10 + block * 2
            skip_scale.absorb(state, logits, torch.ones(16, 1))
        most = max(most, state.largest_factor)
    assert 100 < most <= float(torch.exp(torch.tensor(6.0))), "the bound is met closely, so the test could fail"


def test_threshold_zero_is_the_plain_online_softmax_and_infinity_never_moves():
    query, keys, valid = draw("threshold")
    often = skip_scale.attend(query, keys, valid, DIM**-0.5, threshold=0.0)
    never = skip_scale.attend(query, keys, valid, DIM**-0.5, threshold=1e30)
    truth = skip_scale.attend_float64(query, keys, valid, DIM**-0.5)
    for got in (often, never):
        close(got, truth)
    assert often.rescales > 1 == never.rescales and often.largest_factor == 1.0 < never.largest_factor


def test_sink_takes_its_share():
    """out * e^lse / (e^lse + e^sink)."""
    query, keys, valid = draw("sink share")
    plain = skip_scale.attend(query, keys, valid, DIM**-0.5)
    sink = torch.linspace(-3, 9, HEADS)
    got = skip_scale.attend(query, keys, valid, DIM**-0.5, sink=sink)
    assert torch.allclose(got.out, plain.out * (plain.lse - torch.logaddexp(plain.lse, sink)).exp()[:, None], rtol=1e-5, atol=1e-7)
    assert torch.equal(got.lse, plain.lse)


def test_shapes_that_do_not_fit_are_named():
    query, keys, valid = draw("shapes")
    with pytest.raises(ValueError, match=r"\[h, d\], \[n, d\], \[n\] needed"):
        skip_scale.attend(query, keys[:, 1:], valid, 1.0)
