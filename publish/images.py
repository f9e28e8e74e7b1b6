"""The room that a drawing will take, so that nothing moves when it arrives."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

_IMAGE: Final = re.compile(r'<img\b(?=[^>]*? src="(?P<src>[^"]+\.svg)")(?![^>]*? width=)')
_SIZE: Final = re.compile(r'<svg\b[^>]*? viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"')


def sized(html: str, file: Path) -> str:
    """Return the HTML of a file with the size of each drawing in it."""
    return _IMAGE.sub(partial(_with_size, file.parent), html)


def _with_size(folder: Path, image: re.Match[str]) -> str:
    drawing = folder / image["src"]
    found = _SIZE.search(drawing.read_text(encoding="utf-8")) if drawing.is_file() else None
    if found is None:
        return image[0]
    return f'{image[0]} width="{found["width"]}" height="{found["height"]}"'
