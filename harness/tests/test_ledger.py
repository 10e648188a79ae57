"""The ledger: published figures to the digit, bills held to what interpreted calls do, floors, and the page.

Sources of the expected figures: "article" is DeepSeek's article on its Ascend sparse attention kernel (FlashMLA repository,
September 2026), "chapter" a textbook chapter on the same kernel, "ladder" a participant's write-up of the contest's Ascend route.
"""

import dataclasses
import json
import subprocess
import sys

import pytest

import solution
from harness import ROOT, records
from harness.board import Table
from harness.cases import CaseSpec, load_cases
from harness.inputs import build
from harness.ledger import bills, chips, floors, primitives, tables
from harness.ledger import sparse_attention as sparse
from harness.ledger.meter import Meter

CASES = load_cases()


# --- the model of sparse attention on Ascend 950 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "topk", "cube", "memory"),  # article: the table of eight rows
    [
        (16, 512, 2048, 5883),
        (16, 1024, 4096, 11419),
        (32, 512, 4096, 6229),
        (32, 1024, 8192, 11765),
        (64, 512, 8192, 6921),
        (64, 1024, 16384, 12457),
        (128, 512, 16384, 8305),
        (128, 1024, 32768, 13841),
    ],
)
def test_roofline_to_the_digit(heads, topk, cube, memory):
    found = sparse.roofline(heads, topk)
    assert (found.cube, round(found.memory)) == (cube, memory)
    assert found.binding == ("cube" if heads >= 64 else "L2")  # article: compute-bound only from 64 heads on


def test_rates_and_peaks():
    assert round(sparse.l2_bytes_per_cycle(), 3) == 94.697  # article: 5e12 / 32 / 1.65e9; 94.7 in short
    assert round(sparse.peak_tflops(), 1) == 432.5  # 32 x 4,096 x 2 x 1.65e9
    assert [f"{t / sparse.peak_tflops():.1%}" for t in sparse.TFLOPS_REACHED.values()] == ["94.8%", "83.2%"]  # article: 410, 360
    assert sparse.attention_flops(3, 512, 64) == 3 * 2 * 512 * 64 * 1024  # FlashMLA: 2 s_q topk h (d_qk + d_v)


def test_what_decides_the_design():
    assert sparse.reload_cycles() == 64 * 64 * 512 // 256 == 8192  # article
    assert round(sparse.least_keys(), 2) == 73.14  # article
    fails, holds = sparse.fixpipe(64), sparse.fixpipe(96)
    assert (fails.cube, fails.fixpipe, fails.holds) == (1024, 1152, False)
    assert (holds.cube, holds.fixpipe, holds.holds) == (1536, 1216, True)
    assert sparse.fixpipe(74).holds and not sparse.fixpipe(73).holds
    assert sparse.fixpipe(64, vector_cores=2).holds, "the shipped design is not bound by it"
    assert (sparse.MTE2_QUEUE, sparse.queued_tokens()) == (16, 32)  # article: two tokens a request
    assert sparse.softmax_window() == (512, 512) and sum(sparse.softmax_window()) == 1024  # article: about 1,024 cycles
    assert (sparse.bank_groups_hit(32), sparse.bank_groups_hit(33)) == (1, 8)  # article, chapter: without and with a padded row


def test_budgets_and_disagreements():
    sizes = {(place, kib) for place, kib, *_ in sparse.BUDGETS}
    assert {("L1", 512), ("L0A", 64), ("L0B", 64), ("L0C", 128), ("L0C", 256), ("UB", 256), ("UB", 248)} <= sizes
    assert {("icache", kib) for kib in (32, 16, 8)} <= sizes  # article: cube, vector, SIMD function
    assert any(place == "L1" and "split at 256 KiB" in what for place, _, what, _ in sparse.BUDGETS)
    assert 128 * 512 * 4 == 256 << 10 and 64 * 512 * 4 == 128 << 10  # what fills either L0C


def test_data_beside_scale_halves_the_copies():
    """article: two copies a token in the older layout, one in the new ones; 584, 528 and 288 bytes."""
    layouts = {row[0]: row[1:4] for row in tables.sparse_attention()[2].rows}
    assert layouts == {"ours": ("584", "2", "16"), "V41": ("528", "1", "32"), "V41_FP4": ("288", "1", "32")}


def test_packed_tokens_move_the_balance():
    """584 bytes for 1,024: the cube binds from 32 heads on, where bfloat16 needs 64; an H200 is balanced at 128."""
    bindings = {(h, topk): sparse.roofline(h, topk, token_bytes=584).binding for h, topk in sparse.ROOFLINE}
    assert all((binding == "cube") == (heads >= 32) for (heads, _), binding in bindings.items())
    rows = {row[:2]: row for row in tables.sparse_attention()[3].rows}
    assert rows["32", "512"][3:6] == ("4,096", "3,850", "cube")
    assert rows["64", "512"][6:] == ("104", "68", "memory") and rows["128", "1,024"][6:] == ("208", "271", "tensor cores")


def test_the_page_shows_every_figure():
    shown = json.dumps([dataclasses.asdict(table) for table in tables.sparse_attention()])
    for figure in (
        "94.697", "94.7", "432.5", "94.8%", "83.2%", "73.14", "8,192", "1,024 / 1,152", "1,536 / 1,216", "1 of 8", "8 of 8",
        "13,841", "128 heads", "248", "assumed here",
    ):  # fmt: skip
        assert figure in shown, figure


# --- chips ---------------------------------------------------------------------------------------------------------------


def test_chips_have_the_published_figures():
    found = chips.load()
    ascend = found["ascend-910b"]
    assert [ascend.value(name) for name in ("cores", "clock", "memory_bandwidth")] == [48, 1.8e9, 1.6e12]
    assert "24 cube and 48 vector" in ascend.figures["cores"].source and "20 and 40" in ascend.figures["cores"].source  # B2, B3
    assert ascend.value("l2_bytes") == 192 << 20 and "halved" in ascend.figures["buffer_bytes"].source
    assert ascend.value("buffer_bytes") == 192 << 10 and ascend.value("transaction_bytes") == 16 << 10
    assert found["nvidia-h200"].figures["memory_bandwidth"].kind == "measured"
    assert found["thead-zw810e"].value("memory_bandwidth") is None
    for chip in found.values():
        assert chip.route in solution.ROUTES and chip.key == chip.key.lower()


def test_the_measured_bandwidth_is_that_of_the_records():
    bandwidths = sorted(r.copy_bandwidth for r in records.read() if r.platform == "nvidia-h200" and r.copy_bandwidth)
    assert chips.load()["nvidia-h200"].value("memory_bandwidth") == pytest.approx(bandwidths[len(bandwidths) // 2], rel=0.03)


@pytest.mark.parametrize(
    ("change", "said"), [({"unit": ""}, "a unit"), ({"kind": "heard"}, "kind must be one of"), ({"value": 0}, "a positive value")]
)
def test_a_figure_without_unit_or_source_is_refused(tmp_path, change, said):
    figure = {"value": 1e12, "unit": "B/s", "kind": "published", "source": "a datasheet", **change}
    chip = {"name": "X", "short": "X", "route": "portable", "figures": {"memory_bandwidth": figure}}
    (tmp_path / "chips.json").write_text(json.dumps({"x": chip}))
    with pytest.raises(ValueError, match=f"x: .*{said}"):
        chips.load(tmp_path / "chips.json")


# --- bills ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [128, 512])
@pytest.mark.parametrize("name", bills.load_routes())
def test_bills_are_what_an_interpreted_call_does(device, monkeypatch, name, C):
    """A failure after a change of solution.py: harness/ledger/routes.json tells of the route as it was."""
    if device.type != "cpu" or not bills.load_routes()[name].metered:
        pytest.skip("counts in Triton's CPU interpreter, which does not run here, or not this route")
    assert name in solution.ROUTES, "a bill of a route that is gone"
    case = CaseSpec("metered", 1, 512, C)
    inputs, bill = build(case), bills.bill(bills.load_routes()[name], case)
    monkeypatch.setattr(solution, "detect_platform", lambda device: (name, "forced by a test"))
    solution.forget_plans()
    with Meter(inputs.tensors) as meter:
        solution.c128_256_512_compress(**inputs.arguments)
    solution.forget_plans()
    account = {a.purpose: a for a in bill.accounts}
    assert meter.read["state_cache"] == account["state"].read == bill.runs * bill.run_bytes
    assert meter.read["block_table"] == bill.lookups * 4
    assert meter.written["other"] == sum(account[a].written for a in ("slots", "scratch", "counters")), "result, scratch, resets"
    assert meter.read["other"] == account["scratch"].read
    assert meter.read["cos_sin_cache"] == bill.num_outputs * 256
    assert (meter.exponentials, meter.atomics) == (bill.exponentials, bill.atomics)


def test_bytes_of_a_case_by_purpose():
    """131,072 rows of 4,096 bytes are 512 MiB; a slot is 584 bytes, a page 37,376."""
    bill = bills.bill(bills.load_routes()["portable"], CASES[9])
    assert CASES[9].name == "r8_t131072_c128" and bill.num_outputs == 1024
    assert bill.bytes("state") == 512 << 20 and bill.bytes("slots") == 1024 * 584 and bill.bytes("zero fill") == 16 * 37376
    assert bill.bytes("block table") == 131072 // 8 * 4 and bill.bytes("scratch") == 1024 * (2048 + 2 * 2048 + 256)
    assert bill.exponentials == (131072 + 1024) * 512 and len(bill.launches) == 3


def test_a_bill_follows_its_facts():
    """Three passes over the scores, two exponentials of each, whole blocks, the fill inside the kernel."""
    plain = bills.load_routes()["portable"]
    facts = {"score_passes": 3, "exponentials": 2, "rescales": False, "tiles": ((None, 512, 8),)}
    facts |= {"lookups": "block", "pieces": "block"}
    route = dataclasses.replace(plain, launches=("all",), fill="kernel", scratch=(0, 0), **facts)
    bill = bills.bill(route, CASES[0])
    assert bill.bytes("state") == 8192 * 2048 * 4 and bill.exponentials == 8192 * 512 * 2
    assert (bill.lookups, bill.runs, bill.run_bytes) == (1024, 1024, 32768)  # one 8-row block: 32,768 contiguous bytes
    assert bill.bytes("scratch") == 0 and bill.bytes("zero fill") == 37376 and len(bill.launches) == 1
    with pytest.raises(ValueError, match="fill = launch, launches all: they must agree"):
        dataclasses.replace(plain, launches=("all",))
    with pytest.raises(ValueError, match="lookups = 'page'; known: row, block"):
        dataclasses.replace(plain, lookups="page")
    with pytest.raises(ValueError, match="unequal requests depend on the seed"):
        bills.bill(plain, CaseSpec("unequal", 2, 512, 128, lengths="unequal"))


# --- the published ladder ------------------------------------------------------------------------------------------------


def test_ladder():
    steps = bills.load_ladder()
    assert [s.speedup for s in steps] == ["0.8", "1.15", "1.85", "1.93", "1.97", "2.02", "2.28 to 2.35", "2.28 to 2.35"]  # ladder
    assert steps[0].full_blocks(128) == (14, 16) and steps[0].full_blocks(512) == (62, 64)  # ladder: 87.5 %, 96.9 %
    gather, gathered, scanned, ends, warps, wide, wider, widest = steps
    assert gathered.bytes(128) == 3 * gather.bytes(128) == 3 * 128 * 4096
    assert gather.copies(128) == 128 * 2 * 8 and scanned.copies(128) == 16 * 2 * 8
    assert scanned.masked_blocks(128) == 8 * ends.masked_blocks(128) and scanned.masked_blocks(512) == 32 * ends.masked_blocks(512)
    assert (warps.copies(128), warps.masked_blocks(128)) == (ends.copies(128), ends.masked_blocks(128))
    assert [s.group_loops() for s in (warps, wide, wider, widest)] == [8, 4, 2, 1]
    assert (widest.copies(128), widest.run_bytes()) == (16, 32768)
    shown = json.dumps(dataclasses.asdict(tables.ladder()))
    for figure in ("87.5%", "96.9%", "14 of 16", "62 of 64", "state bytes -66.7%", "masks -87.5%", "32,768"):
        assert figure in shown, figure


# --- floors --------------------------------------------------------------------------------------------------------------


def test_floors_by_resource():
    """Memory: 512 MiB at 4.127 TB/s are 130.1 us. Exponentials: 16 a cycle of 132 multiprocessors at 1.98 GHz."""
    chip, bill = chips.load()["nvidia-h200"], bills.bill(bills.load_routes()["nvidia"], CASES[11])
    found = floors.floors(bill, chip)
    assert found.memory == pytest.approx((512 << 20) / 4.127e6, rel=0.002)
    assert found.exponentials == pytest.approx(bill.exponentials / (16 * 132 * 1980), rel=1e-9)
    assert found.binding == ("memory", found.memory)
    starved = dataclasses.replace(chip, figures={**chip.figures, "cores": chips.Figure(1, "multiprocessors", "assumed", "a test")})
    assert floors.floors(bill, starved).binding[0] == "integers"
    assert floors.floors(bill, chips.load()["thead-zw810e"]).binding is None


def test_transactions_of_narrow_pieces():
    """910B: a copy of 256 bytes takes a transfer of 16 KiB as well: 64 times the fewest."""
    found = chips.load()
    taken, least = floors.transactions(bills.bill(bills.load_routes()["portable"], CASES[0]), found["ascend-910b"])
    assert (taken, least) == (8192 * 2 * 8, (32 << 20) // 16384) and taken == 64 * least
    taken, least = floors.transactions(bills.bill(bills.load_routes()["portable"], CASES[0]), found["nvidia-h200"])
    assert taken == least == (32 << 20) // 32


def test_a_record_is_a_sum_of_accounts():
    record = next(r for r in records.read() if r.platform == "nvidia-h200" and r.route == "nvidia" and r.times("device"))
    bill = bills.bill(bills.load_routes()["nvidia-fast"], bills.case_of(record), record.num_outputs)  # as it was then
    found = floors.explain(record, bill, chips.load()["nvidia-h200"])
    parts = (found.state, found.other, found.fill, found.loads, found.tail, found.rest)
    assert sum(parts) == pytest.approx(found.measured) and found.share == pytest.approx(record.floor_us / found.measured)
    assert (found.fill, found.tail, found.loads) == (2.5, 2.0, pytest.approx(2.4))
    assert found.largest in ("other", "fill", "loads", "tail", "rest")
    unknown = floors.explain(record, bill)
    assert (unknown.loads, unknown.tail, unknown.share) == (None, None, found.share) and unknown.largest == "rest"
    assert unknown.rest == pytest.approx(found.rest + 2.5 + 2.4 + 2.0)
    silent = dataclasses.replace(record, timings_us={})
    assert floors.explain(silent, bill, chips.load()["nvidia-h200"]) is None


# --- primitives ----------------------------------------------------------------------------------------------------------


ASK = """
import json
from harness.ledger import primitives
named = [name for technique in primitives.load() for name in primitives.check(technique)]
false = ("language.no_such_thing", "experimental.nowhere.at_all", "language.load:flavour")
print(json.dumps({name: primitives.exists(name) for name in (*named, *false)}))
"""


@pytest.fixture(scope="module")
def installed():
    """{primitive: whether it exists}, asked in a process where no interpreter has replaced functions of triton.language."""
    return json.loads(subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("technique", primitives.load(), ids=lambda t: t.name)
def test_every_primitive_exists_here(technique, installed):
    named = technique.ascend if primitives.is_ascend() else technique.triton
    missing = [name for name in named if not installed[name]]
    assert not missing, f"class {technique.klass}: not in the installed Triton"


def test_a_primitive_that_does_not_exist_is_found_missing(installed):
    assert {name for name, found in installed.items() if not found} == {
        "language.no_such_thing",
        "experimental.nowhere.at_all",
        "language.load:flavour",
    }


def test_ascends_primitives_are_more_than_are_looked_up_here():
    """They exist in triton-ascend 3.2.0, where `ledger --primitives` looks them up."""
    if primitives.is_ascend():
        pytest.skip("this is Ascend's Triton: the test above looks its primitives up")
    listed = {name for technique in primitives.load() for name in technique.ascend}
    assert {f"language.{name}" for name in ("compile_hint", "multibuffer", "sync_block_set", "sync_block_wait")} <= listed
    assert not any("gluon" in name for name in listed), "Ascend's Triton has no Gluon"


def test_the_classes_hold_the_named_techniques():
    """chapter: block-wise loads, online softmax and bounded masks are said directly; what follows needs the vendor's intrinsics."""
    by_class = {klass: " ".join(t.name for t in primitives.load() if t.klass == klass) for klass in primitives.CLASSES}
    for klass, words in {
        "A": ("block-wise contiguous loads", "online softmax", "masks at the first and last block"),
        "C": ("burst count", "bank placement", "ND to NZ", "flags between cube and vector"),
    }.items():
        for word in words:
            assert word in by_class[klass], word
    with pytest.raises(ValueError, match="class A or B names its primitives"):
        primitives.Technique("nothing", "A", (), (), "")


# --- the page ------------------------------------------------------------------------------------------------------------


def test_a_state_that_fits_the_l2_is_told():
    """910B: 192 MiB hold 128 MiB of state, not 256; H200: 50 MB hold 32 MiB, not 128."""
    for key, fits in (("ascend-910b", ["yes"] * 6 + ["no"] * 6), ("nvidia-h200", ["yes"] * 3 + ["no"] * 9)):
        table = tables.by_resource(CASES, chips.load()[key], bills.load_routes()["portable"])
        assert [row[table.columns.index("in L2")] for row in table.rows] == fits


def test_the_page_is_complete_and_has_units():
    page = tables.ledger(CASES, [], [], records.read())
    titles = " | ".join(table.title for table in page)
    for wanted in (
        "floor of a call",
        "bill of route portable",
        "bill of route nvidia",
        "NVIDIA H200",
        "Ascend 910B",
        "measured: ",
        "ladder",
    ):
        assert wanted in titles, wanted
    assert all(isinstance(table, Table) and len(row) == len(table.columns) for table in page for row in table.rows)
    assert [row[0] for row in page[0].rows] == [case.name for case in CASES]
    sources = page[-1]
    assert {"measured", "published", "reported", "assumed"} == {row[4] for row in sources.rows} and all(
        row[5] for row in sources.rows
    )
    assert len(tables.ledger(CASES[:1], ["ascend-910b"], ["nvidia"], [])) == 5
    (measured,) = [
        t for t in tables.ledger(CASES[:1], ["nvidia-h200"], [], records.read()) if t.title.startswith("measured: solution")
    ][-1:]
    assert [row[0] for row in measured.rows] == [CASES[0].name]


def test_a_record_of_any_platform_is_shown():
    record = next(r for r in records.read() if r.route == "nvidia" and r.times("device"))
    (table,) = tables.explained([dataclasses.replace(record, platform="another-gpu")])
    assert table.rows[0][table.columns.index("tail us")] == "-" and table.rows[0][-1] == "rest"
    assert tables.explained([dataclasses.replace(record, route="without a bill")]) == []


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="--chip abacus: known: nvidia-h200, ascend-910b"):
        tables.ledger(CASES, ["abacus"], [], [])
    with pytest.raises(ValueError, match="--route abacus: no bill; known: portable, ascend, nvidia"):
        tables.ledger(CASES, [], ["abacus"], [])
