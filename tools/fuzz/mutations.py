"""Mutations of bytes, and of JSON, JSON lines, npy, npz, safetensors, tables and SQLite stores."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.storage.store.state import ROW_COLUMNS, VERSION_COLUMNS, digest_of

Rng = np.random.Generator
Mutation = Callable[[Rng, bytes], bytes]
NUMBERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30)
FLOATS = (0.0, -0.0, 1e-320, 1e-45, 1e-38, 1e-7, 0.5, 1e19, 3e38, 1e39, 1e308, -1e308)
TEXTS = ("", " ", "a", "0", "nan", "null", "..", "/dev/zero", "\0", "ä\n", "\ud800", "x" * 5000)
WORDS = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 400, b"null", b"true", b'"', b"\x00")
MAGIC = (
    b"\xff\xfe",
    b"PAR1",
    b"\x93NUMPY",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b'"',
    b"\r\n",
    b"\xff" * 8,
    b"[" * 20_000,
)


def pick(rng: Rng, choices: Any) -> Any:
    """One of the choices."""
    return choices[int(rng.integers(len(choices)))]


def _slice(rng: Rng, data: bytes, most: int = 64) -> tuple[int, int]:
    start = int(rng.integers(len(data) + 1))
    return start, min(len(data), start + int(rng.integers(1, most)))


def flip(rng: Rng, data: bytes) -> bytes:
    """Flip a few bits."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        if changed:
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def truncate(rng: Rng, data: bytes) -> bytes:
    """Keep the beginning."""
    return data[: int(rng.integers(len(data) + 1))]


def delete(rng: Rng, data: bytes) -> bytes:
    """Cut a part out."""
    start, stop = _slice(rng, data)
    return data[:start] + data[stop:]


def duplicate(rng: Rng, data: bytes) -> bytes:
    """Repeat a part, or everything."""
    start, stop = (0, len(data)) if rng.random() < 0.2 else _slice(rng, data, 512)
    return data[:stop] + data[start:stop] * int(rng.integers(1, 4)) + data[stop:]


def splice(rng: Rng, data: bytes) -> bytes:
    """Put a part in another place."""
    start, stop = _slice(rng, data, 256)
    place = int(rng.integers(len(data) + 1))
    return data[:place] + data[start:stop] + data[place:]


def insert(rng: Rng, data: bytes) -> bytes:
    """Insert random or special bytes, over others or between them."""
    added = pick(rng, MAGIC) if rng.random() < 0.5 else rng.bytes(int(rng.integers(1, 16)))
    place = int(rng.integers(len(data) + 1))
    return data[:place] + added + data[place + len(added) * int(rng.integers(2)) :]


def extreme_word(rng: Rng, data: bytes) -> bytes:
    """Replace a number in a text by an extreme one, or by something else."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", data))
    if not found:
        return insert(rng, data)
    place = pick(rng, found)
    new = pick(rng, WORDS) if rng.random() < 0.3 else str(extreme(rng)).encode("utf-8", "replace")
    return data[: place.start()] + new + data[place.end() :]


BYTES: tuple[Mutation, ...] = (flip, truncate, delete, duplicate, splice, insert, extreme_word)


def extreme(rng: Rng) -> Any:
    """A number at the end of a range."""
    return pick(rng, NUMBERS) if rng.random() < 0.5 else pick(rng, FLOATS)


def odd_value(rng: Rng) -> Any:
    """A JSON value that is seldom expected."""
    kind = int(rng.integers(7))
    if kind < 2:
        return extreme(rng)
    if kind == 6:
        nested: Any = []
        for _ in range(int(rng.integers(1, 200))):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        return nested
    several = [extreme(rng) for _ in range(int(rng.integers(0, 50)))]
    return pick(rng, (None, True, False, pick(rng, TEXTS), several, {"a": 1}, {}, []))


def change_json(rng: Rng, data: bytes) -> bytes:
    """Change, remove, repeat or swap values of a JSON document."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return flip(rng, data)
    for _ in range(int(rng.integers(1, 4))):
        document = _changed_node(rng, document)
    try:
        return json.dumps(document).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return flip(rng, data)


def _changed_node(rng: Rng, node: Any, depth: int = 0) -> Any:
    if not isinstance(node, dict | list) or not node or rng.random() < 0.08 * (depth > 0):
        return odd_value(rng) if rng.random() < 0.8 else _near(rng, node)
    keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = pick(rng, keys)
    action = rng.random()
    if action < 0.08:
        del node[key]
    elif action < 0.14:
        node[key] = node[pick(rng, keys)]
    elif action < 0.18 and isinstance(node, list):
        node.extend(node[:] * int(rng.integers(1, 20)))
    elif action < 0.21 and isinstance(node, dict):
        node[str(pick(rng, TEXTS))] = node.pop(key)
    else:
        node[key] = _changed_node(rng, node[key], depth + 1)
    return node


def _near(rng: Rng, value: Any) -> Any:
    """A value like the given one."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return pick(rng, (value + 1, -value, value * 2, value / 3, str(value), [value]))
    return value[: len(value) // 2] if isinstance(value, str) else [value]


def change_lines(rng: Rng, data: bytes) -> bytes:
    """Change, remove, repeat or swap lines."""
    lines = data.split(b"\n")
    place, other = (int(rng.integers(len(lines))) for _ in range(2))
    action = int(rng.integers(5))
    if action == 0:
        del lines[place]
    elif action == 1:
        lines[place], lines[other] = lines[other], lines[place]
    elif action == 2:
        lines.insert(place, lines[other])
    elif action == 3:
        lines[place] = json.dumps(odd_value(rng)).encode("utf-8", "surrogatepass")
    else:
        lines[place] = pick(rng, BYTES)(rng, lines[place])
    return b"\n".join(lines)


def change_cells(rng: Rng, data: bytes) -> bytes:
    """Change cells of a table in text: extreme numbers, quotes, separators, long cells."""
    lines = data.split(b"\n")
    place = int(rng.integers(len(lines)))
    separator = b"\t" if b"\t" in data else b","
    cells = lines[place].split(separator)
    new = str(pick(rng, TEXTS) if rng.random() < 0.4 else extreme(rng))
    odd = (b'"', b'"a', b"a\x00b", b"\xff\xfe", separator * 9, b"'", b"-", b"1_000", b"1e400", b"#")
    cells[int(rng.integers(len(cells)))] = (
        pick(rng, odd) if rng.random() < 0.4 else new.encode("utf-8", "surrogatepass")
    )
    lines[place] = separator.join(cells)
    return b"\n".join(lines)


def change_gzip(rng: Rng, data: bytes) -> bytes:
    """Change cells of a compressed table, which is then whole again."""
    try:
        return gzip.compress(change_cells(rng, gzip.decompress(data)))
    except (OSError, EOFError, zlib.error):
        return flip(rng, data)


def change_npy(rng: Rng, data: bytes) -> bytes:
    """Declare another shape or type, or put extreme numbers into the data of a .npy file."""
    if len(data) < 10 or not data.startswith(b"\x93NUMPY"):
        return flip(rng, data)
    size = 10 + struct.unpack("<H", data[8:10])[0]
    head, body = data[:size], data[size:]
    if rng.random() < 0.4:
        found = list(re.finditer(rb"\d+|<[a-z]\d|\|b1|False", head[10:]))
        if found:
            place = pick(rng, found)
            new = pick(rng, (b"0", b"-1", b"1", b"10**12", b"999999999999", b"True", b"|O", b"<f8"))
            text = head[10 : 10 + place.start()] + new + head[10 + place.end() :]
            head = data[:8] + struct.pack("<H", len(text)) + text
        return head + body
    width = pick(rng, (4, 8))
    number = struct.pack("<f" if width == 4 else "<d", _float_for(rng, width))
    changed = bytearray(body)
    for _ in range(int(rng.integers(1, 6))):
        if len(changed) >= width:
            place = int(rng.integers(len(changed) // width)) * width
            changed[place : place + width] = number
    return head + bytes(changed)


def _float_for(rng: Rng, width: int) -> float:
    value = float(pick(rng, (*FLOATS, float("nan"), float("inf"), -float("inf"))))
    return value if width == 8 or not 3.4e38 < abs(value) < float("inf") else 3e38


def change_safetensors(rng: Rng, data: bytes) -> bytes:
    """Change the JSON header of a safetensors file, its length, or numbers of its tensors."""
    if len(data) < 8:
        return flip(rng, data)
    size = struct.unpack("<Q", data[:8])[0]
    head, body = data[8 : 8 + size], data[8 + size :]
    action = rng.random()
    if action < 0.3:
        head = change_json(rng, head)
    elif action < 0.35:
        return struct.pack("<Q", abs(int(pick(rng, NUMBERS[:10])))) + data[8:]
    else:
        changed = bytearray(body)
        for _ in range(int(rng.integers(1, 9))):
            if len(changed) >= 4:
                place = int(rng.integers(len(changed) // 4)) * 4
                changed[place : place + 4] = struct.pack("<f", _float_for(rng, 4))
        body = bytes(changed)
    return struct.pack("<Q", len(head)) + head + body


def change_npz(rng: Rng, data: bytes) -> bytes:
    """Change, rename or remove an array of an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError):
        return flip(rng, data)
    name = pick(rng, sorted(members))
    content = members.pop(name)
    if rng.random() < 0.8:
        content = pick(rng, (change_npy, change_npy, *BYTES))(rng, content)
        members[name] = content
    elif rng.random() < 0.5:
        members[str(pick(rng, ("../x.npy", "y", "Z.npy", "a" * 300)))] = content
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return out.getvalue()


def change_store(rng: Rng, path: Path) -> str:
    """Change a cell or remove a row of a SQLite store, with checksums as an attacker gives them."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        return _change_cell(rng, database)
    finally:
        database.close()


def _change_cell(rng: Rng, database: sqlite3.Connection) -> str:
    try:
        tables = ("log", "rows", "versions", "parts", "snapshots", "cache")
        table = pick(rng, tables)
        columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
        found = database.execute(f"select {', '.join(columns)} from {table}").fetchall()
        if not found:
            return f"{table} is empty"
        row, column = pick(rng, found), pick(rng, columns)
        keys = {"versions": ("seq", "since"), "parts": ("name", "since")}.get(table, columns[:1])
        where = " and ".join(f"{key} = ?" for key in keys)
        place = [row[columns.index(key)] for key in keys]
        if rng.random() < 0.15:
            database.execute(f"delete from {table} where {where}", place)
            return f"a row of {table} removed"
        values = dict(zip(columns, row, strict=True))
        values[column] = _odd_cell(rng, values[column])
        _sign(table, values)
        changes = ", ".join(f"{name} = ?" for name in columns)
        database.execute(f"update {table} set {changes} where {where}", [*values.values(), *place])
        return f"{column} of {table}"
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        return f"no change ({type(error).__name__})"


def _odd_cell(rng: Rng, value: Any) -> Any:
    if isinstance(value, bytes) and rng.random() < 0.8:
        mutations = {b"{": change_json, b"\x93": change_npy}
        return mutations.get(value[:1], change_safetensors)(rng, value)
    if isinstance(value, str) and rng.random() < 0.4:
        return change_lines(rng, value.encode("utf-8", "replace")).decode("utf-8", "replace")
    new = pick(rng, (None, extreme(rng), extreme(rng), pick(rng, TEXTS), rng.bytes(9)))
    return float(new) if isinstance(new, int) and abs(new) >= 2**63 else new


def _sign(table: str, values: dict[str, Any]) -> None:
    if table == "parts" and isinstance(values["content"], bytes):
        values["sha256"] = hashlib.sha256(values["content"]).hexdigest()
    signed = {"rows": ROW_COLUMNS, "versions": VERSION_COLUMNS}.get(table)
    if signed is not None:
        names = [name.strip() for name in signed.split(",")]
        values["digest"] = digest_of(values["seq"], *(values[name] for name in names))


STRUCTURED: dict[str, tuple[Mutation, ...]] = {
    ".json": (change_json,),
    ".jsonl": (change_lines,),
    ".npy": (change_npy,),
    ".safetensors": (change_safetensors,),
    ".npz": (change_npz,),
    ".csv": (change_cells, change_lines),
    ".tsv": (change_cells, change_lines),
    ".gz": (change_gzip,),
    ".txt": (change_lines,),
}


def mutate(rng: Rng, path: Path) -> str:
    """Change a file; returns what was done to it."""
    if path.suffix == ".sqlite" and rng.random() < 0.7:
        return change_store(rng, path)
    known = STRUCTURED.get(path.suffix, ())
    names = []
    for _ in range(1 + int(rng.random() < 0.3)):
        mutation = pick(rng, known) if known and rng.random() < 0.7 else pick(rng, BYTES)
        path.write_bytes(mutation(rng, path.read_bytes()))
        names.append(mutation.__name__)
    return " and ".join(names)
