"""The reference implementation: sealed records, their chain, and the ledger on top.

Read it in this order, each stands on those before it: errors, names, files, keys, codec, record,
storage, anchor, chain, journal, ledger.
It imports nothing of the package outside this folder.
"""
