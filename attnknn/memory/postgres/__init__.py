"""Entries in PostgreSQL with the extension pgvector; needs the extra `postgres`.

- `PostgresMemory` ("postgres"): the memory, made by `AttnKNNClassifier(memory="postgres://…")`

`statements.py` has all SQL, `connections.py` addresses and connections, `collection.py` the entries
of one model on the server, `binary_rows.py` the format in which entries are copied.
"""

from attnknn.memory.postgres.memory import PostgresMemory

__all__ = ["PostgresMemory"]
