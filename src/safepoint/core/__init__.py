"""The reference implementation: sealed records, their chain, and the ledger on top.

Read it in this order: names, errors, codec, keys, record, chain, anchor, journal, storage, ledger.
It imports nothing of the package outside this folder.
"""
