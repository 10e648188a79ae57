"""Why a kernel takes the time it takes: what it moves and computes, and how long each resource of a chip needs for it.

chips.json, chips.py       what a chip has, each figure with its source
routes.json, bills.py      what a route moves and computes on a case; the steps of the published Ascend ladder
floors.py                  bill x chip -> the floor by each resource, the binding one; what explains a measured time
sparse_attention.py        the published cost model of sparse attention on Ascend 950
primitives.json, primitives.py   what Triton can say of each technique, checked against the installed Triton
meter.py                   counts an interpreted call: what the bills are held to
tables.py                  all of it as tables
"""
