"""Tests of the pages: snippets, callouts, diagrams."""
