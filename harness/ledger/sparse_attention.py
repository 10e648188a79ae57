"""The published cost model of sparse attention on Ascend 950, reproduced: arithmetic that fits on paper, nothing run there.

Source, unless said: DeepSeek's article on its Ascend sparse attention kernel (FlashMLA repository, docs, September 2026), called
"article" below. A textbook chapter on the same kernel adds the bank and budget figures: "chapter". Where the two, or third-party
headers, disagree, both figures are kept. Cycles are of one AI core: one cube core and two vector cores.
"""

from dataclasses import dataclass

AI_CORES = 32  # article
FREQUENCY = 1.65e9  # Hz; article
L2_BANDWIDTH = 5e12  # bytes a second, whole chip; article
CUBE_FMA = 4096  # a cycle and AI core, bfloat16 and HF32; article
CUBE_FMA_FLOAT32 = 256  # the same without HF32; article
FIXPIPE_BYTES = 128  # a cycle and AI core, with one vector core; article
MTE2_QUEUE = 16  # copy requests of a vector core issued and not complete; article
GATHER2_TOKENS = 2  # tokens that one copy request brings (burst count 2, the source stride their distance); article
HEAD_DIM = 512
HEADS = 64  # an AI core takes: an MMAD of M = 64 fills the cube; article
B_TOPK = 64  # keys of a block in the shipped kernel; article
TFLOPS_REACHED = {"prefill": 410, "decoding": 360}  # article
ROOFLINE = tuple((h, topk) for h in (16, 32, 64, 128) for topk in (512, 1024))
UB_BANK_GROUPS = 8  # chapter
BLOCK_BYTES = 32  # of the NZ layout, 16 bfloat16: the unit of a bank group; chapter

# KiB on chip: (place, size, what it says, source)
BUDGETS = (
    ("L1", 512, "two banks, split at 256 KiB: every tensor is halved over both", "article"),
    ("L0A", 64, "left operand of the cube", "chapter, third-party headers"),
    ("L0B", 64, "right operand of the cube", "chapter, third-party headers"),
    ("L0C", 256, "an output of 128 heads x 512 float32 would fill it", "article, and third-party headers for 950"),
    ("L0C", 128, "an output of 64 heads x 512 float32 would fill it", "third-party headers for 910B: the sources disagree"),
    ("UB", 256, "of a vector core", "chapter"),
    ("UB", 248, "of these usable", "device file of the toolchain: the sources disagree"),
    ("icache", 32, "cube core", "article"),
    ("icache", 16, "vector core", "article"),
    ("icache", 8, "SIMD vector function", "article"),
)


def l2_bytes_per_cycle():
    """Of one AI core."""
    return L2_BANDWIDTH / AI_CORES / FREQUENCY


def peak_tflops():
    return AI_CORES * CUBE_FMA * 2 * FREQUENCY / 1e12


def matmul_cycles(m, n, k, fma=CUBE_FMA):
    """[m, k] x [k, n] on one cube core."""
    return m * n * k // fma


def attention_flops(num_queries, topk, heads, key_dim=HEAD_DIM, value_dim=HEAD_DIM):
    """As FlashMLA counts them: invalid indices are work too."""
    return 2 * num_queries * topk * heads * (key_dim + value_dim)


@dataclass(frozen=True)
class Roofline:
    """One query token on one AI core, cycles."""

    heads: int
    topk: int
    cube: int  # both products
    memory: float  # query, output and keys through the L2, bfloat16

    @property
    def binding(self):
        return "cube" if self.cube > self.memory else "L2"


def roofline(heads, topk, dim=HEAD_DIM, token_bytes=2 * HEAD_DIM):
    """The article's tokens are bfloat16; ours take 584 bytes."""
    moved = heads * dim * 2 * 2 + topk * token_bytes
    return Roofline(heads, topk, matmul_cycles(heads, topk, 2 * dim), moved / l2_bytes_per_cycle())


def reload_cycles():
    """Putting a [64, 512] accumulator back on the cube as an identity product, without HF32, since no bit may be lost."""
    return matmul_cycles(HEADS, HEAD_DIM, HEADS, CUBE_FMA_FLOAT32)


@dataclass(frozen=True)
class FixPipe:
    """A block of keys: cycles of the products against those that carry output and logits to the vector cores."""

    keys: int
    cube: int
    fixpipe: float

    @property
    def holds(self):
        """The products outlast the carrying."""
        return self.cube > self.fixpipe


def fixpipe(keys, vector_cores=1):
    """The article counts one vector core. For two it gives no rate: twice 128 bytes a cycle is an assumption made here."""
    moved = (HEADS * HEAD_DIM + HEADS * keys) * 4
    return FixPipe(keys, matmul_cycles(HEADS, keys, 2 * HEAD_DIM), moved / (FIXPIPE_BYTES * vector_cores))


def least_keys():
    """B_TOPK above which `fixpipe` holds with one vector core: 16 B > 1024 + 2 B."""
    return 1024 / (16 - 2)


def queued_tokens():
    """In flight at most from one vector core: its queue of copies, two tokens each."""
    return MTE2_QUEUE * GATHER2_TOKENS


def softmax_window():
    """Cycles that the delayed product gives the softmax of block i: S V of block i - 1, then Q K of block i + 1."""
    return matmul_cycles(HEADS, B_TOPK, HEAD_DIM), matmul_cycles(HEADS, B_TOPK, HEAD_DIM)


def bank_groups_hit(row_blocks, blocks=UB_BANK_GROUPS):
    """Bank groups that `blocks` writes of 32 bytes hit when they lie `row_blocks` x 32 bytes apart, as the columns of an NZ buffer.

    The article pads the buffer by one row, 33 for 32; the groups are the chapter's.
    """
    return len({block * row_blocks % UB_BANK_GROUPS for block in range(blocks)})
