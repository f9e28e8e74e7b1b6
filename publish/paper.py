"""What every drawing is drawn on: its width, its colours, its letters."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 360
# Each colour is the page's, and outside of a page one that can be read on light and dark.
QUIET: Final = "var(--sp-ink-2, currentColor)"
FAINT: Final = "var(--sp-line, #8a9499)"
ACCENT: Final = "var(--sp-accent, #2a8094)"
WARNING: Final = "var(--sp-warning, #94690f)"
FONTS: Final = (
    "var(--sp-sans, -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Noto Sans',"
    " 'Liberation Sans', Arial, sans-serif)"
)
STYLE: Final = """  <style>
    /* As an image of its own it has no page to take its colours from. */
    svg:root { color: #1d2428; --sp-ink-2: #566065; --sp-line: #cdc8bb; --sp-accent: #0b5b70; --sp-warning: #7a5100; }
    @media (prefers-color-scheme: dark) {
      svg:root { color: #dde3e3; --sp-ink-2: #a4b0b4; --sp-line: #46535a; --sp-accent: #82c9d9; --sp-warning: #e0b968; }
    }
  </style>"""  # noqa: E501
