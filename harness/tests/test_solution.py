"""Both routes against the reference: distributions, layouts, and every row of the contract's table."""

import threading
from dataclasses import replace

import pytest
import torch

import reference
import solution
from harness.cases import DISTRIBUTIONS, HARD, CaseSpec
from harness.inputs import Inputs, bad_indices, build
from harness.verdict import judge

BASE = CaseSpec("base", 2, 1024, 128)
SHIFTED = replace(BASE, block_table="permuted", slots="gaps", lengths="unequal", first_position=13, boundaries="shuffled")


def on_device(inputs, device):
    return inputs if device.type == "cpu" else inputs.to(device)


def verdict(inputs, device):
    """Run solution and reference on the device; the inputs must survive."""
    moved = inputs.to(device)
    got = solution.c128_256_512_compress(**moved.arguments)
    assert moved.same_bytes(inputs) is None
    expected = reference.c128_256_512_compress(**on_device(inputs, device).arguments)
    assert got.shape == expected.shape and got.dtype == torch.uint8 and got.is_contiguous()
    return judge(inputs, expected.cpu(), got.cpu())


def assert_right(inputs, device):
    assert bad_indices(inputs.arguments) == []
    found = verdict(inputs, device)
    assert found.wrong == 0, found.first
    assert found.unspecified == 0 and found.ties <= max(3, found.compared // 2000), found


def changed(inputs, **tensors):
    return Inputs(inputs.case, inputs.seed, {**inputs.arguments, **tensors})


# --- distributions, layouts, windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("case", [BASE, SHIFTED], ids=["plain", "shifted"])
@pytest.mark.parametrize("compress_ratio", [128, 256, 512])
def test_every_distribution(route, device, compress_ratio, case, distribution):
    assert_right(build(replace(case, compress_ratio=compress_ratio, total_tokens=2048, distribution=distribution)), device)


@pytest.mark.parametrize("block_size", [1, 2, 7, 8, 16, 64])
@pytest.mark.parametrize("block_table", ["identity", "permuted", "shared"])
def test_every_block_size_and_table(route, device, block_size, block_table):
    assert_right(build(replace(BASE, block_size=block_size, block_table=block_table, first_position=3)), device)


@pytest.mark.parametrize("first_position", range(1, 8))
def test_windows_start_anywhere_in_a_block(route, device, first_position):
    assert_right(build(replace(BASE, total_tokens=512, first_position=first_position)), device)


@pytest.mark.parametrize("slots", ["dense", "shuffled", "gaps"])
@pytest.mark.parametrize("index_dtype", ["contract", "int32", "int64"])
def test_slots_and_index_types(route, device, slots, index_dtype):
    assert_right(build(replace(SHIFTED, slots=slots, index_dtype=index_dtype)), device)


@pytest.mark.parametrize("num_outputs", [1, 40, 70])
def test_every_tile_of_the_route(route, device, num_outputs):
    """The nvidia route takes another tile up to 32, up to 64 and above 64 outputs."""
    assert_right(build(replace(BASE, num_reqs=1, total_tokens=128 * num_outputs)), device)


def test_zeros_by_a_fill_of_their_own(route, device, monkeypatch):
    """Beyond so many outputs or pages no program of an exact kernel zeroes pages; up to it, none is filled beforehand."""
    monkeypatch.setattr(solution, "ZERO_OUTPUTS_UP_TO", 4)
    assert_right(build(SHIFTED), device)
    assert_right(build(replace(SHIFTED, num_reqs=1, total_tokens=512, first_position=0)), device)


def test_padded_pages_and_strided_views(route, device):
    assert_right(build(replace(SHIFTED, memory="strided", page_padding=5)), device)
    assert_right(build(replace(BASE, page_padding=64)), device)


def test_requests_shorter_than_a_window(route, device):
    assert_right(build(replace(SHIFTED, num_reqs=9)), device)


# --- the contract's table ------------------------------------------------------------------------------------------------


def test_no_outputs_gives_zeros(route, device):
    inputs = build(replace(BASE, num_reqs=1, total_tokens=100)).to(device)
    result = solution.c128_256_512_compress(**inputs.arguments)
    assert inputs.num_outputs == 0 and result.shape == inputs.arguments["kv_cache"].shape and result.count_nonzero() == 0
    empty = build(replace(BASE, num_reqs=1, total_tokens=0)).to(device)
    assert solution.c128_256_512_compress(**empty.arguments).count_nonzero() == 0


def test_result_is_new_and_kv_cache_is_ignored(route, device):
    inputs = build(BASE).to(device)
    first = solution.c128_256_512_compress(**inputs.arguments)
    kept = first.clone()
    inputs.arguments["kv_cache"].zero_()
    second = solution.c128_256_512_compress(**inputs.arguments)
    assert torch.equal(first, second) and first.data_ptr() != second.data_ptr()
    second.fill_(9)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("index_dtype", ["contract", "int32"])
def test_negative_indices_count_from_the_end(route, device, index_dtype):
    """Token, request, block and slot each written as its negative twin: same bytes as the positive one."""
    inputs = build(replace(SHIFTED, index_dtype=index_dtype))
    a = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in inputs.arguments.items()}
    a["boundary_token_indices"] -= a["positions"].shape[0]
    a["token_to_req"] -= a["block_table"].shape[0]
    a["block_table"] -= a["state_cache"].shape[0]
    a["kv_slot_mapping"] -= a["kv_cache"].shape[0] * 64
    negative = Inputs(inputs.case, inputs.seed, a)
    assert_right(negative, device)
    assert torch.equal(*(solution.c128_256_512_compress(**i.to(device).arguments) for i in (inputs, negative)))


def test_negative_positions_count_from_the_end(route, device):
    """Positions before zero reach the last entries of the block table, rows within a block in order."""
    inputs = build(replace(BASE, num_reqs=1, total_tokens=512, block_size=7))
    blocks = inputs.arguments["block_table"].shape[1]
    shifted = changed(inputs, positions=inputs.arguments["positions"] - blocks * 7)
    cos_sin = torch.randn(1024, 64, generator=torch.Generator().manual_seed(0))
    assert_right(changed(shifted, cos_sin_cache=cos_sin), device)


@pytest.mark.parametrize(
    ("name", "past"),
    [
        ("boundary_token_indices", 1 << 40),
        ("boundary_token_indices", -(1 << 40)),
        ("token_to_req", (1 << 31) - 1),
        ("token_to_req", -(1 << 31)),
        ("positions", 1 << 40),
        ("positions", -(1 << 40)),
        ("positions", (1 << 63) - 1),
        ("block_table", (1 << 31) - 1),
        ("block_table", -(1 << 31)),
        ("kv_slot_mapping", 1 << 40),
        ("kv_slot_mapping", -(1 << 40)),
        ("kv_slot_mapping", 64),
    ],
)
def test_an_index_past_the_end_touches_no_other_slot(route, device, name, past):
    """Far enough that an access would fault. Output 0 is spoilt; every byte outside its slot stays the reference's."""
    inputs = build(BASE)
    a = dict(inputs.arguments)
    boundary = int(a["boundary_token_indices"][0])
    index = {"boundary_token_indices": (0,), "block_table": (0, 5)}.get(name, (boundary,))
    a[name] = a[name].clone()
    a[name][index] = past
    result = solution.c128_256_512_compress(**Inputs(BASE, 0, a).to(device).arguments).cpu()
    expected = reference.c128_256_512_compress(**on_device(inputs, device).arguments).cpu()
    for page in (result, expected):
        page[0, 0:576] = 0
        page[0, 36864 : 36864 + 8] = 0
    found = judge(inputs, expected, result)
    assert found.wrong == 0, found.first


@pytest.mark.parametrize("rows", [1, 64, 127])
def test_scores_of_minus_infinity(route, device, rows):
    """A masked row weighs nothing: the first rows of every window, whole tiles of them included."""
    inputs = build(replace(BASE, total_tokens=512))
    state = inputs.arguments["state_cache"].clone().view(-1, 128, 1024)
    state[:, :rows, 512:] = float("-inf")
    state[:, 127, 512:] = 0.25
    assert_right(changed(inputs, state_cache=state.view(-1, 8, 1024)), device)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), "column"])
def test_an_undefined_window_spoils_only_its_own_slot(route, device, poison):
    inputs = build(BASE)
    state = inputs.arguments["state_cache"].clone()
    if poison == "column":
        state[:16, :, 700] = float("-inf")  # one column of the first window
    else:
        state[3, 2, 600] = poison
    found = verdict(changed(inputs, state_cache=state), device)
    assert found.wrong == 0 and found.unspecified <= 1, found


def test_rows_nobody_needs_may_be_nan(route, device):
    inputs = build(replace(SHIFTED, lengths="unequal"))
    assert inputs.arguments["state_cache"].isnan().any()
    assert_right(inputs, device)


def test_large_and_small_values(route, device):
    """Squares that overflow give zeros; subnormal values vanish under eps; -0.0 is zero."""
    for scale in (1e30, 1e-30, 1e-39, -0.0):
        inputs = build(replace(BASE, total_tokens=256))
        state = inputs.arguments["state_cache"].clone()
        state[..., :512] *= scale
        assert_right(changed(inputs, state_cache=state), device)


# --- 64-bit addressing ---------------------------------------------------------------------------------------------------


def allocate(*args, **kwargs):
    try:
        return torch.empty(*args, **kwargs)
    except (RuntimeError, MemoryError) as error:
        pytest.skip(f"this machine does not give {args} of memory: {error}")


def test_state_past_two_to_the_31_elements(route, device):
    """The window lies in the last blocks of a 9 GB state cache; on a CPU the rest is never touched."""
    inputs = build(replace(BASE, num_reqs=1, total_tokens=128))
    num_blocks = (1 << 31) // 8192 + 64
    state = allocate((num_blocks, 8, 1024), dtype=torch.float32, device=device)
    state[-16:] = inputs.arguments["state_cache"].to(device)
    moved = inputs.to(device).arguments
    moved = {**moved, "state_cache": state, "block_table": moved["block_table"] + (num_blocks - 16)}
    small = solution.c128_256_512_compress(**inputs.to(device).arguments)
    assert torch.equal(solution.c128_256_512_compress(**moved), small)


def test_cache_past_two_to_the_31_bytes(route, device):
    """The slot lies in the last page of a 2.1 GB packed cache."""
    inputs = build(replace(BASE, num_reqs=1, total_tokens=128))
    pages = (1 << 31) // 37376 + 2
    kv_cache = allocate((pages, 37376), dtype=torch.uint8, device=device)
    slots = torch.full((128,), pages * 64 - 1, device=device)
    result = solution.c128_256_512_compress(**{**inputs.to(device).arguments, "kv_cache": kv_cache, "kv_slot_mapping": slots})
    small = solution.c128_256_512_compress(**inputs.to(device).arguments)
    assert result[:-1].count_nonzero() == 0
    assert torch.equal(result[-1, 63 * 576 : 64 * 576], small[0, :576]) and torch.equal(result[-1, -8:], small[0, 36864:36872])


# --- errors, before any launch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"state_cache": lambda t: t.double()}, TypeError, "state_cache: torch.float64 given; torch.float32 is needed"),
        (
            {"state_cache": lambda t: t[0]},
            ValueError,
            r"state_cache: shape \[8, 1024\] given; \[any, block_size = 8, 1024\] is needed",
        ),
        ({"state_cache": lambda t: t[..., :1000]}, ValueError, r"state_cache: shape \[128, 8, 1000\] given"),
        ({"state_cache": lambda t: None}, TypeError, "state_cache: NoneType given; a torch.Tensor is needed"),
        ({"state_cache": lambda t: t[:0]}, ValueError, "state_cache: shape .* 8 outputs need at least one element"),
        ({"positions": lambda t: t[:-1]}, ValueError, r"positions: shape \[1023\] given; \[num_tokens = 1024\] is needed"),
        ({"positions": lambda t: t.float()}, TypeError, "positions: torch.float32 given; torch.int32 or torch.int64 is needed"),
        ({"block_table": lambda t: t[0]}, ValueError, r"block_table: shape \[64\] given; \[any, any\] is needed"),
        ({"rms_norm_weight": lambda t: t.float()}, TypeError, "rms_norm_weight: torch.float32 given; torch.bfloat16"),
        ({"cos_sin_cache": lambda t: t[:, :32]}, ValueError, r"cos_sin_cache: shape \[512, 32\] given; \[any, 64\] is needed"),
        ({"kv_slot_mapping": lambda t: t[:5]}, ValueError, "kv_slot_mapping"),
        ({"kv_cache": lambda t: t[:, :37375]}, ValueError, "kv_cache: 37375 bytes a page given; at least 37376 are needed"),
        ({"kv_cache": lambda t: t.to(torch.int8)}, TypeError, "kv_cache: torch.int8 given; torch.uint8 is needed"),
        ({"kv_cache": lambda t: t.to("meta")}, ValueError, "kv_cache: on meta, state_cache on"),
        ({"block_size": lambda n: 0}, ValueError, "block_size: 0 given; an int of at least 1 is needed"),
        ({"block_size": lambda n: 16}, ValueError, r"state_cache: shape \[128, 8, 1024\] given; \[any, block_size = 16, 1024\]"),
        ({"compress_ratio": lambda n: 64}, ValueError, "compress_ratio: 64 given; 128, 256 or 512 is needed"),
    ],
)
def test_errors_name_argument_given_and_needed(route, device, change, error, said):
    arguments = build(BASE).to(device).arguments
    with pytest.raises(error, match=said):
        solution.c128_256_512_compress(**{**arguments, **{name: f(arguments[name]) for name, f in change.items()}})


@pytest.mark.parametrize("guards", [True, False], ids=["guards", "kinds"])
def test_a_plan_serves_only_arguments_of_its_kinds(device, monkeypatch, guards):
    """Warm calls one after another, each with another kind than the call before: shape, dtype, strides, type; and refused ones."""
    monkeypatch.setattr(solution, "detect_platform", lambda device: ("portable", "forced by a test"))
    if not guards:
        monkeypatch.setattr(solution, "TensorGuards", None)
    elif solution.TensorGuards is None:
        pytest.skip("this PyTorch has no torch._C._dynamo.guards.TensorGuards: kinds are read, as in the other half of this test")
    solution.forget_plans()
    small = CaseSpec("kinds", 1, 256, 128)
    changes = (
        {},
        {"index_dtype": "int32"},
        {"total_tokens": 384},
        {"memory": "strided"},
        {"page_padding": 8},
        {"block_size": 4},
        {},
    )
    for change in changes:
        inputs = build(replace(small, **change))
        assert_right(inputs, device)
        assert_right(inputs, device)
        arguments = inputs.to(device).arguments
        for name, wrong in (("positions", arguments["positions"].float()), ("kv_slot_mapping", arguments["kv_slot_mapping"][:5])):
            with pytest.raises((TypeError, ValueError), match=name):
                solution.c128_256_512_compress(**{**arguments, name: wrong})
    weight = torch.nn.Parameter(arguments["rms_norm_weight"], requires_grad=False)
    assert torch.equal(
        solution.c128_256_512_compress(**arguments), solution.c128_256_512_compress(**{**arguments, "rms_norm_weight": weight})
    )
    assert bool(solution.LAST_PLANS) == guards
    solution.forget_plans()


# --- streams, graphs, devices (on hardware only) -------------------------------------------------------------------------


def warmed(device, seed=0):
    inputs = build(replace(SHIFTED, total_tokens=4096), seed).to(device)
    return inputs, solution.c128_256_512_compress(**inputs.arguments)


def test_graph_replay_sees_new_contents(route, cuda):
    (inputs, before), (other, after) = warmed(cuda, 0), warmed(cuda, 0)
    other.arguments["state_cache"].mul_(0.5)
    after = solution.c128_256_512_compress(**other.arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = solution.c128_256_512_compress(**inputs.arguments)
    graph.replay()
    assert torch.equal(result, before)
    inputs.arguments["state_cache"].copy_(other.arguments["state_cache"])
    for _ in range(3):
        graph.replay()
        assert torch.equal(result, after)


def test_side_streams_at_once(route, cuda):
    (one, expect_one), (two, expect_two) = warmed(cuda, 0), warmed(cuda, 1)
    streams, results = [torch.cuda.Stream(), torch.cuda.Stream()], ([], [])
    torch.cuda.synchronize()
    for _ in range(50):
        for stream, inputs, found in zip(streams, (one, two), results):
            with torch.cuda.stream(stream):
                found.append(solution.c128_256_512_compress(**inputs.arguments))
    torch.cuda.synchronize()
    assert all(torch.equal(r, expect_one) for r in results[0]) and all(torch.equal(r, expect_two) for r in results[1])


def test_two_graphs_at_once(route, cuda):
    """Each graph has scratch and counters of its own: replayed together, and together with calls outside a graph."""
    (one, expect_one), (two, expect_two) = warmed(cuda, 0), warmed(cuda, 1)
    made = []
    for inputs in (one, two, one):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made.append((graph, solution.c128_256_512_compress(**inputs.arguments)))
    streams = [torch.cuda.Stream() for _ in made]
    torch.cuda.synchronize()
    for _ in range(50):
        for (graph, _), stream in zip(made, streams):
            with torch.cuda.stream(stream):
                graph.replay()
        outside = solution.c128_256_512_compress(**two.arguments)
    torch.cuda.synchronize()
    for (_, result), expected in zip(made, (expect_one, expect_two, expect_one)):
        assert torch.equal(result, expected)
    assert torch.equal(outside, expect_two)


def test_two_threads(route, cuda):
    """On one stream and on their own, each its own inputs."""
    pairs = [warmed(cuda, seed) for seed in (0, 1)]
    wrong = []

    def call(inputs, expected, stream):
        with torch.cuda.stream(stream):
            for _ in range(100):
                if not torch.equal(solution.c128_256_512_compress(**inputs.arguments), expected):
                    wrong.append(inputs.seed)

    for streams in ([torch.cuda.current_stream()] * 2, [torch.cuda.Stream(), torch.cuda.Stream()]):
        torch.cuda.synchronize()
        threads = [threading.Thread(target=call, args=(*pair, stream)) for pair, stream in zip(pairs, streams)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert not wrong


def test_after_a_refused_call_and_a_larger_one(route, cuda):
    inputs, expected = warmed(cuda)
    for _ in range(3):
        with pytest.raises(TypeError):
            solution.c128_256_512_compress(**{**inputs.arguments, "positions": None})
        larger = build(replace(BASE, total_tokens=131072)).to(cuda)
        solution.c128_256_512_compress(**larger.arguments)
        assert torch.equal(solution.c128_256_512_compress(**inputs.arguments), expected)
    torch.cuda.synchronize()
    assert all(arrivals.count_nonzero() == 0 for arrivals, _ in solution.WORKSPACES.values())


@pytest.mark.parametrize("exact_route", ["nvidia", "nvidia-plain"])
@pytest.mark.parametrize("compress_ratio", [128, 256, 512])
@pytest.mark.parametrize("distribution", [name for name in DISTRIBUTIONS + HARD if name != "undefined"])
def test_exact_routes_return_every_byte(cuda, monkeypatch, exact_route, compress_ratio, distribution):
    """torch.equal with the reference, rotary bytes included, for 1 to 66 outputs: each order of the mean, each tile."""
    monkeypatch.setattr(solution, "detect_platform", lambda device: (exact_route, "forced by a test"))
    solution.forget_plans()
    for num_outputs in (1, 7, 8, 15, 16, 32, 66):
        case = replace(SHIFTED, num_reqs=1, distribution=distribution, compress_ratio=compress_ratio, first_position=0)
        a = build(replace(case, total_tokens=num_outputs * compress_ratio), seed=num_outputs).to(cuda).arguments
        assert torch.equal(solution.c128_256_512_compress(**a), reference.c128_256_512_compress(**a))
    solution.forget_plans()


@pytest.mark.parametrize("exact_route", ["nvidia", "nvidia-plain"])
def test_a_sum_of_negative_zeros_is_zero(cuda, monkeypatch, exact_route):
    """As in PyTorch, whose sums begin with 0: the sign of a zero reaches the rotary bytes."""
    monkeypatch.setattr(solution, "detect_platform", lambda device: (exact_route, "forced by a test"))
    solution.forget_plans()
    a = build(replace(SHIFTED, compress_ratio=128)).to(cuda).arguments
    a["state_cache"][..., 400:512] = -0.0
    assert torch.equal(solution.c128_256_512_compress(**a), reference.c128_256_512_compress(**a))
    solution.forget_plans()


def test_second_device(route, cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device here; a second is needed")
    inputs, expected = warmed(cuda)
    second = torch.device("cuda", 1)
    result = solution.c128_256_512_compress(**inputs.to(second).arguments)
    assert result.device == second and torch.equal(result.cpu(), expected.cpu())
