"""What makes the site out of the pages: drawings, evidence, twins for programs, the policy.

MkDocs calls it through `hooks.py`. Whatever has to hold with another generator too works on the
Markdown before the build (`fill.py`) or on the HTML after it (`finish.py`).
"""
