"""Spark DDL to Arrow, without a JVM.

Users write schemas as Spark DDL ("user string, total bigint") or as pyspark types. The
core keeps state and rows as Arrow, so it needs the Arrow form; the engine hands the same
text to Spark. The mapping follows Spark's own (`timestamp` is UTC microseconds).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn, Protocol

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten


class HasSimpleString(Protocol):
    """Any pyspark DataType; spelled as a protocol because this layer does not import it."""

    def simpleString(self) -> str: ...  # noqa: N802 - pyspark's name


SchemaLike = str | HasSimpleString

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(), "byte": pa.int8(),
    "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(),
    "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*')"
    r"|(?P<word>[\w$]+)|(?P<sign>[<>(),:]))",
    re.UNICODE,
)


def ddl_text(schema: SchemaLike, what: str = "schema") -> str:
    """The DDL text of a schema given as text or as a pyspark type."""
    if isinstance(schema, str):
        return schema
    simple = getattr(schema, "simpleString", None)
    if callable(simple):
        return str(simple())
    raise JobDefinitionError(
        "INVALID_SCHEMA",
        f"the {what} is {shorten(schema)}, which is neither DDL text nor a pyspark type.",
        fix='write it as Spark DDL, such as "user string, total bigint".',
    )


def parse_type(schema: SchemaLike, what: str = "type") -> pa.DataType:
    """Parse one type: `"bigint"`, `"array<string>"`, or columns, which mean a struct."""
    text = ddl_text(schema, what)
    if re.match(r"^\s*[\w$`]+\s*[:\s]\s*[a-zA-Z]", text) and not re.match(
        r"^\s*(interval|double\s+precision)\b", text, re.IGNORECASE
    ):
        return pa.struct(list(parse_columns(text, what)))
    parser = _Parser(text, what)
    parsed = parser.type()
    parser.end()
    return parsed


def parse_columns(schema: SchemaLike, what: str = "schema") -> pa.Schema:
    """Parse columns: `"user string, total bigint"` or `struct<user:string,…>`."""
    text = ddl_text(schema, what)
    if re.match(r"^\s*struct\s*<", text, re.IGNORECASE):
        parser = _Parser(text, what)
        parsed = parser.type()
        parser.end()
        return pa.schema(list(parsed))
    parser = _Parser(text, what)
    fields = list(parser.fields(until=None))
    parser.end()
    if not fields:
        parser.fail("it names no column")
    return pa.schema(fields)


def columns_ddl(schema: pa.Schema) -> str:
    """Arrow columns back to Spark DDL."""
    return ", ".join(f"{_quote(field.name)} {type_ddl(field.type)}" for field in schema)


_DDL_NAMES = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int",
    pa.int64(): "bigint", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz", pa.null(): "void",
    pa.duration("us"): "interval day to second",
}  # fmt: skip


def type_ddl(arrow_type: pa.DataType) -> str:
    """One Arrow type back to Spark DDL."""
    name = _DDL_NAMES.get(arrow_type)
    if name is not None:
        return name
    if pa.types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz else "timestamp_ntz"
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_map(arrow_type):
        return f"map<{type_ddl(arrow_type.key_type)},{type_ddl(arrow_type.item_type)}>"
    if pa.types.is_list(arrow_type):
        return f"array<{type_ddl(arrow_type.value_type)}>"
    if pa.types.is_struct(arrow_type):
        inner = ",".join(f"{_quote(f.name)}:{type_ddl(f.type)}" for f in arrow_type)
        return f"struct<{inner}>"
    raise JobDefinitionError(
        "UNSUPPORTED_TYPE",
        f"columns of Arrow type {arrow_type} are not supported in keyed state.",
        fix="cast the column to a type that Spark DDL can name before key_by.",
    )


def _quote(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """A recursive-descent reader of the part of Spark's DDL that names types."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._tokens = list(self._scan())
        self._at = 0

    def _scan(self) -> Iterator[tuple[str, str]]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                self.fail(f"{self._text[at:].strip()[:20]!r} is not understood")
            kind = match.lastgroup or ""
            yield kind, match[kind]
            at = match.end()

    def fail(self, why: str) -> NoReturn:
        raise JobDefinitionError(
            "INVALID_SCHEMA",
            f"the {self._what} {shorten(self._text)} cannot be read: {why}.",
            fix='write it as Spark DDL, such as "user string, total bigint".',
        )

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, *words: str) -> bool:
        if [self._peek(i).lower() for i in range(len(words))] == list(words):
            self._at += len(words)
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self.fail(f"expected {sign!r} but found {self._peek() or 'the end'!r}")

    def end(self) -> None:
        if self._peek():
            self.fail(f"{self._peek()!r} is left over at the end")

    def fields(self, until: str | None) -> Iterator[pa.Field]:
        seen: set[str] = set()
        while self._peek() and self._peek() != until:
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if name.lower() in seen:
                self.fail(f"the column {name!r} is named twice")
            seen.add(name.lower())
            self._accept(":")
            kind = self.type()
            if self._accept("not", "null"):
                pass  # Python functions cannot promise it; Spark treats it as a hint too
            if self._accept("comment"):
                self._next()
            yield pa.field(name, kind)
            if not self._accept(","):
                return

    def type(self) -> pa.DataType:  # noqa: PLR0911 - one line per kind of type
        word = self._next().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word in ("varchar", "char"):
            self._expect("(")
            self._next()
            self._expect(")")
            return pa.string()
        if word == "array":
            self._expect("<")
            inner = self.type()
            self._expect(">")
            return pa.list_(inner)
        if word == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            fields = list(self.fields(until=">"))
            self._expect(">")
            return pa.struct(fields)
        if word == "interval":
            return self._interval()
        return self.fail(f"{word or 'nothing'!r} is not a type that can be kept")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            self.fail(f"decimal({precision},{scale}) is out of range")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        word = self._next()
        if not word.isdigit():
            self.fail(f"{word!r} is not a number")
        return int(word)

    def _interval(self) -> pa.DataType:
        unit = self._next().lower()
        if unit not in ("day", "hour", "minute", "second"):
            self.fail("only day-time intervals can be kept")
        if self._accept("to"):
            self._next()
        return pa.duration("us")
