"""CaseSpec + seed -> the operator's arguments, drawn on the CPU: the same bytes on every machine.

Draws are the raw 64-bit stream of PCG64, whose values NumPy keeps fixed, turned to numbers by integer arithmetic and single
IEEE operations. No libm function and no vectorised random kernel takes part: those differ between processors.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from harness.diff import PAGE_BYTES, PAGE_SLOTS

CHUNK = 1 << 20  # numbers drawn at a time: bounds the temporary memory
INDEX_NAMES = ("token_to_req", "positions", "boundary_token_indices", "block_table", "kv_slot_mapping")
RMS_NORM_EPS = 1.0e-6
GUARD = 4096  # elements on either side of a guarded tensor: more than a tile reaches


@dataclass(frozen=True)
class Inputs:
    """The twelve arguments of one call, on one device. Hold them unchanged: `same_bytes` tells whether a call did."""

    case: object
    seed: int
    arguments: dict

    @property
    def tensors(self):
        return {name: value for name, value in self.arguments.items() if isinstance(value, torch.Tensor)}

    @property
    def num_outputs(self):
        return self.arguments["boundary_token_indices"].shape[0]

    def to(self, device):
        """A copy on `device`, with the same strides and offsets."""
        return Inputs(self.case, self.seed, {**self.arguments, **{k: _copy(v, device) for k, v in self.tensors.items()}})

    def same_bytes(self, other):
        """Name of the first tensor whose storage (gaps between the strides included) differs from `other`'s, or None."""
        for name, tensor in self.tensors.items():
            mine, its = (_storage_bytes(t).cpu() for t in (tensor, other.tensors[name]))
            if not torch.equal(mine, its):
                return name
        return None

    def digest(self):
        """SHA-256 over names, dtypes, shapes and bytes of all arguments, in order."""
        sha = hashlib.sha256()
        for name, value in self.arguments.items():
            if isinstance(value, torch.Tensor):
                sha.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
                packed = value.clone(memory_format=torch.contiguous_format)  # contiguous() leaves strides of size 1 as they are
                sha.update(packed.reshape(-1).view(torch.uint8).numpy())
            else:
                sha.update(f"{name} {value!r}\n".encode())
        return sha.hexdigest()


def roll(inputs, by):
    """Roll the 512 values and 512 scores of every state row by `by` columns: other contents in the same memory; -by undoes it."""
    state = inputs.arguments["state_cache"]
    for half in (state[..., :512], state[..., 512:]):
        half.copy_(half.roll(by, -1))


def _storage_bytes(tensor):
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _copy(tensor, device):
    storage = _storage_bytes(tensor).to(device, copy=True).untyped_storage()
    copied = torch.empty(0, dtype=tensor.dtype, device=device)
    return copied.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


# --- draws ---------------------------------------------------------------------------------------------------------------


class Draws:
    """One stream of random numbers for each (seed, purpose)."""

    def __init__(self, seed, purpose):
        self._bits = np.random.PCG64([seed, *purpose.encode()])

    def raw(self, count):
        return self._bits.random_raw(count)

    def below(self, bound, count):
        """[count] int64 in [0, bound); the bias of a remainder of 2^64 is nothing here."""
        return (self.raw(count) % np.uint64(bound)).astype(np.int64)

    def permutation(self, count):
        return np.argsort(self.raw(count), kind="stable")

    def uniform(self, *shape):
        """float32 in [-1, 1): multiples of 2^-23."""
        raw = self.raw(int(np.prod(shape)))
        return ((raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)).reshape(shape)

    def normal(self, *shape):
        """Nearly normal float32: the sum of eight 16-bit uniforms, scaled to deviation 1; the largest is 4.9."""
        count = int(np.prod(shape))
        out = np.empty(count, dtype=np.float32)
        deviation = (8 * (2.0**32 - 1) / 12) ** 0.5
        for start in range(0, count, CHUNK):
            piece = out[start : start + CHUNK]
            words = self.raw(2 * piece.size).view(np.uint16).reshape(8, piece.size)
            total = np.full(piece.size, -4 * 65535, dtype=np.int32)
            for word in words:
                total += word
            np.multiply(total.astype(np.float32), np.float32(1 / deviation), out=piece)
        return out.reshape(shape)

    def power_of_two(self, least, most, *shape):
        """float32 2^k, k uniform in [least, most]."""
        return np.ldexp(np.float32(1), (self.below(most - least + 1, int(np.prod(shape))) + least).astype(np.int32)).reshape(shape)


# name -> (draws, rows) -> float32 values [rows, 512] and scores [rows, 512]
def _normal(draws, rows):
    return draws.normal(rows, 512), draws.normal(rows, 512)


def _uniform(draws, rows):
    return draws.uniform(rows, 512), draws.uniform(rows, 512)


def _peaked(draws, rows):
    """Scores of deviation 32: one to three rows hold the weight of a window."""
    return draws.normal(rows, 512), draws.normal(rows, 512) * np.float32(32)


def _shared_scores(draws, rows):
    """One score for all dimensions of a row."""
    return draws.normal(rows, 512), np.broadcast_to(draws.normal(rows, 1), (rows, 512))


def _heavy_tails(draws, rows):
    """Values over 24 binades, scores over 8."""
    values = draws.normal(rows, 512) * draws.power_of_two(-12, 12, rows, 512)
    return values, draws.normal(rows, 512) * draws.power_of_two(-4, 4, rows, 512)


def _tiny(draws, rows):
    """Values from 2^-16 down to 2^-30 by group: after RMSNorm (eps 1e-6 rules) group maxima lie on both sides of 1e-4."""
    scale = np.ldexp(np.float32(1), -16 - 2 * (np.arange(512, dtype=np.int32) // 64))
    return draws.normal(rows, 512) * scale.astype(np.float32), draws.normal(rows, 512)


def _zero(draws, rows):
    return np.zeros((rows, 512), np.float32), np.zeros((rows, 512), np.float32)


def _knife_edge(draws, rows):
    """After RMSNorm (weight 1) the groups' maxima are bfloat16 126.5, 127, 127.5 times 2^k: about the last before a scale's step.

    All rows have one vector of values x = c t, with c = sqrt(eps / (1 - mean(t^2))), so that rsqrt(mean(x^2) + eps) = 1 / c.
    """
    group, lane = np.arange(512) // 64, np.arange(512) % 64
    sizes = np.ldexp(np.array([127, 126.5, 127.5])[group % 3], -8 - group)
    t = np.where(lane == group, sizes, sizes * draws.uniform(512).astype(np.float64) * 0.99)
    x = t * np.sqrt(RMS_NORM_EPS / (1 - np.square(t).mean()))
    return np.broadcast_to(x.astype(np.float32), (rows, 512)), draws.normal(rows, 512)


def _huge(draws, rows):
    """Values of either sign at 1e30: their squares overflow."""
    return np.where(draws.uniform(rows, 512) < 0, np.float32(-1e30), np.float32(1e30)), draws.normal(rows, 512)


def _huge_scores(draws, rows):
    """Scores of either sign at 1e30: the softmax is uniform over the large ones."""
    return draws.normal(rows, 512), np.where(draws.uniform(rows, 512) < 0, np.float32(-1e30), np.float32(1e30))


def _denormal(draws, rows):
    """Values below 2^-126, which a chip may flush."""
    return draws.normal(rows, 512) * np.float32(2.0**-130), draws.normal(rows, 512)


def _signed_zero(draws, rows):
    """Values +0.0 and -0.0, but for one dimension in eight."""
    values = np.where(draws.uniform(rows, 512) < 0, np.float32(-0.0), np.float32(0.0))
    values[:, ::8] = draws.normal(rows, 64)
    return values, draws.normal(rows, 512)


def _masked(draws, rows):
    """Scores of -inf: all of every eighth row, half of the others; the first row of eight has none, so no column is empty."""
    scores = draws.normal(rows, 512)
    row = np.arange(rows)[:, None]
    scores[(draws.uniform(rows, 512) < 0) & (row % 8 != 0) | (row % 8 == 3)] = -np.inf
    return draws.normal(rows, 512), scores


def _undefined(draws, rows):
    """A NaN value in row 5, a score of +inf in row 130, column 77 of rows 256 to 511 all -inf: no other window may change."""
    values, scores = draws.normal(rows, 512), draws.normal(rows, 512)
    values[5:6, 9] = np.nan
    scores[130:131, 200] = np.inf
    scores[256:512, 77] = -np.inf
    return values, scores


DISTRIBUTIONS = {
    f.__name__[1:]: f
    for f in (
        _normal, _uniform, _peaked, _shared_scores, _heavy_tails, _tiny, _zero,
        _knife_edge, _huge, _huge_scores, _denormal, _signed_zero, _masked, _undefined,
    )
}  # fmt: skip


# --- the builder ---------------------------------------------------------------------------------------------------------


def build(case, seed=0):
    """CaseSpec and seed -> Inputs on the CPU. Rows of state_cache that belong to no token are NaN; kv_cache is noise."""
    lengths = request_lengths(case, Draws(seed, "lengths"))
    token_to_req = np.repeat(np.arange(case.num_reqs), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])  # token's place in its request
    positions = step + case.first_position
    boundaries = np.flatnonzero((step + 1) % case.compress_ratio == 0)
    if case.boundaries == "shuffled":
        boundaries = boundaries[Draws(seed, "boundaries").permutation(boundaries.size)]
    block_table, num_blocks = build_block_table(case, lengths, Draws(seed, "block_table"))
    slots, kv_blocks = build_slots(case, boundaries.size, Draws(seed, "slots"))
    kv_slot_mapping = np.full(case.total_tokens, -1)
    kv_slot_mapping[boundaries] = slots

    used = block_table[token_to_req, positions // case.block_size] * case.block_size + positions % case.block_size
    spare = case.spare_blocks * case.block_size
    everything = np.full((spare + num_blocks * case.block_size, 1024), np.nan, np.float32)
    state = everything[spare:]
    state[:, :512], state[:, 512:] = DISTRIBUTIONS[case.distribution](Draws(seed, "state"), state.shape[0])
    unused = np.ones(state.shape[0], bool)
    unused[used] = False
    state[unused] = np.nan
    block_table = block_table + case.spare_blocks
    weight = np.float32(1) if case.distribution == "knife_edge" else 1 + Draws(seed, "weight").normal(512) / np.float32(8)

    index = {"contract": None, "int32": torch.int32, "int64": torch.int64}[case.index_dtype]
    i32, i64 = index or torch.int32, index or torch.int64
    max_pos = case.first_position + int(max(lengths))
    noise = Draws(seed, "kv_cache").raw(kv_blocks * (PAGE_BYTES + case.page_padding) // 8 + 1).view(np.uint8)
    arguments = {
        "state_cache": torch.from_numpy(everything).view(-1, case.block_size, 1024),
        "token_to_req": torch.from_numpy(token_to_req).to(i32),
        "positions": torch.from_numpy(positions).to(i64),
        "boundary_token_indices": torch.from_numpy(boundaries).to(i64),
        "block_table": torch.from_numpy(block_table).to(i32),
        "rms_norm_weight": torch.from_numpy(np.broadcast_to(weight, 512).copy()).to(torch.bfloat16),
        "cos_sin_cache": torch.from_numpy(build_cos_sin(max(1, max_pos), Draws(seed, "cos_sin"))),
        "kv_slot_mapping": torch.from_numpy(kv_slot_mapping).to(i64),
        "kv_cache": torch.from_numpy(noise[: kv_blocks * (PAGE_BYTES + case.page_padding)]).view(kv_blocks, -1),
        "block_size": case.block_size,
        "compress_ratio": case.compress_ratio,
        "rms_norm_eps": RMS_NORM_EPS,
    }
    if case.indices != "positive":
        _count_from_the_end(arguments, case.indices)
    layout = {"packed": lambda tensor: tensor, "strided": _strided, "guarded": _guarded}[case.memory]
    arguments = {name: layout(v) if isinstance(v, torch.Tensor) else v for name, v in arguments.items()}
    return Inputs(case, seed, arguments)


def request_lengths(case, draws):
    """[num_reqs] tokens of each request; unequal ones may be short of a window, or empty."""
    if case.lengths == "equal":
        return np.full(case.num_reqs, case.total_tokens // case.num_reqs)
    cuts = np.sort(draws.below(case.total_tokens + 1, case.num_reqs - 1))
    return np.diff(np.concatenate([[0], cuts, [case.total_tokens]]))


def build_block_table(case, lengths, draws):
    """-> ([num_reqs, blocks_per_req] int64, num_blocks). Entries that no token needs name a spare block, all NaN."""
    first = case.first_position // case.block_size
    ends = -(-(lengths + case.first_position) // case.block_size)
    logical = np.arange(max(1, ends.max()))
    needed = (logical >= first) & (logical < ends[:, None])
    if case.block_table == "shared":
        table = np.broadcast_to(logical - first, needed.shape)
        num_blocks = int(needed.any(0).sum())
    else:
        table = (np.cumsum(needed) - 1).reshape(needed.shape)
        num_blocks = int(needed.sum())
    spare = num_blocks
    table = np.where(needed, table, spare)
    num_blocks += int(not needed.all())
    if case.block_table == "permuted":
        table = draws.permutation(num_blocks)[table]
    return table, num_blocks


def build_slots(case, num_outputs, draws):
    """-> ([num_outputs] int64 slots, kv_blocks). With gaps, the last slot of the last page is among them."""
    pages = max(1, -(-num_outputs * (3 if case.slots == "gaps" else 1) // PAGE_SLOTS))
    if case.slots == "page_ends":
        ends = np.arange(1, num_outputs // 2 + 2)[:, None] * PAGE_SLOTS + np.array([-1, 0])  # 63, 64, 127, 128, ...
        slots, pages = ends.flatten()[:num_outputs], num_outputs // 2 + 2
    elif case.slots == "dense":
        slots = np.arange(num_outputs)
    else:
        slots = draws.permutation(pages * PAGE_SLOTS)[:num_outputs]
        if case.slots == "gaps" and num_outputs and pages * PAGE_SLOTS - 1 not in slots:
            slots[0] = pages * PAGE_SLOTS - 1
    return slots + max(0, case.kv_pages - pages) * PAGE_SLOTS, max(pages, case.kv_pages)


def _count_from_the_end(arguments, which):
    """Rewrite indices as their twins from the end, as PyTorch takes them. Positions before zero reach a table's last blocks."""
    a = arguments
    if which == "negative":
        for name, size in (
            ("boundary_token_indices", a["positions"].shape[0]),
            ("token_to_req", a["block_table"].shape[0]),
            ("block_table", a["state_cache"].shape[0]),
            ("kv_slot_mapping", a["kv_cache"].shape[0] * PAGE_SLOTS),
        ):
            a[name] = a[name] - size
    else:
        reach = a["block_table"].shape[1] * a["block_size"]
        a["positions"] = a["positions"] - reach
        a["cos_sin_cache"] = a["cos_sin_cache"].repeat(reach // len(a["cos_sin_cache"]) + 2, 1)


def build_cos_sin(max_pos, draws):
    """[max_pos, 64] float32 points of the unit circle, (1 - t^2, 2t) / (1 + t^2): exact operations, no cosine of a library."""
    t = draws.uniform(max_pos, 32).astype(np.float64)
    cos_sin = np.concatenate([1 - t * t, 2 * t], axis=1) / np.concatenate([1 + t * t] * 2, axis=1)
    return cos_sin.astype(np.float32)


def _strided(tensor):
    """The same values as a view into a larger tensor: last stride 2 (state and pages keep 1), uneven rows, odd offset."""
    step = 1 if tensor.dim() == 3 or tensor.dtype == torch.uint8 else 2
    padded = [size + 1 for size in tensor.shape[:-1]] + [tensor.shape[-1] * step + 3]
    base = torch.full(padded, 0x5A, dtype=torch.uint8).to(tensor.dtype) if tensor.numel() else tensor.new_zeros(padded)
    view = base[tuple(slice(0, size) for size in tensor.shape[:-1])][..., 1 : 1 + tensor.shape[-1] * step : step]
    view.copy_(tensor)
    return view


def _guarded(tensor):
    """The same values, packed, between GUARD elements that no call may need: NaN, indices far outside, 0xA5."""
    guard = float("nan") if tensor.is_floating_point() else 0xA5 if tensor.dtype == torch.uint8 else 1 << 30
    base = torch.full((tensor.numel() + 2 * GUARD,), guard, dtype=tensor.dtype)
    view = base[GUARD : GUARD + tensor.numel()].view(tensor.shape)
    return view.copy_(tensor)


# --- the validator -------------------------------------------------------------------------------------------------------


def bad_indices(arguments):
    """Every index past either end of what it indexes, as text naming tensor, place, value and limit; [] if all are inside."""
    a = {k: v.cpu().long() if k in INDEX_NAMES else v for k, v in arguments.items()}
    block_size, C = a["block_size"], a["compress_ratio"]
    num_tokens, found = a["positions"].shape[0], []

    def check(name, place, index, limit, what):
        outside = ((index < -limit) | (index >= limit)).flatten().nonzero().flatten()
        if outside.numel():
            at, value = int(outside[0]), int(index.flatten()[outside[0]])
            found.append(
                f"{name}: {outside.numel()} of {index.numel()} out of range; first {place} {at}: {value}, limit {limit} {what}"
            )
        return index.clamp(-limit, limit - 1)

    if a["boundary_token_indices"].numel() == 0:
        return found
    tokens = check("boundary_token_indices", "output", a["boundary_token_indices"], num_tokens, "tokens")
    reqs = check("token_to_req", "output", a["token_to_req"][tokens], a["block_table"].shape[0], "requests")
    last = a["positions"][tokens]
    window = last[:, None] + torch.arange(1 - C, 1)
    logical = check("positions", "output x row", window // block_size, a["block_table"].shape[1], "blocks a request")
    check("positions", "output", last // C * C, a["cos_sin_cache"].shape[0], "rows of cos_sin_cache")
    check(
        "block_table", "output x row", a["block_table"][reqs[:, None], logical], a["state_cache"].shape[0], "blocks of state_cache"
    )
    check("kv_slot_mapping", "output", a["kv_slot_mapping"][tokens] // PAGE_SLOTS, a["kv_cache"].shape[0], "pages of kv_cache")
    return found
