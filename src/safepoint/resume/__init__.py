"""Pause, approve and resume: tool sets, gates, approvals, and a workflow that uses them."""
