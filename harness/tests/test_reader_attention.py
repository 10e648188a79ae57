"""The reader's kernel against float64 attention over the decoded slots: in the interpreter, or on the accelerator."""

import pytest
import torch

import reference
from harness.cases import CaseSpec
from harness.diff import output_slots
from harness.inputs import Draws, build
from harness.reader import formats
from harness.reader import sparse_attention as reader

LSE = {"atol": 1e-6, "rtol": 2.01 / 65536}  # of the tests of DeepSeek's Ascend sparse attention kernel, as is the next
COSINE = 5e-6
U = 2.0**-8  # unit roundoff of bfloat16: what rounding a weight, and rounding the output, may change, relative
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
SCALE = 512**-0.5


@pytest.fixture(scope="module")
def cache():
    """([kv_blocks, block_stride] uint8, its written slots): compressed, shuffled, every byte of another slot NaN or noise."""
    inputs = build(CaseSpec("reader", 2, 12800, 128, slots="gaps", page_padding=64))
    slots = output_slots(inputs)
    written = torch.zeros_like(inputs.arguments["kv_cache"], dtype=torch.bool)
    cache = reference.c128_256_512_compress(**inputs.arguments)
    for slot in slots.tolist():
        page, at = slot // 64, slot % 64
        written[page, at * 576 : at * 576 + 576] = True
        written[page, 36864 + at * 8 : 36864 + at * 8 + 7] = True
    cache[~written] = 0xFF  # as bfloat16 NaN, as a scale 255
    return cache, slots


def draw(cache, purpose, num_queries=1, num_heads=16, topk=96):
    """query, indices: slots of the cache in no order, each query its own."""
    draws = Draws(5, purpose)
    query = torch.from_numpy(draws.normal(num_queries, num_heads, 512)).to(torch.bfloat16)
    chosen = [cache[1][torch.from_numpy(draws.permutation(cache[1].shape[0])[:topk])] for _ in range(num_queries)]
    return query, torch.stack(chosen).int()


def check(device, cache, query, indices, sink=None, scale=SCALE, **options):
    kv_cache, slots = cache
    vectors = torch.full((kv_cache.shape[0] * 64, 512), torch.nan)
    vectors[slots] = formats.decode_slots(kv_cache, slots)
    got = reader.attend(
        query.to(device), kv_cache.to(device), indices.to(device), scale, None if sink is None else sink.to(device), **options
    )
    limit = options.get("num_slots", vectors.shape[0])
    for n, truth in enumerate(reader.attend_truth(query, vectors[:limit], indices, scale, sink)):
        out = got.out[n].cpu().double()
        error = (out - truth.out).abs()
        sizes = sizes_of(query[n], vectors[:limit], indices[n], scale, truth.lse, sink)
        of_logits = 2.0**-17 * (1 + truth.max_logit.abs().clamp(max=1e9))[:, None]  # their float32 sums, as exponents
        assert (error <= U * ((1 + U) * sizes + truth.out.abs()) + of_logits * sizes + 2.0**-120).all()
        assert (
            1 - 2 * (out * truth.out).sum() / (out.square().sum() + truth.out.square().sum()).clamp(min=1e-30) < COSINE
            or not out.any()
        )
        assert torch.allclose(got.lse[n].cpu().double(), truth.lse, **LSE)
        assert torch.allclose(got.max_logit[n].cpu().double(), truth.max_logit, **LSE)
    return got


def sizes_of(query, vectors, indices, scale, lse, sink):
    """[h, 512]: sum of weight * |value|, to which the rounding of the weights is relative."""
    chosen = indices.long()
    keys = vectors[chosen[(chosen >= 0) & (chosen < vectors.shape[0])]].double()
    below = lse if sink is None else torch.logaddexp(lse, sink.double())
    return torch.exp(query.double() @ keys.T * scale - below[:, None]) @ keys.abs()


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize(("num_queries", "num_heads", "topk"), [(1, 16, 96), (2, 20, 65), (1, 64, 16), (3, 1, 1)])
def test_equals_float64(device, cache, splits, num_queries, num_heads, topk):
    """Also heads that fill no tile, keys that fill no block, more splits than blocks."""
    query, indices = draw(cache, "equals", num_queries, num_heads, topk)
    check(device, cache, query, indices, tile=reader.Tile(16, 32, splits, 4))


@pytest.mark.parametrize("tile", [reader.Tile(64, 64, 1, 8), reader.Tile(16, 16, 8, 2), reader.Tile(32, 32, 2, 4), None], ids=str)
def test_every_tile_gives_the_same(device, cache, tile):
    query, indices = draw(cache, "tiles", num_heads=64)
    sink = torch.from_numpy(Draws(5, "sink").normal(64))
    check(device, cache, query, indices, sink, tile=tile)


@pytest.mark.parametrize("splits", [1, 4])
def test_invalid_indices_take_no_part_and_are_not_read(device, cache, splits):
    """Each bound, and unwritten slots past `num_slots` whose bytes are NaN; a key counted twice counts twice."""
    query, indices = draw(cache, "invalid", 2)
    limit = int(cache[1].max()) + 1
    wrong = torch.tensor([INT_MIN, -1, limit, INT_MAX, limit + 1, -64], dtype=torch.int32)
    indices[0, ::3] = wrong.repeat(6)[: indices[0, ::3].shape[0]]
    indices[1, :64] = -1  # the first blocks hold no valid key
    indices[1, 80] = indices[1, 81]
    check(device, cache, query, indices, num_slots=limit, tile=reader.Tile(16, 32, splits, 4))


@pytest.mark.parametrize("splits", [1, 4])
def test_no_valid_index_at_all(device, cache, splits):
    query, indices = draw(cache, "none", 2)
    indices[1] = -1
    sink = torch.zeros(16)
    got = check(device, cache, query, indices, sink, tile=reader.Tile(16, 32, splits, 4))
    assert not got.out[1].any() and (got.lse[1] == torch.inf).all() and (got.max_logit[1] == -torch.inf).all()


@pytest.mark.parametrize("splits", [1, 2])
def test_a_maximum_that_runs_away_is_followed(device, cache, splits):
    """Logits far apart: the shift must move, and a later block must not overflow."""
    query, indices = draw(cache, "peaked")
    check(device, cache, query * 8, indices, scale=1.0, tile=reader.Tile(16, 16, splits, 2))


def test_every_int8_code_and_scale_is_decoded_exactly(device):
    """One key of weight 1: the output is the key. All 256 bytes, and scale bytes from the clamp's 107 upwards."""
    page = torch.full((1, 37376), 0xFF, dtype=torch.uint8)
    page[0, :448] = torch.arange(448) % 256
    page[0, 448:576] = torch.arange(-64, 64).mul(0.375).to(torch.bfloat16)[::2].contiguous().view(torch.uint8)
    page[0, 36864:36871] = torch.tensor([107, 110, 120, 127, 128, 140, 200])
    query = torch.zeros(1, 16, 512, dtype=torch.bfloat16)
    got = reader.attend(query.to(device), page.to(device), torch.zeros(1, 1, dtype=torch.int32, device=device), 1.0)
    assert torch.equal(got.out[0, 3].cpu().float(), formats.decode_slots(page, torch.tensor([0]))[0])


def test_wrong_arguments_are_named(cache):
    query, indices = draw(cache, "wrong")
    with pytest.raises(TypeError, match="query: torch.float32 given; torch.bfloat16 is needed"):
        reader.attend(query.float(), cache[0], indices, SCALE)
    with pytest.raises(ValueError, match="indices: shape .* 2 dims, contiguous, are needed"):
        reader.attend(query, cache[0], indices[0], SCALE)
    with pytest.raises(ValueError, match="37376 bytes a page or more"):
        reader.attend(query, cache[0][:, :37374].contiguous(), indices, SCALE)
    with pytest.raises(ValueError, match="one sink a head is needed"):
        reader.attend(query, cache[0], indices, SCALE, sink=torch.zeros(3))
    with pytest.raises(ValueError, match=f"num_slots: 100000 given; kv_cache holds {cache[0].shape[0] * 64}"):
        reader.attend(query, cache[0], indices, SCALE, num_slots=100000)
    with pytest.raises(ValueError, match="keys must be a power of two of at least 16"):
        reader.Tile(16, 8, 1, 1)


def test_nothing_to_do(device, cache):
    """No queries: empty results. No keys: rows without a valid index."""
    query, indices = (t.to(device) for t in draw(cache, "nothing"))
    kv_cache = cache[0].to(device)
    assert reader.attend(query[:0], kv_cache, indices[:0], SCALE).out.shape == (0, 16, 512)
    assert not reader.attend(query, kv_cache, indices[:, :0].contiguous(), SCALE).out.any()


def test_bytes_and_flops():
    """64 heads, topk 512: 0.37 MB in all, 67 MFLOP; invalid indices are counted."""
    assert reader.bytes_needed(1, 64, 512) == (512 * 588 + 65536, 66048)
    assert reader.flops(1, 64, 512) == 2 * 512 * 64 * 1024 == 67108864


def test_tiles_fill_the_chip():
    one = reader.choose_tile(1, 64, 512, 132)
    assert 64 <= one.splits * 64 // one.heads <= 2 * 132 and reader.choose_tile(128, 64, 512, 132).splits == 1
    assert reader.choose_tile(1, 16, 16, 132).splits == 1
