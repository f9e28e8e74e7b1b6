"""Tests that run the real packages."""
