"""The ledger as tables of plain strings, for the terminal, Markdown and JSON alike. A figure's unit stands in its column's head."""

from harness import board
from harness.board import Table
from harness.ledger import bills, chips, primitives
from harness.ledger import sparse_attention as sparse
from harness.ledger.floors import DEPENDENT_LOADS, RESOURCES, explain, floors, transactions

MIB, KIB = 1 << 20, 1 << 10


def ledger(cases, chip_keys, route_names, records):
    """Floors of every case on every chip; the bill of each route; floors by resource; what explains the records; the ladder."""
    chosen, routes = chips.choose(chip_keys), bills.choose_routes(route_names)
    names = {case.name for case in cases}
    shown = [r for r in records if r.case["name"].partition("+")[0] in names and (not chip_keys or r.platform in chip_keys)]
    detailed = [chip for chip in chosen if chip.rate("exponentials") and chip.value("transaction_bytes")]
    pairs = [(chip, route) for chip in detailed for route in (routes if route_names else [route_of(chip)])]
    return [
        overview(cases, chosen),
        *(route_bill(cases, route) for route in routes),
        *(by_resource(cases, chip, route) for chip, route in pairs),
        *explained(shown),
        ladder(),
        figures(chosen),
    ]


def route_of(chip):
    """The bill of the chip's own route, or of the portable one where that has none."""
    routes = bills.load_routes()
    return routes.get(chip.route, routes["portable"])


def overview(cases, chosen):
    """The binding floor, a row a case, a column a chip."""
    rows = []
    for case in cases:
        cells = []
        for chip in chosen:
            binding = floors(bills.bill(route_of(chip), case), chip).binding
            cells.append(f"{binding[1]:5.1f} {binding[0][0]}" if binding else "    -")
        tokens = bills.outputs_of(case) * case.compress_ratio
        rows.append((case.name, f"{tokens:,}", f"{tokens * bills.ROW_BYTES / MIB:,.0f}", *cells))
    kinds = {chip.figures["memory_bandwidth"].kind for chip in chosen if chip.value("memory_bandwidth")}
    return Table(
        "floor of a call in microseconds, by chip, and the resource that binds",
        ("case", "rows", "state MiB", *(f"{chip.short} us" for chip in chosen)),
        tuple(rows),
        (
            "m: memory, every compulsory byte once at the chip's bandwidth. e: exponentials. i: integer address work.",
            f"-: no bandwidth is known. Bandwidths: {', '.join(sorted(kinds))}; each figure's source stands in the last table.",
        ),
        tuple(f"{chip.short} us" for chip in chosen[:0:-1]),
    )


def route_bill(cases, route):
    """One route, a row a case: bytes by purpose, operations, launches."""
    rows = []
    for case in cases:
        bill = bills.bill(route, case)
        dims, tile_rows = route.tile(bill.num_outputs)
        a = {account.purpose: account for account in bill.accounts}
        rows.append(
            (
                case.name,
                f"{bill.num_outputs:,}",
                f"{dims} x {tile_rows}",
                f"{a['state'].read / MIB:,.0f}",
                f"{a['block table'].read / KIB:,.0f}",
                f"{a['arguments'].read / KIB:,.0f}",
                f"{(a['scratch'].read + a['scratch'].written) / KIB:,.0f}",
                f"{a['slots'].written / KIB:,.0f}",
                f"{(a['zero fill'].written + a['counters'].written) / KIB:,.0f}",
                f"{bill.exponentials / 1e6:,.1f}",
                f"{bill.lookups / 1e6:,.2f}",
                f"{bill.runs / 1e6:,.2f}",
                f"{bill.run_bytes:,}",
                f"{bill.programs:,}",
                str(len(bill.launches)),
            )
        )
    return Table(
        f"bill of route {route.name}: {route.what}",
        (
            "case", "outputs", "tile", "state MiB", "table KiB", "args KiB", "scratch KiB", "slots KiB", "fill KiB",
            "exp M", "lookups M", "pieces M", "B each", "programs", "launches",
        ),
        tuple(rows),
        (
            f"launches: {', '.join(route.launches)}. tile: dims x rows of the window at a time. M: millions.",
            "state, table, args: read, each byte once. scratch: written and read again. slots, fill (and counters): written.",
            "lookups: block table entries read, by all programs. pieces: contiguous runs of the state, and the bytes of each.",
        ),
        ("args KiB", "programs", "outputs", "tile", "fill KiB", "lookups M"),
    )  # fmt: skip


def by_resource(cases, chip, route):
    """One chip and route, a row a case: microseconds by resource, what adds to the floor and the sum where known, transactions."""
    rows, serial = [], None not in map(chip.value, ("fill_us", "load_us", "tail_us"))
    for case in cases:
        bill = bills.bill(route, case)
        found, moved = floors(bill, chip), transactions(bill, chip)
        added = ()
        if serial:
            fill = chip.value("fill_us") if "fill" in bill.launches else 0.0
            added = (fill, DEPENDENT_LOADS * chip.value("load_us"), chip.value("tail_us"))
            added += (found.binding[1] + sum(added),)
        rows.append(
            (
                case.name,
                *(_us(getattr(found, name)) for name in RESOURCES),
                found.binding[0],
                *map(_us, added),
                f"{moved[0] / 1e6:,.2f}",
                f"{moved[0] / moved[1]:,.1f}",
                "yes" if bill.bytes("state") <= (chip.value("l2_bytes") or 0) else "no",
            )
        )
    unit = int(chip.value("transaction_bytes"))
    lanes = "every lane of a row repeats it" if chip.value("lanes") else "once a row and program"
    notes = (
        f"address: {bills.LOOKUP_OPERATIONS} integer operations from a row's number to its address; {lanes}.",
        f"transactions: {unit:,} B each, of the state; of least: times the fewest that could carry it.",
        "in L2: the state fits it, so that back-to-back calls on one input may beat the memory's floor.",
    )
    if serial:
        notes += (
            f"expected: the binding floor, a fill of its own, {DEPENDENT_LOADS} dependent loads to the first row, the last tail.",
        )
    return Table(
        f"floors by resource on {chip.name}, route {route.name}",
        (
            "case", "memory us", "exp us", "address us", "binding",
            *(("fill us", "loads us", "tail us", "expected us") if serial else ()),
            "transactions M", "of least", "in L2",
        ),
        tuple(rows),
        notes,
        ("of least", "transactions M", "in L2"),
    )  # fmt: skip


def explained(records):
    """A table for the latest run of each submission, on whatever platform, whose route has a bill."""
    routes, known, tables = bills.load_routes(), chips.load(), []
    for run in board.latest(records).values():
        billed = [record for record in run if record.route in routes]
        rows = []
        for record in billed:
            bill = bills.bill(routes[record.route], bills.case_of(record), record.num_outputs)
            found = explain(record, bill, known.get(record.platform))
            if found:
                parts = (found.state, found.other, found.fill, found.loads, found.tail, found.rest)
                cells = record.case["name"], f"{found.measured:.1f}", f"{found.share:.0%}", *map(_us, parts), found.largest
                rows.append(cells)
        if rows:
            tables.append(_explained_table(run[-1], rows))
    return tables


def _explained_table(record, rows):
    notes = (
        "device: median of graph replay. state: the floor, every row once at the copy bandwidth measured beside it.",
        "other: bytes that are no state. largest: the account above the floor that explains most.",
        "rest: what no account explains; below 0 where accounts overlap the reading, or reading outruns the copy.",
    )
    if any("-" in row for row in rows):
        notes += ("-: not known of this chip (harness/ledger/chips.json), so part of the rest.",)
    return Table(
        f"measured: {record.submission} ({record.submission_sha256[:8]}), route {record.route}: {board.conditions(record)}",
        ("case", "device us", "of floor", "state us", "other us", "fill us", "loads us", "tail us", "rest us", "largest"),
        tuple(rows),
        notes,
        ("loads us",),
    )


def ladder():
    """The published steps of the Ascend route: what an output of 128 and of 512 rows costs, and what each step saved."""
    rows, before = [], None
    for step in bills.load_ladder():
        full, blocks = step.full_blocks(128)
        rows.append(
            (
                step.name,
                step.speedup,
                f"{step.bytes(128) / KIB:,.0f}",
                f"{step.copies(128):,} / {step.copies(512):,}",
                f"{step.run_bytes():,}",
                f"{step.masked_blocks(128)} / {step.masked_blocks(512)}",
                str(step.group_loops()),
                str(step.warps),
                _saved(before, step),
            )
        )
        before = step
    buffer = int(chips.load()["ascend-910b"].value("buffer_bytes")) // KIB
    (few, of_few), (many, of_many) = (step.full_blocks(C) for C in (128, 512))
    return Table(
        "published ladder of the Ascend route (910B): an output of 128 / 512 rows, block size 8",
        ("step", "x", "KiB", "copies", "B a piece", "masks", "loops", "warps", "change"),
        tuple(rows),
        (
            "x: speedup over the reference as the platform told it; the last two steps share one range. change: at C = 128.",
            f"full blocks need no mask: {few} of {of_few} at C = 128 ({few / of_few:.1%}), "
            f"{many} of {of_many} at C = 512 ({many / of_many:.1%}).",
            "copies: requests for the state, values and scores apart until all 512 dims are taken at once. loops: groups of dims.",
            f"8 rows of values and scores: {8 * 512 * 8 // KIB} KiB at D = 512; buffer: {buffer} KiB, halved by multibuffering.",
            "64 dims are assumed for the steps before D = 128, whose width is not told.",
        ),
        ("warps",),
    )


def _saved(before, step):
    if before is None:
        return ""
    pairs = (
        ("state bytes", before.bytes(128), step.bytes(128)),
        ("copies", before.copies(128), step.copies(128)),
        ("masks", before.masked_blocks(128), step.masked_blocks(128)),
        ("loops", before.group_loops(), step.group_loops()),
    )
    changed = {}
    for name, was, now in pairs:
        if was != now:
            changed.setdefault(f"{now / was - 1:+.1%}".replace(".0%", "%"), []).append(name)
    return ", ".join(f"{', '.join(names)} {change}" for change, names in changed.items()) or "no account here"


def figures(chosen):
    """Every figure of the chips, with kind and source."""
    rows = [
        (chip.key, name.replace("_", " "), f"{figure.value:,.7g}", figure.unit, figure.kind, figure.source)
        for chip in chosen
        for name, figure in chip.figures.items()
    ]
    notes = ("A figure that is not listed is not known: floors that need it stay blank.",)
    return Table("figures of the chips", ("chip", "figure", "value", "unit", "kind", "source"), tuple(rows), notes)


def _us(us):
    return "-" if us is None else f"{us:.1f}"


# --- sparse attention on Ascend 950 --------------------------------------------------------------------------------------


def sparse_attention():
    """The published cost model, figure by figure."""
    return [_roofline(), _limits(), _layouts(), _over_our_tokens(), _budgets()]


def _roofline():
    lines = [sparse.roofline(h, topk) for h, topk in sparse.ROOFLINE]
    return Table(
        "one query token on one AI core of Ascend 950: cycles of the two products against cycles of the bytes",
        ("heads", "topk", "cube cycles", "L2 cycles", "binding", "MFLOP", "us at 1.65 GHz"),
        tuple(
            (
                str(x.heads),
                f"{x.topk:,}",
                f"{x.cube:,}",
                f"{x.memory:,.0f}",
                x.binding,
                f"{sparse.attention_flops(1, x.topk, x.heads) / 1e6:,.1f}",
                f"{max(x.cube, x.memory) / sparse.FREQUENCY * 1e6:.2f}",
            )
            for x in lines
        ),
        (
            f"cube: heads x topk x 1,024 products at {sparse.CUBE_FMA:,} a cycle. "
            f"L2: {sparse.l2_bytes_per_cycle():.3f} B a cycle and core.",
            "Bound by the cube from 64 heads on. Query, output and keys are bfloat16, 512 dims; nothing of this was run.",
        ),
    )


def _limits():
    peak = sparse.peak_tflops()
    one, shipped, wider = sparse.fixpipe(64), sparse.fixpipe(64, vector_cores=2), sparse.fixpipe(96)
    before, after = sparse.softmax_window()
    rows = (
        ("L2 bandwidth", f"{sparse.l2_bytes_per_cycle():.3f}", "B/cycle/core", "5e12 B/s over 32 cores at 1.65 GHz; 94.7 in short"),
        ("peak of the cubes", f"{peak:.1f}", "TFLOP/s", "32 cores x 4,096 products x 2 x 1.65 GHz"),
        *(
            (f"reached, {what}", str(tflops), "TFLOP/s", f"{tflops / peak:.1%} of that peak; the article says {told}")
            for (what, tflops), told in zip(sparse.TFLOPS_REACHED.items(), ("95 %", "83 %"))
        ),
        (
            "accumulator reload",
            f"{sparse.reload_cycles():,}",
            "cycles",
            "identity product 64 x 64 x 512 at 256 a cycle, without HF32",
        ),
        ("softmax window", f"{before + after:,}", "cycles", f"delayed S V of block i - 1: {before}; Q K of block i + 1: {after}"),
        ("FixPipe, one vector core: least B_TOPK", f"{sparse.least_keys():.2f}", "keys", "16 B > 1,024 + 2 B"),
        ("the same at B_TOPK 64", f"{one.cube:,} / {one.fixpipe:,.0f}", "cycles", "products / carrying: it fails"),
        ("the same at B_TOPK 96", f"{wider.cube:,} / {wider.fixpipe:,.0f}", "cycles", "products / carrying: it holds"),
        (
            "FixPipe, two vector cores, B_TOPK 64",
            f"{shipped.cube:,} / {shipped.fixpipe:,.0f}",
            "cycles",
            "as shipped, if two carry 256 B a cycle: assumed here, the article gives no rate",
        ),
        ("copies in flight", str(sparse.MTE2_QUEUE), "requests", "MTE2 queue of a vector core"),
        ("tokens in flight", str(sparse.queued_tokens()), "tokens", "two a request (gather2)"),
        (
            "NZ buffer, rows 32 blocks apart",
            f"{sparse.bank_groups_hit(32)} of 8",
            "bank groups",
            "8 writes of 32 B: all on one group",
        ),
        (
            "NZ buffer, one padded row: 33 apart",
            f"{sparse.bank_groups_hit(33)} of 8",
            "bank groups",
            "8 writes of 32 B: each on its own",
        ),
    )
    return Table(
        "what decides the design",
        ("what", "figure", "unit", "from"),
        rows,
        (
            "FixPipe: the inequality rules out one vector core with 64 keys. It says nothing of the shipped design, which has two",
            "vector cores and B_TOPK 64; and a block whose rescale is skipped carries no output at all.",
        ),
    )


def _layouts():
    """What a token's layout costs the copies: data and scale apart take two requests."""
    from harness.reader.formats import FORMATS  # torch takes a second to import

    layouts = {"ours": (bills.SLOT_BYTES, 2), **{name: (f.token_bytes, f.copies) for name, f in FORMATS.items()}}
    rows = tuple(
        (
            name,
            str(token_bytes),
            str(copies),
            str(sparse.queued_tokens() // copies),
            f"{512 * token_bytes / KIB:,.0f}",
            f"{512 * copies / sparse.GATHER2_TOKENS:,.0f}",
        )
        for name, (token_bytes, copies) in layouts.items()
    )
    return Table(
        "layouts of a cached token",
        ("layout", "B a token", "copies a token", "tokens in flight", "KiB, topk 512", "requests, topk 512"),
        rows,
        (
            "ours: payload in the page's front, scales at its end, so two copies; V41 and V41_FP4: data and scale side by side.",
            "tokens in flight: of one vector core's queue of 16 requests, each bringing a piece of two tokens (gather2).",
        ),
    )


def _over_our_tokens():
    """The same query over tokens of 584 bytes, by the same model; and on the H200, whole chip a query."""
    h200, rows = chips.load()["nvidia-h200"], []
    bandwidth, tensor = h200.value("memory_bandwidth"), h200.value("tensor_flops")
    for heads, topk in sparse.ROOFLINE:
        ascend = sparse.roofline(heads, topk, token_bytes=bills.SLOT_BYTES)
        moved = heads * sparse.HEAD_DIM * 4 + topk * bills.SLOT_BYTES
        memory, products = moved / bandwidth * 1e9, sparse.attention_flops(1, topk, heads) / tensor * 1e9
        rows.append(
            (
                str(heads),
                f"{topk:,}",
                f"{moved / KIB:,.0f}",
                f"{ascend.cube:,}",
                f"{ascend.memory:,.0f}",
                ascend.binding,
                f"{memory:.0f}",
                f"{products:.0f}",
                "memory" if memory > products else "tensor cores",
            )
        )
    return Table(
        "one query token over our packed tokens of 584 bytes",
        ("heads", "topk", "KiB", "950 cube cycles", "950 L2 cycles", "binding", "H200 memory ns", "H200 tensor ns", "H200 binding"),
        tuple(rows),
        (
            "950: one AI core and its share of the L2, as above; packed tokens bring the balance from 64 heads to 32.",
            f"H200: whole chip, {bandwidth / 1e12:.3f} TB/s, {tensor / 1e12:.1f} TFLOP/s; no launches, no dependent loads in it.",
        ),
    )


def _budgets():
    rows = tuple((place, str(kib), "KiB", what, source) for place, kib, what, source in sparse.BUDGETS)
    return Table("on-chip budgets; where sources disagree, both are listed", ("place", "size", "unit", "what", "source"), rows)


# --- what Triton can say -------------------------------------------------------------------------------------------------


def primitives_table():
    """Techniques by class; every primitive looked up in the installed Triton."""
    import triton

    rows = []
    for technique in primitives.load():
        here = [f"{_short(name)}{'' if found else ' (missing)'}" for name, found in primitives.check(technique).items()]
        there = technique.triton if primitives.is_ascend() else technique.ascend
        same = technique.triton == technique.ascend
        rows.append(
            (
                technique.klass,
                technique.name,
                ", ".join(here) or "none",
                "the same" if same and there else ", ".join(map(_short, there)) or "none",
                technique.holds,
            )
        )
    mine, other = ("Ascend's Triton", "Triton") if primitives.is_ascend() else ("Triton", "Ascend's Triton 3.2.0")
    return Table(
        f"what can be said in {mine} {triton.__version__}, and in {other}",
        ("class", "technique", f"{mine} {triton.__version__}: looked up", f"{other}: as listed", "what decides it"),
        tuple(rows),
        (
            "; ".join(f"{klass}: {what}" for klass, what in primitives.CLASSES.items()) + ", in Triton itself.",
            "The test: if the primitive were swapped for a similar one, would the conclusion still hold?",
        ),
        ("what decides it",),
    )


def _short(primitive):
    return primitive.removeprefix("experimental.").removeprefix("language.").replace("gluon.language", "gluon")
