"""Put a pickle into a model file: the archive that torch.save writes today, and the older file."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Final

MAGIC: Final = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL: Final = 1001
_WHEN: Final = (1980, 1, 1, 0, 0, 0)


def as_archive(
    data: bytes, storages: dict[str, bytes] | None = None, *, compression: int = zipfile.ZIP_STORED
) -> bytes:
    """Return a `.pt` archive whose `data.pkl` is the pickle, with these storages."""
    members = {
        "data.pkl": data,
        ".format_version": b"1",
        ".storage_alignment": b"64",
        "byteorder": b"little",
        **{f"data/{key}": value for key, value in (storages or {}).items()},
        "version": b"3\n",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", _WHEN), content, compression)
    return file.getvalue()


def as_legacy(data: bytes, storages: bytes = pickle.dumps([], 2)) -> bytes:
    """Return a file as torch.save wrote it before 1.6: three pickles, the pickle, the storages."""
    system = {
        "protocol_version": LEGACY_PROTOCOL,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    head = [pickle.dumps(value, 2) for value in (MAGIC, LEGACY_PROTOCOL, system)]
    return b"".join((*head, data, storages))
