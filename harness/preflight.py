"""What the source text alone shows: is it UTF-8, does it parse, does it define the entry point with the fixed signature."""

import ast
from dataclasses import dataclass

ENTRY = "c128_256_512_compress"
SIGNATURE = (
    "state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight, "
    "cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1e-06"
)


@dataclass(frozen=True)
class Finding:
    """A place where the file would be refused. Lines count from 1, columns from 1."""

    line: int
    column: int
    message: str

    def __str__(self):
        return f"line {self.line}, column {self.column}: {self.message}"


def findings(source):
    """Bytes of a submission -> [Finding]; empty if the platform would take it."""
    try:
        tree = ast.parse(source.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        column = error.start - (source.rfind(b"\n", 0, error.start) + 1) + 1
        return [Finding(line, column, f"byte {source[error.start]:#04x} is not UTF-8; save the file as UTF-8")]
    except (SyntaxError, ValueError) as error:
        return [Finding(getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1, f"syntax error: {error}")]
    entries = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == ENTRY]
    if not entries:
        return [Finding(1, 1, f"no module-level function {ENTRY}; define def {ENTRY}({SIGNATURE})")]
    entry = entries[-1]
    given = ast.unparse(entry.args)
    if _names(entry.args) != _names(_expected()) or ast.unparse(_expected().defaults[0]) != _default(entry.args):
        return [Finding(entry.lineno, entry.col_offset + 1, f"{ENTRY}({given}): the signature must be ({SIGNATURE})")]
    return []


def _expected():
    return ast.parse(f"def f({SIGNATURE}): pass").body[0].args


def _names(args):
    """What the platform checks: names, order, and that none is keyword-only or variadic; annotations are free."""
    extra = [args.vararg, args.kwarg, *args.kwonlyargs, *args.posonlyargs]
    return [arg.arg for arg in args.args], [arg for arg in extra if arg]


def _default(args):
    return ast.unparse(args.defaults[0]) if len(args.defaults) == 1 else None
