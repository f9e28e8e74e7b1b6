"""Measurements as ratios against a peer, side by side in one run."""
