"""Skip-scale online softmax: attention over blocks of keys, the accumulator rescaled only when the maximum ran away.

The online softmax multiplies its accumulator by exp(old maximum - new maximum) at every block. Any shift not far below the
maximum does as well: the result is out / sumexp, and the shift cancels. So the shift stays until some row's maximum exceeds it
by more than RESCALE_THRESHOLD. After that test every logit P of the block satisfies P - shift <= RESCALE_THRESHOLD: either no
row exceeded it, or the shift is the maximum and P - shift <= 0. Hence exp(P - shift) <= e^6 = 403.4, far from float32's limit,
and bfloat16 weights keep their relative precision, which does not depend on the scale.

Source: DeepSeek's article on its Ascend sparse attention kernel (FlashMLA repository, September 2026), which has the threshold 6.
There a rescale is dear: the accumulator must leave the matrix unit. On a GPU it is one multiply of registers.
"""

import math
from dataclasses import dataclass

import torch

RESCALE_THRESHOLD = 6.0  # natural logarithm, of logits after sm_scale
BLOCK_KEYS = 64


@dataclass
class SoftmaxState:
    """The four arrays, float32, and what happened to them."""

    running_max: torch.Tensor  # [h]: largest logit so far, -inf before the first
    max_for_softmax: torch.Tensor  # [h]: the shift of the exponentials
    sumexp: torch.Tensor  # [h]: sum of exp(P - shift)
    out: torch.Tensor  # [h, d_v]: sum of bfloat16(exp(P - shift)) * value
    rescales: int = 0  # blocks at which the shift moved; the first with a valid key is one of them
    largest_factor: float = 0.0  # largest exp(P - shift) met, at most e^threshold

    @classmethod
    def start(cls, heads, value_dim, device=None):
        lowest = torch.full((heads,), -torch.inf, device=device)
        return cls(lowest, lowest.clone(), torch.zeros(heads, device=device), torch.zeros(heads, value_dim, device=device))


@dataclass(frozen=True)
class AttentionResult:
    """A row without a valid key: out 0, lse +inf, max_logit -inf."""

    out: torch.Tensor  # [h, d_v] float32
    lse: torch.Tensor  # [h]: log of the sum of exp(P), the sink left out
    max_logit: torch.Tensor  # [h]
    rescales: int
    largest_factor: float


def absorb(state, logits, values, threshold=RESCALE_THRESHOLD):
    """Take in a block: [h, n] float32 logits after sm_scale (-inf: invalid), [n, d_v] values, finite everywhere."""
    state.running_max = torch.maximum(state.running_max, logits.amax(1))
    seen = state.running_max > -torch.inf  # a row without a valid key so far has no maximum, and nothing to shift
    shift = torch.where(seen, state.running_max, 0.0)
    if bool((seen & (shift - state.max_for_softmax > threshold)).any()):
        factor = torch.exp(state.max_for_softmax - shift)  # exp(-inf) = 0 at a row's first valid block
        state.out *= factor[:, None]
        state.sumexp *= factor
        state.max_for_softmax = state.running_max.clone()
        state.rescales += 1
    shift = torch.where(state.max_for_softmax > -torch.inf, state.max_for_softmax, 0.0)
    weights = torch.exp(logits - shift[:, None])
    state.out += weights.to(torch.bfloat16).float() @ values
    state.sumexp += weights.sum(1)
    state.largest_factor = max(state.largest_factor, float(weights.max()))


def finish(state, sink=None):
    """State -> AttentionResult. `sink` [h]: a logit that takes weight and has no value, out * e^lse / (e^lse + e^sink)."""
    empty = state.running_max == -torch.inf
    shift = torch.where(empty, 0.0, state.max_for_softmax)
    total = state.sumexp if sink is None else state.sumexp + torch.exp(sink - shift)
    out = torch.where(empty[:, None], 0.0, state.out / total[:, None])
    lse = torch.where(empty, torch.inf, shift + torch.log(state.sumexp))
    return AttentionResult(out, lse, state.running_max, state.rescales, state.largest_factor)


def attend(query, keys, valid, sm_scale, value_dim=None, sink=None, block=BLOCK_KEYS, threshold=RESCALE_THRESHOLD):
    """Attention of one query token by skip-scale softmax.

    query  [h, d] float     keys [n, d] float, whose first `value_dim` dims (all, if None) are the values
    valid  [n] bool: the others are not read into any product, whatever their bytes are (0 * NaN = NaN)
    """
    if query.shape[1] != keys.shape[1] or valid.shape != keys.shape[:1]:
        raise ValueError(
            f"query {list(query.shape)}, keys {list(keys.shape)}, valid {list(valid.shape)}: [h, d], [n, d], [n] needed"
        )
    keys = torch.where(valid[:, None], keys.float(), 0.0)
    state = SoftmaxState.start(query.shape[0], value_dim or keys.shape[1], query.device)
    for start in range(0, keys.shape[0], block):
        part, here = keys[start : start + block], valid[start : start + block]
        logits = (query.float() @ part.T * sm_scale).masked_fill(~here, -torch.inf)
        absorb(state, logits, part[:, : state.out.shape[1]], threshold)
    return finish(state, sink)


def attend_float64(query, keys, valid, sm_scale, value_dim=None, sink=None):
    """The one-shot softmax in float64: what `attend` and the kernel are held to. Same arguments, same kind of result."""
    keys = torch.where(valid[:, None], keys.double(), 0.0)
    logits = (query.double() @ keys.T * sm_scale).masked_fill(~valid, -torch.inf)
    max_logit = logits.amax(1) if keys.shape[0] else torch.full((query.shape[0],), -torch.inf, device=query.device).double()
    empty = max_logit == -torch.inf
    lse = torch.logsumexp(logits, 1) if keys.shape[0] else max_logit
    below = torch.where(empty, 0.0, lse if sink is None else torch.logaddexp(lse, sink.double()))
    out = torch.exp(logits - below[:, None]) @ keys[:, : value_dim or keys.shape[1]]
    return AttentionResult(out, torch.where(empty, torch.inf, lse), max_logit, 0, math.nan)
