"""What nobody thought of: bytes, texts and whole stores made up by Hypothesis.

`make test` tries a few hundred of each; `make fuzz` tries for as long as you have patience.
"""
