"""What the source text alone shows: what the platform would refuse or disqualify, and what deserves a look.

Findings are `forbidden` (the file would be refused, or disqualified by the contest's rules) or `warning`. Text cannot decide
whether PyTorch does the work: `python -m harness check --prove-triton` runs it and can.
"""

import ast
import sys
from dataclasses import dataclass

ENTRY = "c128_256_512_compress"
SIGNATURE = (
    "state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight, "
    "cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1e-06"
)

# The platform's rules, as findings name them.
ENCODING = "the file is UTF-8 text"
NAME = "exact function name and parameters"
ONE_FILE = "one file: torch, triton and the standard library are there, nothing else is"
NO_FALLBACK = "no try/except or branch that falls back to PyTorch where Triton fails"
NO_COMPUTE = "the core computation is Triton's; PyTorch may allocate and view"
LOADING = "the platform imports the file once; what it does then is in nobody's control"

PACKAGES = {"torch", "triton", "torch_npu", "torch_musa", "tle", *sys.stdlib_module_names}
LARGE_BYTES = 1 << 20  # the platform publishes no limit; single-file kernels are a tenth of it
# Methods and functions of PyTorch that compute. Those that allocate, view, copy or convert are not here.
COMPUTE = frozenset((
    "abs", "add", "addmm", "amax", "amin", "argmax", "baddbmm", "bmm", "ceil", "clamp", "conv1d", "cos", "cumsum", "div",
    "einsum", "exp", "exp2", "floor", "gather", "index_add", "index_copy", "index_put", "index_put_", "index_select", "log",
    "log2", "logsumexp", "masked_fill", "matmul", "max", "maximum", "mean", "min", "minimum", "mm", "mul", "multiply", "norm",
    "pow", "rms_norm", "round", "rsqrt", "scatter", "scatter_", "scatter_add", "sin", "softmax", "sort", "sqrt", "square",
    "sub", "sum", "take", "topk", "trunc", "var", "where",
))  # fmt: skip
CALLS_AT_IMPORT = {"dataclass", "namedtuple", "constexpr", "jit", "autotune", "heuristics", "Config", "compile", "getenv", "get"}


@dataclass(frozen=True)
class Finding:
    """A place in the file. Lines and columns count from 1; `rule` is the platform's; `level` forbidden or warning."""

    line: int
    column: int
    message: str
    rule: str
    level: str = "forbidden"

    def __str__(self):
        return f"line {self.line}, column {self.column}: {self.level}: {self.message} (rule: {self.rule})"


def refusals(source):
    """Bytes of a submission -> [Finding]: why the platform would not take it; empty if it would."""
    return [finding for finding in _encoding(source) if finding.level == "forbidden"] or _entry(source)


def routes(source):
    """Bytes of a submission -> names of the rows of its ROUTES, in order, as they stand in the text; [] without any."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "ROUTES" for target in node.targets):
            return (
                [key.value for key in node.value.keys if isinstance(key, ast.Constant)] if isinstance(node.value, ast.Dict) else []
            )
    return []


def findings(source):
    """Bytes of a submission -> [Finding] of both levels, in the order of the file."""
    found = refusals(source)
    if found:
        return found
    found = _encoding(source)
    if len(source) > LARGE_BYTES:
        found.append(Finding(1, 1, f"{len(source):,} bytes; more than {LARGE_BYTES:,}", ONE_FILE, "warning"))
    tree = ast.parse(source)
    for look in (_imports, _try_blocks, _compute_calls, _work_at_import):
        found += look(tree)
    return sorted(found, key=lambda finding: (finding.line, finding.column))


def _encoding(source):
    try:
        source.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(source, error.start)
        message = f"byte {source[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        return [Finding(line, column, message, ENCODING)]
    found = []
    if source.startswith(b"\xef\xbb\xbf"):
        found.append(Finding(1, 1, "a byte order mark (EF BB BF); save the file as UTF-8 without BOM", ENCODING, "warning"))
    at = source.find(b"\r")
    if at >= 0:
        count = source.count(b"\r")
        message = f"carriage returns ({count}); save the file with \\n line ends"
        found.append(Finding(*_place(source, at), message, ENCODING, "warning"))
    return found


def _place(source, offset):
    """Line and column, from 1, of a byte."""
    return source.count(b"\n", 0, offset) + 1, offset - (source.rfind(b"\n", 0, offset) + 1) + 1


def _entry(source):
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        place = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        return [Finding(*place, f"syntax error: {error}", NAME)]
    entries = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == ENTRY]
    if not entries:
        return [Finding(1, 1, f"no module-level function {ENTRY}; define def {ENTRY}({SIGNATURE})", NAME)]
    entry = entries[-1]
    given = ast.unparse(entry.args)
    if _names(entry.args) != _names(_expected()) or ast.unparse(_expected().defaults[0]) != _default(entry.args):
        message = f"{ENTRY}({given}): the signature must be ({SIGNATURE})"
        return [Finding(entry.lineno, entry.col_offset + 1, message, NAME)]
    return []


def _expected():
    return ast.parse(f"def f({SIGNATURE}): pass").body[0].args


def _names(args):
    """What the platform checks: names, order, and that none is keyword-only or variadic; annotations are free."""
    extra = [args.vararg, args.kwarg, *args.kwonlyargs, *args.posonlyargs]
    return [arg.arg for arg in args.args], [arg for arg in extra if arg]


def _default(args):
    return ast.unparse(args.defaults[0]) if len(args.defaults) == 1 else None


# --- what deserves a look ------------------------------------------------------------------------------------------------


def _at(node, message, rule, level="forbidden"):
    return Finding(node.lineno, node.col_offset + 1, message, rule, level)


def _imports(tree):
    """Modules that the platform does not have. A vendor's own may be there on its chip: inside try or a function, a warning."""
    found, nested = [], {id(node) for outer in ast.walk(tree) if isinstance(outer, NESTING) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "."] if not node.level else ["." * node.level + (node.module or "")]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top == "reference":
                found.append(_at(node, "imports reference: the answer itself, and not there on the platform", NO_COMPUTE))
            elif top not in PACKAGES:
                level = "warning" if id(node) in nested else "forbidden"
                found.append(_at(node, f"imports {name}: not torch, triton or the standard library", ONE_FILE, level))
    return found


NESTING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Try, ast.If)


def _launches(node):
    """Kernel launches within a node: kernel[grid](...), and .run(...) with a grid's three numbers and more."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            runs = isinstance(inner.func, ast.Attribute) and inner.func.attr == "run" and len(inner.args) > 3
            if runs or isinstance(inner.func, ast.Subscript):
                yield inner


def _try_blocks(tree):
    """A launch inside try with an except: whatever the handler does, it goes on where Triton failed. Bare `finally` is free."""
    found = []
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    launching = _callers({name for name, node in functions.items() if any(_launches(node))}, functions)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try) or not node.handlers:
            continue
        body = ast.Module(body=node.body, type_ignores=[])
        called = {_called(call) for call in ast.walk(body) if isinstance(call, ast.Call)} & launching
        if any(_launches(body)) or called:
            found.append(_at(node, f"a kernel launch{_named(called)} inside try/except", NO_FALLBACK))
    return found


def _named(names):
    return f" ({', '.join(sorted(names))})" if names else ""


def _called(call):
    """Name of what is called, without what it hangs on."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _callers(names, functions):
    """`names` and all functions that reach one of them."""
    reached = set(names)
    while True:
        more = {
            name for name, node in functions.items()
            if name not in reached and any(_called(call) in reached for call in ast.walk(node) if isinstance(call, ast.Call))
        }  # fmt: skip
        if not more:
            return reached
        reached |= more


def _compute_calls(tree):
    """PyTorch operators that compute, in functions that the entry point reaches; kernels (@triton.jit) are left out."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not is_kernel(node)}
    tables = {
        name.id: node
        for node in tree.body if isinstance(node, ast.Assign)
        for name in node.targets if isinstance(name, ast.Name)
    }  # fmt: skip
    reached, seen, ahead = set(), set(), [ENTRY]
    while ahead:
        name = ahead.pop()
        node = functions.get(name) or tables.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        reached |= {name} & functions.keys()
        ahead += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        ahead += [inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)]
    found = []
    for name in sorted(reached):
        for call in ast.walk(functions[name]):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in COMPUTE:
                continue
            text = ast.unparse(call.func)
            if text.startswith(("torch.", "F.", "torch_npu.")):
                found.append(_at(call, f"{text} on the call path ({name})", NO_COMPUTE))
            elif not text.startswith(("math.", "np.", "numpy.", "os.", "tl.", "statistics.")):
                found.append(
                    _at(call, f".{call.func.attr} on the call path ({name}): PyTorch's, if on a tensor", NO_COMPUTE, "warning")
                )
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                found.append(_at(node, f"a matrix product on the call path ({name})", NO_COMPUTE))
    return found


def is_kernel(node):
    """Whether a function definition is a kernel or a device function: decorated with a jit."""
    return any(".jit" in ast.unparse(decorator) or ast.unparse(decorator) == "jit" for decorator in node.decorator_list)


def _run_at_import(node):
    """What lies below a node, without the bodies of functions and classes and without imports."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Import, ast.ImportFrom)):
            yield child
            yield from _run_at_import(child)


def _work_at_import(tree):
    """Calls and launches that run when the file is imported, other than those that define things; and open()."""
    found = []
    for node in _run_at_import(tree):
        if isinstance(node, (ast.For, ast.While)):
            found.append(_at(node, "a loop at import", LOADING, "warning"))
        elif isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if any(launch is node for launch in _launches(node)):
                found.append(_at(node, f"launches {text} at import", LOADING))
            elif text.startswith("torch.") and "device" not in text and text.rpartition(".")[2] not in CALLS_AT_IMPORT:
                found.append(_at(node, f"{text}(...) at import", LOADING, "warning"))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("open", "exec", "eval", "__import__"):
            found.append(_at(call, f"{ast.unparse(call.func)}(...)", ONE_FILE, "warning"))
    return found
