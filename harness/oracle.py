"""The float64 truth: which bytes the rounding of float32 can explain.

A float32 kernel may add in any order, so its value before the bfloat16 rounding lies in an interval around the float64 value.
Every later step is monotone, so the interval gives, for each byte, the values that are right in some order of addition. A byte
that differs from the reference but lies inside is a rounding tie; a byte outside is wrong, however small the difference.

Bound, with u = 2^-24 and C rows. A sum of n terms errs by at most 4 sqrt(n) u times the sum of their sizes, in any order,
but for a chance of 7e-4 if every rounding were as large as it can be (Higham and Mary, A new approach to probabilistic
rounding error analysis, SIAM J. Sci. Comput. 41, 2019); real errors are a tenth of that (notes/2026-11-30-rounding-bound.md).
    compressed   u * [(8 sqrt(C) + 32) * sum w|v| + sum w|v||s - max| + sum w|v| * sum w|s - max|]  + flushed subnormals
                 8 sqrt(C): the sums of weights and of products; 32: exp, division, rescaling; |s - max|: rounding the exponent
    mean square  propagated from the above, and 4 sqrt(512) u for its own sum
    z, rotation  propagated, and 2 u and 3 u for their own operations
"""

from dataclasses import dataclass

import torch

from harness.diff import INT8, ROPE, SCALE

U = 2.0**-24  # half a unit in the last place of float32, relative
LEAST_NORMAL = 2.0**-126  # float32; a chip may flush what is smaller
CHUNK = 16  # outputs at a time: bounds the temporaries to 16 * 512 * 512 * 8 bytes each


@dataclass(frozen=True)
class Bounds:
    """For m outputs: the float64 values, and the range that float32 rounding leaves before and after each byte's rounding."""

    specified: torch.Tensor  # [m] bool: False where the contract leaves the bytes open (NaN, +inf, a column of -inf)
    z: torch.Tensor  # [m, 448] float64, before bfloat16
    rotated: torch.Tensor  # [m, 64] float64, before bfloat16
    z_range: torch.Tensor  # [2, m, 448] float64: least and greatest bfloat16 value
    exponent_range: torch.Tensor  # [2, m, 7] int64
    rotated_range: torch.Tensor  # [2, m, 64] float64


def bounds(inputs, outputs):
    """Inputs on the CPU and [m] outputs -> Bounds."""
    parts = [vars(_bounds(inputs.arguments, chunk)) for chunk in outputs.split(CHUNK)]
    return Bounds(**{name: torch.cat([p[name] for p in parts], 1 if name.endswith("range") else 0) for name in parts[0]})


def _bounds(a, outputs):
    C, block_size = a["compress_ratio"], a["block_size"]
    tokens = a["boundary_token_indices"][outputs].long()
    last = a["positions"][tokens].long()
    window = last[:, None] + torch.arange(1 - C, 1)
    blocks = a["block_table"][a["token_to_req"][tokens].long()[:, None], window // block_size].long()
    rows = a["state_cache"][blocks, window % block_size].double()
    values, scores = rows[..., :512], rows[..., 512:]
    open_bytes = ~values.isfinite() | scores.isnan() | (scores == torch.inf)
    specified = ~open_bytes.any(1).any(1) & (scores.amax(1) > -torch.inf).all(1)

    compressed, error = _compressed(values, scores, C)
    square = compressed.square().sum(-1, keepdim=True)
    square_error = (2 * compressed.abs() * error + error.square()).sum(-1, keepdim=True) + 4 * 512**0.5 * U * square
    eps = torch.tensor(a["rms_norm_eps"], dtype=torch.float32).double()
    square = torch.where(square > torch.finfo(torch.float32).max, torch.inf, square)  # as float32 overflows
    rrms = torch.rsqrt(square / 512 + eps)
    least, greatest = (torch.rsqrt((square + side).clamp(min=0) / 512 + eps) for side in (square_error, -square_error))
    rrms_error = torch.maximum(greatest - rrms, rrms - least) + 4 * U * rrms
    weight = a["rms_norm_weight"].double()
    z = compressed * rrms * weight
    z_error = weight.abs() * ((compressed.abs() + error) * (rrms + rrms_error) - compressed.abs() * rrms)
    z_error = z_error + 2 * U * z.abs() + LEAST_NORMAL

    z_range = _bf16_range(z[:, INT8], z_error[:, INT8])
    rotated, rotated_error = _rotate(z[:, 448:], z_error[:, 448:], a["cos_sin_cache"][last // C * C].double())
    specified &= z_range.isfinite().all(0).all(-1)
    return Bounds(
        specified, z[:, INT8], rotated, z_range, _exponent_range(z_range), _bf16_range(rotated, rotated_error)
    )  # fmt: skip


def _compressed(values, scores, C):
    """[m, C, 512] values and scores -> [m, 512] weighted sum and its float32 error."""
    depth = torch.where(scores == -torch.inf, 0.0, scores.amax(1, keepdim=True) - scores)  # of a row below the maximum
    weights = torch.softmax(scores, dim=1)
    size = (weights * values.abs()).sum(1)
    error = (8 * C**0.5 + 32) * size + (weights * values.abs() * depth).sum(1) + size * (weights * depth).sum(1)
    flushed = C * LEAST_NORMAL * (1 + values.abs().amax(1))
    return (weights * values).sum(1), U * error + flushed


def _rotate(z, z_error, cos_sin):
    (even, odd), (even_error, odd_error) = ((x[:, 0::2], x[:, 1::2]) for x in (z, z_error))
    cos, sin = cos_sin[:, :32], cos_sin[:, 32:]
    sizes = (even * cos).abs() + (odd * sin).abs(), (odd * cos).abs() + (even * sin).abs()
    errors = even_error * cos.abs() + odd_error * sin.abs(), odd_error * cos.abs() + even_error * sin.abs()
    rotated = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(1)
    error = torch.stack([e + 3 * U * size + LEAST_NORMAL for e, size in zip(errors, sizes)], -1).flatten(1)
    return rotated, error


def _bf16_range(x, error):
    return torch.stack([x - error, x + error]).float().to(torch.bfloat16).double()


def _exponent_range(z_range):
    """[2, m, 448] -> [2, m, 7]: least k with 127 * 2^k >= the group's maximum, at least 1e-4."""
    groups = z_range.unflatten(-1, (7, 64))
    most = groups.abs().amax(0)
    least = torch.where((groups[0] <= 0) & (groups[1] >= 0), 0.0, groups.abs().amin(0))
    amax = torch.stack([least.amax(-1), most.amax(-1)]).clamp(min=1.0e-4)
    fraction, exponent = torch.frexp(amax)  # amax = fraction * 2^exponent, fraction in [1/2, 1)
    return (exponent - 7 + (fraction > 127 / 128)).long()


def explained(bounds, slots):
    """[m, 584] uint8 bytes of the outputs' slots -> [m, 584] bool: right in some order of float32 addition."""
    exponents = slots[:, SCALE].long() - 127
    scales_fit = (exponents >= bounds.exponent_range[0]) & (exponents <= bounds.exponent_range[1])
    step = torch.exp2(exponents.double()).repeat_interleave(64, dim=1)
    int8 = slots[:, INT8].view(torch.int8)
    low, high = (side.div(step).clamp(-127, 127).trunc() for side in bounds.z_range)
    int8_fit = (int8 >= low) & (int8 <= high) & scales_fit.repeat_interleave(64, dim=1)
    rope = slots[:, ROPE].contiguous().view(torch.bfloat16).double()
    rope_fit = (rope >= bounds.rotated_range[0]) & (rope <= bounds.rotated_range[1])
    return torch.cat([int8_fit, rope_fit.repeat_interleave(2, dim=1), scales_fit, slots[:, 583:] == 0], dim=1)
