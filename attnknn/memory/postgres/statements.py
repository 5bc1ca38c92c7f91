"""All SQL of the PostgreSQL memory: migrations of a schema, and the statements on one collection.

Values are always parameters. Names of schemas and tables are quoted identifiers; table names are
made of a number that the database drew.
"""

from __future__ import annotations

from typing import Any

MIGRATIONS = (
    """
    create table {schema}.collections (
        id bigint generated always as identity primary key,
        name text unique,
        version bigint not null default 1,
        metric text not null,
        width integer not null,
        center float8[],
        has_text_ids boolean not null,
        classes text[] not null default '{{}}',
        max_length float8 not null default 0,
        search_width integer,
        reason text not null default '',
        made timestamptz not null default now()
    );
    create table {schema}.edits (
        collection bigint not null references {schema}.collections on delete cascade,
        edit bigint not null,
        token text not null,
        keys bigint[] not null,
        n_added bigint not null,
        n_removed bigint not null,
        n_changed bigint not null,
        made timestamptz not null default now(),
        primary key (collection, edit)
    );
    create table {schema}.parts (
        collection bigint not null references {schema}.collections on delete cascade,
        name text not null,
        sha256 text not null,
        content bytea not null,
        primary key (collection, name)
    );
    """,
)
NUMBERS = "label, grp, sample_weight, decay, held_out"
FIELDS = f"key, coalesce(id_number, 0), {NUMBERS}"


class Statements:
    """The statements of one schema, or of one collection in it.

    Parameters
    ----------
    sql : module
        `psycopg.sql`.
    schema : str
        Name of the schema.
    collection : int
        Number of the collection; 0 is none.
    """

    def __init__(self, sql: Any, schema: str, collection: int = 0) -> None:
        self._sql = sql
        self._names = {
            "schema": sql.Identifier(schema),
            "entries": sql.Identifier(schema, f"entries_{int(collection)}"),
            "by_vector": sql.Identifier(f"entries_{int(collection)}_by_vector"),
            "by_vector_there": sql.Identifier(schema, f"entries_{int(collection)}_by_vector"),
        }

    def _made(self, text: str, **parts: Any) -> Any:
        return self._sql.SQL(text).format(**self._names, **parts)

    # A schema

    def lock_schema(self) -> Any:
        return self._made("select pg_advisory_xact_lock(hashtext(%s))")

    def has_schema(self) -> Any:
        return self._made("select to_regclass(format('%%I.migrations', %s::text)) is not null")

    def create_schema(self) -> Any:
        return self._made(
            "create schema if not exists {schema};"
            "create table if not exists {schema}.migrations (version integer primary key)"
        )

    def version_of_schema(self) -> Any:
        return self._made("select coalesce(max(version), 0) from {schema}.migrations")

    def migration(self, number: int) -> Any:
        return self._made(MIGRATIONS[number - 1])

    def note_migration(self) -> Any:
        return self._made("insert into {schema}.migrations values (%s)")

    # A collection

    def create_collection(self) -> Any:
        return self._made(
            "insert into {schema}.collections (metric, width, center, has_text_ids)"
            " values (%s, %s, %s, %s) returning id"
        )

    def create_entries(self, width: int) -> Any:
        return self._made(
            """
            create table {entries} (
                key bigint generated always as identity,
                id_number bigint,
                id_text text collate "C",
                label integer not null,
                grp bigint not null,
                sample_weight float8 not null,
                decay float8 not null,
                held_out boolean not null,
                subject text,
                payload text,
                added bigint not null,
                removed bigint,
                embedding vector({width}) not null
            ) with (fillfactor = 90)
            """,
            width=self._sql.Literal(int(width)),
        )

    def index_ids(self, *, are_texts: bool) -> Any:
        """After the first entries: sorting them once is faster than inserting one by one."""
        column = "id_text" if are_texts else "id_number"
        return self._made(
            "alter table {entries} add primary key (key);"
            f"create unique index on {{entries}} ({column}) where removed is null"
        )

    def index_vectors(self, operators: str) -> Any:
        return self._made(
            "create index {by_vector} on {entries} using hnsw (embedding {operators})",
            operators=self._sql.SQL(operators),
        )

    def drop_vector_index(self) -> Any:
        return self._made("drop index if exists {by_vector_there}")

    def drop_collection(self) -> Any:
        return self._made(
            "drop table if exists {entries}; delete from {schema}.collections where id = %s"
        )

    def drop_entries(self) -> Any:
        return self._made("drop table if exists {entries}")

    def forget_collection(self) -> Any:
        return self._made("delete from {schema}.collections where id = %s")

    def find_collection(self) -> Any:
        return self._made("select id from {schema}.collections where name = %s")

    def take_name(self) -> Any:
        return self._made(
            "update {schema}.collections set name = null where name = %s and id <> %s returning id"
        )

    def set_name(self) -> Any:
        return self._made("update {schema}.collections set name = %s where id = %s")

    def describe(self) -> Any:
        return self._made(
            "select version, metric, width, center, has_text_ids, classes, max_length,"
            " search_width, reason from {schema}.collections where id = %s"
        )

    def lock_collection(self) -> Any:
        return self._made(
            "select version, classes from {schema}.collections where id = %s for update"
        )

    def version(self) -> Any:
        return self._made("select version from {schema}.collections where id = %s")

    def set_search(self) -> Any:
        return self._made(
            "update {schema}.collections set search_width = %s, reason = %s where id = %s"
        )

    # Edits

    def insert(self) -> Any:
        return self._made(
            f"copy {{entries}} (id_number, {NUMBERS}, added, embedding) from stdin (format binary)"
        )

    def insert_texts(self) -> Any:
        return self._made(
            f"copy {{entries}} (id_number, {NUMBERS}, added, embedding, id_text, subject, payload)"
            " from stdin (format binary)"
        )

    def remove(self) -> Any:
        return self._made(
            "update {entries} set removed = %s where key = any(%s) and removed is null"
        )

    def change(self) -> Any:
        return self._made(
            "update {entries} e set label = n.label, sample_weight = n.weight, decay = n.decay,"
            " held_out = n.held_out from unnest(%s::bigint[], %s::integer[], %s::float8[],"
            " %s::float8[], %s::boolean[]) as n (key, label, weight, decay, held_out)"
            " where e.key = n.key"
        )

    def advance(self) -> Any:
        return self._made(
            "update {schema}.collections set version = %s, classes = %s,"
            " max_length = greatest(max_length, %s) where id = %s"
        )

    def log(self) -> Any:
        return self._made(
            "insert into {schema}.edits (collection, edit, token, keys, n_added, n_removed,"
            " n_changed) values (%s, %s, %s, %s, %s, %s, %s)"
        )

    def find_token(self) -> Any:
        return self._made(
            "select edit from {schema}.edits where collection = %s and edit = %s and token = %s"
        )

    def drop_parts(self) -> Any:
        return self._made("delete from {schema}.parts where collection = %s")

    def write_part(self) -> Any:
        return self._made("insert into {schema}.parts values (%s, %s, %s, %s)")

    def parts(self) -> Any:
        return self._made("select name, content, sha256 from {schema}.parts where collection = %s")

    def edits(self) -> Any:
        return self._made(
            "select edit, n_added, n_removed, n_changed, made from {schema}.edits"
            " where collection = %s order by edit"
        )

    def touched(self) -> Any:
        return self._made(
            "select distinct unnest(keys) from {schema}.edits"
            " where collection = %s and edit > %s and edit <= %s"
        )

    def new_keys(self) -> Any:
        return self._made("select key from {entries} where added = %s order by key")

    # Reading

    def columns(self) -> Any:
        """Fixed-width columns of the entries of a version; parameters: version twice."""
        return self._made(
            f"copy (select {FIELDS} from {{entries}} where added <= %s"
            " and (removed is null or removed > %s) order by key) to stdout (format binary)"
        )

    def newer_columns(self) -> Any:
        """The same for changed or new entries; parameters: version twice, keys, last key."""
        return self._made(
            f"copy (select {FIELDS} from {{entries}} where added <= %s"
            " and (removed is null or removed > %s) and (key = any(%s) or key > %s)"
            " order by key) to stdout (format binary)"
        )

    def texts(self, *, only_new: bool = False) -> Any:
        newer = " and (key = any(%s) or key > %s)" if only_new else ""
        return self._made(
            "select id_text, subject, payload from {entries} where added <= %s"
            f" and (removed is null or removed > %s){newer} order by key"
        )

    def has_texts(self) -> Any:
        return self._made(
            "select exists (select from {entries} where subject is not null),"
            " exists (select from {entries} where payload is not null)"
        )

    def vectors(self) -> Any:
        return self._made("select key, embedding from {entries} where key = any(%s)")

    def nearest(self, distance: str, *, has_hidden: bool, excludes: bool, is_range: bool) -> Any:
        """The nearest entries of each query, with the distance that the server computes.

        Parameters by name: `queries`, `version`, and `limit`, or the `radii` of a range search;
        `hidden` keys, and the `own` key and `groups` of each query where they are left out.
        """
        conditions = "e.added <= %(version)s and (e.removed is null or e.removed > %(version)s)"
        if has_hidden:
            conditions += " and e.key <> all(%(hidden)s)"
        given, named = "%(queries)b::vector[]", "v"
        if excludes:
            given += ", %(own)s::bigint[], %(groups)s::bigint[]"
            named += ", own, grp"
            conditions += " and e.key <> q.own and (q.grp = -1 or e.grp <> q.grp)"
        if is_range:
            given += ", %(radii)s::float8[]"
            named += ", radius"
            conditions += f" and e.embedding {distance} q.v <= q.radius"
        ending = "" if is_range else f" order by e.embedding {distance} q.v limit %(limit)s"
        return self._made(
            f"select q.i - 1, found.* from unnest({given}) with ordinality as q ({named}, i)"
            f" cross join lateral (select e.key, e.embedding, e.embedding {distance} q.v as far"
            f" from {{entries}} e where {conditions}{ending}) found"
        )

    def nearest_alone(self) -> Any:
        """pgvector's plain query, which the benchmark compares with."""
        return self._made("select key from {entries} order by embedding <-> %b limit %s")

    # Erasure

    def erase(self) -> Any:
        return self._made("delete from {entries} where removed is not null")

    def vacuum(self) -> Any:
        return self._made("vacuum {entries}")

    def reindex(self) -> Any:
        return self._made("reindex table {entries}")
