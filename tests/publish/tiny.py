"""The texts of a tiny project."""

from __future__ import annotations

SEAL = """\
---
description: Here is why.
---

# The seal

Here is [why](../index.md).

```{ .toml .fix title="lint.toml" }
--8<-- "lint.toml:all"
```
"""

ADVISORIES = """\
[[advisory]]
id = "CVE-2030-12345"
group = "models"
package = "tiny"
affected = "1.0 and older"
fixed = "1.1"
date = "2030-02"
about = "A box was open."
rules = ["SP23"]
page = "security/seal.md"
source = "https://example.org/advisory"
"""

FILES = {
    "mkdocs.yml": "site_name: Tiny\nsite_description: A tiny site.\nnav:\n"
    "  - Home: index.md\n  - Security:\n      - Seal: security/seal.md\n  - Ladder: ladder.md\n",
    "src/safepoint/audit/advisories.toml": "advisory = []\n",
    "docs/index.md": "# A store\n\nSee [the seal](security/seal.md).\n",
    "docs/security/seal.md": SEAL,
    "snippets/lint.toml": "# Rules for a linter.\n# --8<-- [start:all]\na = 1\n"
    "# --8<-- [end:all]\n",
    "overrides/main.html": "",
    "publish/advisories.toml": ADVISORIES,
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- **A box.** See "
    "[the seal](docs/security/seal.md), and [how to help](CONTRIBUTING.md).\n",
}
