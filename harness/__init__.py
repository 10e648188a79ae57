"""The harness of `c128_256_512_compress`: cases -> inputs -> run -> byte diff -> timing -> score record -> board."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "reference.py"
