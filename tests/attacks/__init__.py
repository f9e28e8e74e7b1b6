"""The adversary against the package."""
