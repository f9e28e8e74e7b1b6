"""A real PostgreSQL for tests and for trying it, from a wheel and without root.

```python
from safepoint.testing.postgres import Server

with Server() as server:
    server.database("checkpoints")
    print(server.psql("select current_database()", database="checkpoints"))
    #> checkpoints
```

`safepoint try-postgres FOLDER` runs one for you, and keeps it.
"""

from __future__ import annotations

from safepoint.testing.postgres.server import Server

__all__ = ["Server"]
