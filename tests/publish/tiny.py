"""The texts of a tiny project."""

from __future__ import annotations

HOME = """\
---
title: A store
description: "What: a store."
hide: [toc]
---

<div class="hero" markdown>
# A store { .big #top }

A lead.
{ .hero__lead }

See [the seal](security/seal.md#how-it-works) and `{ .kept }`, or [the code][code].
[Again](security/seal.md "The seal"){ title="x" }.
</div>

[code]: reference/index.md

<figure class="diagram" markdown>
![Two boxes,
one line.](assets/boxes.svg)
</figure>

--8<-- "boxes.svg"
"""

SEAL = """\
---
description: Here is why.
---

# The seal

<!-- rule SP12 -->
<div class="rule rule--danger" markdown>

Danger

**[SP12](../rules.md#sp12) · Sign it**

Or it moves.
</div>
<!-- /rule -->

Here is [why](../index.md). And more.

## How it works { #how-it-works }

```{ .python .unsafe .no-copy title="An edit" }
# UNSAFE: this is an attack.
edit()


edit()
```

```{ .python .refused data-raises="SealBroken: broken" }
load()
```

```{ .toml .fix title="lint.toml" }
--8<-- "lint.toml:all"
```

!!! warning "Mind this"

    Keep **it**, as [home](../index.md) says.

    ```{ .bash title="Run it" }
    make attacks
    ```

- **✓**{ .detected } refused<br>at once
- **`one`**{ #one } is here

<div class="error" id="two" markdown>
</div>
"""

REFERENCE = """\
---
description: Back home.
---

# Reference

Back [home](../index.md).

::: tiny.Box
    options:
      members: [open, wide]
"""

TINY = '''\
class Box:
    """Holds something.

    ```python
    Box()
    ```

    ```{ .text data-check="paths" }
    [ ]
    ```
    """

    def __init__(self, size: int = 1) -> None: ...

    def open(self, *, wide: bool = False) -> str:
        """Open it, at once."""

    @property
    def wide(self) -> int:
        """How much fits."""

    def close(self) -> None:
        """Close it."""
'''

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
    "  - Home: index.md\n  - Security:\n      - Seal: security/seal.md\n"
    "  - Reference:\n      - Box: reference/index.md\n",
    "docs/index.md": HOME,
    "docs/security/seal.md": SEAL,
    "docs/reference/index.md": REFERENCE,
    "docs/assets/boxes.svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 3 4.5">'
    "<title>Boxes</title><desc>A box beside\n another.</desc></svg>\n",
    "snippets/lint.toml": "# Rules for a linter.\n# --8<-- [start:all]\na = 1\n"
    "# --8<-- [end:all]\n",
    "overrides/main.html": "",
    "src/tiny.py": TINY,
    "publish/advisories.toml": ADVISORIES,
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- **A box.** See "
    "[the seal](docs/security/seal.md), and [how to help](CONTRIBUTING.md).\n\n"
    "## [1.0.0] - 2030-01-02\n\n### Fixed\n\n- The lid\n  closes. It did not.\n",
}
