"""The reference implementation: sealed records, their chain, and the ledger on top.

Read the modules in this order; each one uses only earlier ones: errors, names, files, keys, codec,
record, storage, anchor, chain, journal, ledger. Nothing here imports the rest of the package.
"""
