"""The command `safepoint`."""
