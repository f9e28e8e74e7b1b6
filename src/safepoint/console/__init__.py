"""The operator's console: a page on the approver's own machine that shows what waits, verified.

It signs nothing by itself. What somebody approves there is signed on the terminal that started it,
with their own key, after the run and its live anchor were verified again.
"""
