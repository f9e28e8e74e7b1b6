"""Tests of the package, the pages and the harness that runs the pages."""
