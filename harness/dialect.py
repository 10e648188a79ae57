"""Triton's language as the older Tritons of vendors have it: what a route for another chip than NVIDIA's should not use.

Vendors' Tritons stem from 3.0 to 3.3, and leave out what their chips lack. Text alone decides here, so a finding is a warning.

Looked at: each row of ROUTES whose name does not begin with "nvidia", all functions that its expression reaches by name, the
kernels (@jit) among them, and the device functions that those call. A branch is left out where its condition is known from
literals: module constants (tl.constexpr of a literal), and arguments that are literals, or known, at the call.
"""

import ast
import operator

from harness.preflight import Finding, is_kernel

RULE = "outside the NVIDIA routes: the language of the vendors' older Tritons, 3.0 to 3.2"
NVIDIA = "nvidia"  # how the names of its routes begin

# Names of triton.language that 3.0 lacks -> the first version whose triton/language/__init__.py has them (3.0, 3.1, 3.2, 3.3, 3.4,
# 3.5, 3.6 and 3.7 were compared).
SINCE = {
    **dict.fromkeys(("add", "assume", "dot_scaled"), "3.2"),
    **dict.fromkeys(("gather", "slice", "tuple"), "3.3"),
    **dict.fromkeys(
        ("bitonic_merge", "load_tensor_descriptor", "make_tensor_descriptor", "reduce_or", "store_tensor_descriptor", "topk"), "3.4"
    ),
    **dict.fromkeys(("condition", "map_elementwise"), "3.5"),
    **dict.fromkeys(("mul", "sub"), "3.6"),
    **dict.fromkeys(("squeeze", "to_tensor", "unsqueeze"), "3.7"),
}  # fmt: skip
# Names that 3.0 has, and that vendors' back ends leave out or refuse.
REFUSED = {
    **dict.fromkeys(("cat", "interleave", "join", "split"), "needs layouts that vendors' back ends lack"),
    **dict.fromkeys(("reduce", "associative_scan"), "takes a user's function"),
    **dict.fromkeys(("cumprod", "cumsum", "flip", "histogram", "sort"), "is a scan or a shuffle"),
    **dict.fromkeys(("advance", "make_block_ptr"), "is a block pointer"),
    "debug_barrier": "waits for threads, which not every chip has",
    "inline_asm_elementwise": "is one vendor's assembly",
    "range": "takes hints of one back end; range and tl.static_range do not",
}
FOREIGN = {"gl": "Gluon", "gluon": "Gluon", "libdevice": "libdevice", "tle": "Triton-TLE"}  # modules by their usual names
UNKNOWN = object()
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.RShift: operator.rshift, ast.LShift: operator.lshift, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


def findings(source):
    """Bytes of a submission -> [Finding], all warnings, in the order of the file; [] for a file without ROUTES."""
    tree = ast.parse(source)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    values = {
        target.id: node.value for node in tree.body if isinstance(node, ast.Assign) for target in node.targets if _is_name(target)
    }
    routes = values.pop("ROUTES", None)
    if not isinstance(routes, ast.Dict):
        return []
    device = {name for name, node in functions.items() if is_kernel(node)}
    text = _Text({name: functions[name] for name in device}, values)
    found = {}
    for key, expression in zip(routes.keys, routes.values):
        route = key.value if isinstance(key, ast.Constant) else "?"
        if not str(route).startswith(NVIDIA):
            for kernel in sorted(_reached(expression, functions, values, device)):
                for at, said in text.uses(kernel):
                    found.setdefault((at.lineno, at.col_offset + 1, f"{said}, in {kernel}"), []).append(route)
    return [
        Finding(*place, f"{message}, of the routes {', '.join(routes)}", RULE, "warning")
        for (*place, message), routes in sorted(found.items())
    ]


def _is_name(node):
    return isinstance(node, ast.Name)


def _reached(expression, functions, values, device):
    """Names of the kernels that an expression reaches through host functions and module values."""
    kernels, seen, ahead = set(), set(), [expression]
    while ahead:
        for name in {node.id for node in ast.walk(ahead.pop()) if isinstance(node, ast.Name)} - seen:
            seen.add(name)
            if name in device:
                kernels.add(name)
            elif name in functions or name in values:
                ahead.append(functions.get(name) or values[name])
    return kernels


class _Text:
    """The device functions of a file, read with what is known of their constants."""

    def __init__(self, functions, values):
        self.functions = functions
        self.constants = {}
        for name, node in values.items():  # in the order of the file
            value = self._value(node, self.constants)
            if value is not UNKNOWN:
                self.constants[name] = value
        self._done = {}

    def uses(self, name, known=()):
        """(node, what it uses) of a device function and those it calls; known: ((parameter, value), ...)."""
        key = name, known
        if key not in self._done:
            self._done[key] = []  # a function that calls itself
            function, found = self.functions[name], []
            parameters = {arg.arg for arg in function.args.args}
            constants = {**{k: v for k, v in self.constants.items() if k not in parameters}, **dict(known)}
            self._read(function.body, constants, found)
            self._done[key] = found
        return self._done[key]

    def _read(self, nodes, constants, found):
        for node in nodes:
            if isinstance(node, (ast.If, ast.IfExp)):
                self._read([node.test], constants, found)
                test = self._value(node.test, constants)
                for branch, holds in ((node.body, True), (node.orelse, False)):
                    if test is UNKNOWN or bool(test) == holds:
                        self._read(branch if isinstance(branch, list) else [branch], constants, found)
                continue
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                for name in (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name)):
                    constants.pop(name, None)
                if isinstance(node, ast.AnnAssign) and node.value and (value := self._value(node.value, constants)) is not UNKNOWN:
                    constants[node.target.id] = value
            if isinstance(node, ast.Call):
                self._call(node, constants, found)
            elif isinstance(node, ast.Attribute) and _is_name(node.value) and node.value.id in FOREIGN:
                found.append((node, f"{FOREIGN[node.value.id]} ({ast.unparse(node)})"))
            self._read(ast.iter_child_nodes(node), constants, found)

    def _call(self, call, constants, found):
        name = call.func.id if _is_name(call.func) else getattr(call.func, "attr", "")
        if _is_name(call.func) and name in self.functions:
            given = dict(zip((arg.arg for arg in self.functions[name].args.args), call.args))
            given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            if any(isinstance(value, ast.Tuple) for value in given.values()):
                found.append((call, f"a tuple passed to {name}: since Triton 3.3"))
            known = {parameter: self._value(value, constants) for parameter, value in given.items()}
            found += self.uses(name, tuple((parameter, value) for parameter, value in known.items() if value is not UNKNOWN))
        elif isinstance(call.func, ast.Attribute):
            shown = ast.unparse(call.func)
            if name in SINCE:
                found.append((call, f"{shown}: since Triton {SINCE[name]}"))
            elif name in REFUSED:
                found.append((call, f"{shown}: {REFUSED[name]}"))
            options = {keyword.arg for keyword in call.keywords}
            if name.startswith("atomic_"):
                found += [
                    (call, f"{shown} with {option}=: orders memory as not every back end can")
                    for option in ("sem", "scope")
                    if option in options
                ]
            if name in ("load", "store") and {"cache_modifier", "eviction_policy"} <= options:
                found.append((call, f"{shown} with a cache modifier and an eviction policy: a pair that assemblers refuse"))

    def _value(self, node, constants):
        """What a literal expression is, or UNKNOWN."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return constants.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute) and node.attr == "value":
            return self._value(node.value, constants)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tl.constexpr", "constexpr") and len(node.args) == 1:
            return self._value(node.args[0], constants)
        if isinstance(node, ast.UnaryOp):
            parts, kinds = [node.operand], [node.op]
        elif isinstance(node, ast.BinOp):
            parts, kinds = [node.left, node.right], [node.op]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            parts, kinds = [node.left, node.comparators[0]], node.ops
        elif isinstance(node, ast.BoolOp):
            known = [self._value(value, constants) for value in node.values]
            decides = isinstance(node.op, ast.Or)
            if any(value is not UNKNOWN and bool(value) == decides for value in known):
                return decides
            return UNKNOWN if UNKNOWN in known else not decides
        else:
            return UNKNOWN
        known, apply = [self._value(part, constants) for part in parts], OPERATORS.get(type(kinds[0]))
        try:
            return UNKNOWN if apply is None or UNKNOWN in known else apply(*known)
        except (TypeError, ArithmeticError, ValueError):
            return UNKNOWN
