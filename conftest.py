"""Every block of code in docs/, README.md, CONTRIBUTING.md and src/ is a test."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# A test that names no number of examples takes it from here; `make fuzz` asks for the long one.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=100, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("fuzz", settings.get_profile("quick"), max_examples=5_000)
settings.load_profile("quick")

# A shell ignores it for what it starts in the background, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.harness.plugin", "tests.harness.postgres"]


def pytest_configure(config: pytest.Config) -> None:
    """Name a path that does not exist: with -n, pytest only says that no tests ran."""
    for path in (config.invocation_params.dir / each.partition("::")[0] for each in config.args):
        if not path.exists():
            raise pytest.UsageError(f"{path} does not exist.")
