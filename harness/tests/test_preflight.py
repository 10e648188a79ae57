"""Findings from the source text alone."""

from pathlib import Path

import pytest

from harness.preflight import SIGNATURE, findings, refusals

GOOD = f"def c128_256_512_compress({SIGNATURE}):\n    pass\n"


BAD = Path(__file__).parent / "bad_submissions"
ROOT = Path(__file__).parents[2]


def test_ours_and_a_minimal_file_have_no_findings():
    ours = (ROOT / "solution.py").read_bytes()
    assert [finding for finding in findings(ours) if finding.level == "forbidden"] == findings(GOOD.encode()) == []
    assert refusals((ROOT / "reference.py").read_bytes()) == []


def test_the_reference_is_named_as_computing_by_pytorch():
    found = [finding.message for finding in findings((ROOT / "reference.py").read_bytes()) if finding.level == "forbidden"]
    assert "torch.softmax on the call path (compress_windows)" in found and "torch.log2 on the call path (quantise_groups)" in found


def test_annotations_are_free():
    annotated = GOOD.replace("state_cache,", "state_cache: 'Tensor',").replace("):", ") -> 'Tensor':")
    assert findings(annotated.encode()) == []


@pytest.mark.parametrize(
    ("source", "place", "said"),
    [
        (b"x = 1\ny = '\xff'\n", (2, 6), "byte 0xff is not UTF-8"),
        (b"def f(:\n", (1, 7), "syntax error"),
        (b"x = 1\n", (1, 1), "no module-level function c128_256_512_compress; define def"),
        (GOOD.replace("positions", "position").encode(), (1, 1), "the signature must be (state_cache"),
        (GOOD.replace("=1e-06", "=1e-05").encode(), (1, 1), "the signature must be"),
        (GOOD.replace("=1e-06", "").encode(), (1, 1), "the signature must be"),
        (GOOD.replace("block_size,", "*, block_size,").encode(), (1, 1), "the signature must be"),
        (GOOD.replace("=1e-06", "=1e-06, **extra").encode(), (1, 1), "the signature must be"),
        (("class A:\n    " + GOOD.replace("\n    ", "\n        ")).encode(), (1, 1), "no module-level function"),
    ],
)
def test_each_finding_has_a_place_and_a_remedy(source, place, said):
    (found,) = findings(source)
    assert ((found.line, found.column), said in found.message) == (place, True), found
    assert found.level == "forbidden" and refusals(source) == [found]


def with_lines(before="", body="pass"):
    return f"{before}\ndef c128_256_512_compress({SIGNATURE}):\n    {body}\n"


@pytest.mark.parametrize(
    ("source", "place", "level", "said"),
    [
        ("\ufeff" + GOOD, (1, 1), "warning", "byte order mark"),
        (GOOD.replace("\n", "\r\n"), (1, len(GOOD.splitlines()[0]) + 1), "warning", "carriage returns (2)"),
        (GOOD + "#" * (1 << 20), (1, 1), "warning", "bytes; more than 1,048,576"),
        (with_lines("import einops"), (1, 1), "forbidden", "imports einops"),
        (with_lines("from .kernels import f"), (1, 1), "forbidden", "imports .kernels"),
        (with_lines("from reference import *"), (1, 1), "forbidden", "imports reference"),
        (with_lines(body="import vendor_triton"), (3, 5), "warning", "imports vendor_triton"),
        (with_lines(body="x = torch.softmax(kv_cache, 0)"), (2 + 1, 9), "forbidden", "torch.softmax on the call path"),
        (with_lines(body="x = kv_cache @ kv_cache"), (3, 9), "forbidden", "a matrix product"),
        (with_lines(body="return kv_cache.sum()"), (3, 12), "warning", ".sum on the call path"),
        (with_lines("import torch\nx = torch.ones(1 << 30)"), (2, 5), "warning", "torch.ones(...) at import"),
        (with_lines("for i in range(9):\n    pass"), (1, 1), "warning", "a loop at import"),
        (with_lines("kernel[(1,)](0)"), (1, 1), "forbidden", "launches kernel[1,] at import"),
        (with_lines(body="f = open('cases')"), (3, 9), "warning", "open(...)"),
    ],
)
def test_what_deserves_a_look_is_named_with_its_rule(source, place, level, said):
    (found,) = findings(source.encode())
    assert (found.line, found.column, found.level) == (*place, level) and said in found.message and found.rule, found
    assert refusals(source.encode()) == []


def test_functions_defined_under_a_condition_are_no_work_at_import():
    assert findings(with_lines("if True:\n    def f(x):\n        for i in x:\n            kernel[(1,)](i)").encode()) == []


def test_a_launch_inside_try_is_found_through_the_functions_between():
    launch = "def launch(x):\n    kernel[(1,)](x)\n\ndef between(x):\n    launch(x)\n"
    handler = "try:\n        between(kv_cache)\n    except Exception:\n        pass"
    (found,) = findings(with_lines(launch, handler).encode())
    assert found.message == "a kernel launch (between) inside try/except" and found.level == "forbidden"
    assert findings(with_lines(launch, "try:\n        between(kv_cache)\n    finally:\n        pass").encode()) == []
    assert (
        findings(with_lines(launch, "try:\n        import x\n    except ImportError:\n        x = None").encode())[0].level
        == "warning"
    )


@pytest.mark.parametrize("name", ["falls_back", "reads_reference"])
def test_controls_that_text_alone_gives_away(name):
    """What a run shows as well: harness/tests/test_runner.py."""
    found = findings((BAD / f"{name}.py").read_bytes())
    said = {"falls_back": "a kernel launch inside try/except", "reads_reference": "exec(...)"}[name]
    assert said in [finding.message for finding in found]
