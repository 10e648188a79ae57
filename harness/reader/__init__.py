"""What the packed bytes are for: decoding slots, other cache formats, and sparse attention over the cache.

formats.py           slots -> 512 values a token; codecs of the two formats that put data and scale side by side
skip_scale.py        online softmax that rescales only when it must, in PyTorch
sparse_attention.py  the Triton kernel, and the float64 truth that it is held to
attend.py            compress -> attend: the error, split by cause; the time against the bytes
"""
