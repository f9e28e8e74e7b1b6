"""The regression test of safe loading, and tests of that test."""
