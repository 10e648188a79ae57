"""Findings from the source text alone."""

import pytest

from harness.preflight import SIGNATURE, findings

GOOD = f"def c128_256_512_compress({SIGNATURE}):\n    pass\n"


def test_ours_and_a_minimal_file_have_no_findings():
    from harness.tests.test_cli import ROOT

    assert findings((ROOT / "solution.py").read_bytes()) == findings(GOOD.encode()) == []
    assert findings((ROOT / "reference.py").read_bytes()) == []


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
