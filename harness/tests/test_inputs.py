"""The builder: same bytes everywhere, layouts as named, bad indices named."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import reference
from harness import cases, inputs, oracle
from harness.cases import CaseSpec, load_cases, parse_setting, select_cases
from harness.inputs import GUARD, Draws, bad_indices, build

SMALL = CaseSpec("small", 2, 1024, 128)
ALL_LAYOUTS = replace(SMALL, num_reqs=3, block_table="permuted", slots="gaps", lengths="unequal", first_position=13, block_size=7)


def test_official_cases_are_the_contests():
    found = [(case.num_reqs, case.total_tokens, case.compress_ratio) for case in load_cases()]
    sizes = ((1, 8192), (4, 32768), (8, 65536), (8, 131072))
    assert found == [(reqs, tokens, ratio) for reqs, tokens in sizes for ratio in (128, 256, 512)]
    assert {(case.block_size, case.distribution, case.block_table) for case in load_cases()} == {(8, "normal", "identity")}


@pytest.mark.parametrize(
    ("distribution", "digest"),
    [
        ("normal", "d678416430022fd6"),
        ("uniform", "a8e958710217bdfd"),
        ("peaked", "0124dd5d35214a4c"),
        ("shared_scores", "00af237f828ee79f"),
        ("heavy_tails", "013ee5048b8b8173"),
        ("tiny", "4324786a2ba2c881"),
        ("zero", "28705d99a021d113"),
    ],
)
def test_bytes_are_the_same_on_every_machine(distribution, digest):
    """Digests taken once; a change of NumPy, PyTorch, processor or builder that moves a byte shows here."""
    assert build(replace(ALL_LAYOUTS, distribution=distribution), seed=1).digest()[:16] == digest


def test_seed_changes_every_drawn_tensor():
    one, two = build(ALL_LAYOUTS, 1), build(ALL_LAYOUTS, 2)
    for name in ("state_cache", "block_table", "rms_norm_weight", "cos_sin_cache", "kv_slot_mapping", "kv_cache"):
        a, b = one.arguments[name], two.arguments[name]
        assert a.shape != b.shape or not torch.equal(a, b), name


def test_distribution_names_are_the_specs():
    assert tuple(inputs.DISTRIBUTIONS) == cases.DISTRIBUTIONS + cases.HARD


def test_normal_is_nearly_normal():
    x = Draws(0, "test").normal(1 << 20).astype(np.float64)
    assert abs(x.mean()) < 0.005 and abs(x.std() - 1) < 0.005 and 4 < abs(x).max() < 4.9
    assert abs((abs(x) < 1).mean() - 0.683) < 0.01


def test_cos_sin_is_on_the_unit_circle():
    table = torch.from_numpy(inputs.build_cos_sin(64, Draws(0, "test"))).double()
    assert torch.allclose(table[:, :32].square() + table[:, 32:].square(), torch.ones(64, 32, dtype=torch.float64), atol=1e-6)


def test_permuted_table_reads_each_needed_block_once():
    a = build(ALL_LAYOUTS).arguments
    used = torch.isfinite(a["state_cache"]).all(-1).sum()
    assert used == ALL_LAYOUTS.total_tokens  # every other row is NaN
    assert not torch.equal(a["block_table"].flatten(), a["block_table"].flatten().sort().values)


def test_shared_table_gives_all_requests_the_same_blocks():
    table = build(replace(SMALL, block_table="shared")).arguments["block_table"]
    assert torch.equal(table[0], table[1]) and table[0].unique().numel() == table.shape[1]


def test_gaps_reach_the_last_slot_of_the_last_page():
    a = build(replace(SMALL, slots="gaps")).arguments
    slots = a["kv_slot_mapping"][a["boundary_token_indices"]]
    assert slots.unique().numel() == slots.numel() == 8 and slots.max() == a["kv_cache"].shape[0] * 64 - 1


def test_unequal_lengths_keep_the_total():
    lengths = inputs.request_lengths(replace(SMALL, num_reqs=5, lengths="unequal"), Draws(0, "lengths"))
    assert lengths.sum() == 1024 and len(lengths) == 5 and len(set(lengths.tolist())) > 1


def test_strided_views_hold_the_same_values():
    packed, strided = build(ALL_LAYOUTS), build(replace(ALL_LAYOUTS, memory="strided"))
    for name, tensor in strided.tensors.items():
        assert torch.equal(tensor.contiguous().view(torch.uint8), packed.arguments[name].contiguous().view(torch.uint8)), name
        assert tensor.untyped_storage().nbytes() > tensor.nbytes and tensor.storage_offset() % 2 == 1, name


def test_copy_keeps_layout_and_notices_a_change_between_the_strides():
    strided = build(replace(ALL_LAYOUTS, memory="strided"))
    copied = strided.to("cpu")
    assert copied.same_bytes(strided) is None
    assert all(copied.arguments[name].stride() == tensor.stride() for name, tensor in strided.tensors.items())
    gap = copied.arguments["positions"].untyped_storage()
    gap[0] = gap[0] ^ 1
    assert copied.same_bytes(strided) == "positions"


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        (
            "boundary_token_indices",
            (0,),
            1024,
            "boundary_token_indices: 1 of 8 out of range; first output 0: 1024, limit 1024 tokens",
        ),
        ("token_to_req", (127,), 2, "token_to_req: 1 of 8 out of range; first output 0: 2, limit 2 requests"),
        ("positions", (127,), 1 << 40, "positions: 128 of 1024 out of range"),
        (
            "block_table",
            (0, 0),
            128,
            "block_table: 8 of 1024 out of range; first output x row 0: 128, limit 128 blocks of state_cache",
        ),
        ("kv_slot_mapping", (127,), -65, "kv_slot_mapping: 1 of 8 out of range; first output 0: -2, limit 1 pages of kv_cache"),
    ],
)
def test_validator_names_the_bad_index(name, place, value, said):
    a = build(SMALL).arguments
    assert bad_indices(a) == []
    a[name][place] = value
    assert any(text.startswith(said) for text in bad_indices(a)), bad_indices(a)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"compress_ratio": 64}, "compress_ratio = 64; known: 128, 256, 512"),
        ({"distribution": "gauss"}, "distribution = 'gauss'; known: normal"),
        ({"block_size": 0}, "block_size = 0; an int of at least 1"),
        ({"num_reqs": 3}, "1024 tokens do not split evenly over 3 requests"),
    ],
)
def test_a_case_checks_itself(change, said):
    with pytest.raises(ValueError, match=said):
        replace(SMALL, **change)


def test_selection_by_pattern_size_and_setting():
    official = load_cases()
    assert [c.name for c in select_cases(official, quick=True)] == ["r1_t8192_c128", "r1_t8192_c256", "r1_t8192_c512"]
    (case,) = select_cases(official, ["r8_t65536_c2*"], settings=["block_table=permuted", "first_position=3"])
    assert (case.name, case.block_table, case.first_position) == ("r8_t65536_c256+permuted+first_position=3", "permuted", 3)
    with pytest.raises(ValueError, match="no case matches r9"):
        select_cases(official, ["r9"])
    with pytest.raises(ValueError, match="FIELD one of num_reqs"):
        parse_setting("colour=red")


def test_a_broken_case_file_is_named(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('[{"name": "x", "num_reqs": 1, "total_tokens": 128, "compress_ratio": 128, "colour": 1}]')
    with pytest.raises(ValueError, match="broken.json.*colour"):
        load_cases(path)


# --- the edge suite ------------------------------------------------------------------------------------------------------


def test_the_edge_suite_holds_every_row_of_the_contract():
    edge = load_cases("edge")
    assert len({case.name for case in edge}) == len(edge) and len(edge) >= 58
    for field, known in cases.CHOICES.items():
        assert {getattr(case, field) for case in edge} >= set(known) - {"dense", "normal"}, field
    assert {case.block_size for case in edge} >= {1, 2, 7, 8, 16, 64}
    assert {case.first_position % 8 for case in edge if case.block_size == 8} == set(range(8))
    assert {1, 1000, 10000, 70000} <= {case.total_tokens // case.compress_ratio for case in edge}
    assert any(case.kv_pages * 37376 > 1 << 31 for case in edge) and any(case.spare_blocks * 8192 >= 1 << 31 for case in edge)
    for case in edge:
        small = replace(case, interpreted=None, **(case.interpreted or {}))
        assert bad_indices(build(small).arguments) == [] and small.memory_gib == 0, case.name


def test_knife_edge_maxima_lie_on_and_beside_the_last_value_before_a_step():
    """127 * 2^k is the last bfloat16 of its scale, 127.5 * 2^k the first of the next: both are there, as is 126.5 * 2^k."""
    inputs = build(next(case for case in load_cases("edge") if case.name == "knife_edge"))
    cache = reference.c128_256_512_compress(**inputs.arguments)
    steps = (cache[0, 36864:36871].long() - 127 + 8 + torch.arange(7)).tolist()
    assert steps == [0, 0, 1, 0, 0, 1, 0]
    assert [int(abs(cache[0, 64 * g : 64 * g + 64].view(torch.int8).long()).max()) for g in range(7)] == [
        127,
        126,
        63,
        127,
        126,
        63,
        127,
    ]


def test_undefined_windows_are_the_named_ones_and_no_other():
    inputs = build(next(case for case in load_cases("edge") if case.name == "undefined_windows"))
    assert oracle.bounds(inputs, torch.arange(8)).specified.tolist() == [False] * 4 + [True] * 4


def test_a_write_beside_a_guarded_tensor_is_found_and_guards_hold_nothing_of_use():
    inputs = build(replace(SMALL, memory="guarded"))
    copied = inputs.to("cpu")
    assert copied.same_bytes(inputs) is None
    state = copied.arguments["state_cache"]
    beside = torch.empty(0).set_(state.untyped_storage())
    assert beside[GUARD - 1].isnan() and beside[-1].isnan()
    beside[-1] = 0.0
    assert copied.same_bytes(inputs) == "state_cache"


def test_negative_twins_give_the_reference_the_same_bytes():
    for field in ("negative", "negative_positions"):
        case = replace(SMALL, num_reqs=1, total_tokens=256, slots="gaps")
        twin = build(replace(case, indices=field))
        assert any(int(tensor.min()) < 0 for tensor in (twin.arguments["positions"], twin.arguments["block_table"]))
        one, two = (reference.c128_256_512_compress(**i.arguments) for i in (build(case), twin))
        kept = slice(0, 448 if field == "negative_positions" else None)  # a position before zero has an angle of its own
        assert torch.equal(one[:, kept], two[:, kept])
