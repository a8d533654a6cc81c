"""The state kinds that a :class:`~holdfast.KeyedProcess` declares as class attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten
from holdfast.state.blocks import StateVariable
from holdfast.state.handles import (
    AggregatingHandle,
    Cursor,
    Handle,
    ListHandle,
    MapHandle,
    ReducingHandle,
    ValueHandle,
)
from holdfast.state.schema import SchemaLike, parse_type
from holdfast.state.ttl import Lifetime, TtlLike, parse_ttl
from holdfast.state.ttl_handles import (
    TtlListHandle,
    TtlMapHandle,
    TtlReducingHandle,
    TtlValueHandle,
)
from holdfast.state.values import coercion, exact_class, is_mutable

T = TypeVar("T")
H = TypeVar("H", bound=Handle)

_EXPIRY = "!expiry"
"""Ends the name under which a variable's times of expiry are stored; no user's can."""


class State:
    """Base of the state kinds: a name, a stored type, and a handle for user code.

    A declaration sits on the class and is the same for all keys. When the step runs, the
    instance gets a handle of the same name, which shadows the declaration.
    """

    kind_name = "state"

    def __init__(self, stored: pa.DataType, *, renamed_from: str | None, ttl: TtlLike) -> None:
        self.stored = stored
        self.renamed_from = renamed_from
        self.ttl = parse_ttl(ttl)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        raise JobDefinitionError(
            "STATE_USED_OUTSIDE_PROCESS",
            f"state {self.name!r} of {owner.__name__} was used while no record is processed.",
            fix="use state inside process() or process_batch(); put set-up that needs no "
            "state into __init__ or open().",
        )

    def variables(self, older_names: tuple[str, ...] = ()) -> list[StateVariable]:
        """What is stored: the values, and with a TTL their times of expiry."""
        values = StateVariable(self.name, self.stored, older_names)
        if self.ttl is None:
            return [values]
        older = tuple(f"{name}{_EXPIRY}" for name in older_names)
        name = f"{self.name}{_EXPIRY}"
        return [values, StateVariable(name, self.expiry_kind, older, self.ttl.clock)]

    @property
    def expiry_kind(self) -> pa.DataType:
        """The shape of the expiries: one per value, element or entry."""
        return pa.int64()

    def handle(self, cursor: Cursor) -> Handle:
        raise NotImplementedError

    def _living(self, handle: H, cursor: Cursor) -> H:
        """Give a handle of state with a TTL its clock."""
        if self.ttl is not None:
            handle.life = Lifetime(self.ttl, cursor)  # type: ignore[attr-defined]
        return handle


class ValueState(State):
    """One value per key.

    >>> total = ValueState("bigint", default=0)

    In ``process``, ``self.total.value`` reads it (the default if the key has none),
    assignment writes it, ``self.total.clear()`` removes it.
    """

    kind_name = "value"

    def __init__(
        self,
        schema: SchemaLike,
        *,
        default: Any = None,
        ttl: TtlLike = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(parse_type(schema, "state type"), renamed_from=renamed_from, ttl=ttl)
        self.default = None if default is None else self._checked(default)

    def _checked(self, default: Any) -> Any:
        try:
            return coercion(self.stored)(default)
        except TypeError as error:
            raise JobDefinitionError(
                "INVALID_DEFAULT",
                f"the default of a ValueState does not fit its type: {error}.",
                fix=f"give a default that is a {self.stored}, or leave it out.",
            ) from error

    def handle(self, cursor: Cursor) -> ValueHandle:
        kind = ValueHandle if self.ttl is None else TtlValueHandle
        how = _scalar(self.stored)
        return self._living(kind(cursor, default=self.default, **how), cursor)


class ListState(State):
    """A list per key: ``add``, ``extend``, ``get``, ``update``, ``clear``, iteration."""

    kind_name = "list"

    def __init__(
        self, element: SchemaLike, *, ttl: TtlLike = None, renamed_from: str | None = None
    ) -> None:
        self.element = parse_type(element, "list element type")
        super().__init__(pa.list_(self.element), renamed_from=renamed_from, ttl=ttl)

    @property
    def expiry_kind(self) -> pa.DataType:
        return pa.list_(pa.int64())

    def handle(self, cursor: Cursor) -> ListHandle:
        kind = ListHandle if self.ttl is None else TtlListHandle
        return self._living(kind(cursor, coerce=coercion(self.element)), cursor)


class MapState(State):
    """A map per key, used like a dict: ``self.seen["page"] = 3``, ``in``, ``items()``."""

    kind_name = "map"

    def __init__(
        self,
        key: SchemaLike,
        value: SchemaLike,
        *,
        ttl: TtlLike = None,
        renamed_from: str | None = None,
    ) -> None:
        self.entry = parse_type(key, "map key type")
        self.item = parse_type(value, "map value type")
        if is_mutable(self.entry):
            raise JobDefinitionError(
                "INVALID_SCHEMA",
                f"{self.entry} cannot be the key type of a MapState.",
                fix="use a type without arrays and maps as the map's key.",
            )
        super().__init__(pa.map_(self.entry, self.item), renamed_from=renamed_from, ttl=ttl)

    @property
    def expiry_kind(self) -> pa.DataType:
        return pa.map_(self.entry, pa.int64())

    def handle(self, cursor: Cursor) -> MapHandle:
        kind = MapHandle if self.ttl is None else TtlMapHandle
        handle = kind(
            cursor,
            coerce_key=coercion(self.entry),
            coerce=coercion(self.item),
            mutable=is_mutable(self.item),
        )
        return self._living(handle, cursor)


class ReducingState(State):
    """One value per key, folded: ``self.longest.add(x)``, read with ``.value``."""

    kind_name = "reducing"

    def __init__(
        self,
        schema: SchemaLike,
        reduce: Callable[[Any, Any], Any],
        *,
        ttl: TtlLike = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(parse_type(schema, "state type"), renamed_from=renamed_from, ttl=ttl)
        self.reduce = _callable(reduce, "reduce")

    def handle(self, cursor: Cursor) -> ReducingHandle:
        kind = ReducingHandle if self.ttl is None else TtlReducingHandle
        handle = kind(cursor, reduce=self.reduce, **_scalar(self.stored))
        return self._living(handle, cursor)


class AggregatingState(State):
    """An accumulator per key; ``.add(x)`` folds, ``.value`` is ``result(accumulator)``.

    >>> mean = AggregatingState(
    ...     "sum double, n bigint",
    ...     create=lambda: (0.0, 0),
    ...     add=lambda acc, x: (acc.sum + x, acc.n + 1) if acc[1] else (x, 1),
    ...     result=lambda acc: acc[0] / acc[1],
    ... )
    """

    kind_name = "aggregating"

    def __init__(
        self,
        accumulator: SchemaLike,
        *,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] = lambda accumulator: accumulator,
        ttl: TtlLike = None,
        renamed_from: str | None = None,
    ) -> None:
        stored = parse_type(accumulator, "accumulator type")
        super().__init__(stored, renamed_from=renamed_from, ttl=ttl)
        self.create, self.add = _callable(create, "create"), _callable(add, "add")
        self.result = _callable(result, "result")

    def handle(self, cursor: Cursor) -> AggregatingHandle:
        kind = ValueHandle if self.ttl is None else TtlValueHandle
        stored = self._living(kind(cursor, default=None, **_scalar(self.stored)), cursor)
        return AggregatingHandle(
            cursor, create=self.create, add=self.add, result=self.result, stored=stored
        )


class BroadcastState(State):
    """A map that is the same for all keys, filled by a second stream.

    >>> limits = BroadcastState("string", "bigint")

    ``on_broadcast(self, row, ctx)`` changes it (``self.limits[row.name] = row.limit``);
    ``process`` and ``on_timer`` read it like a dict.
    """

    kind_name = "broadcast"

    def __init__(self, key: SchemaLike, value: SchemaLike) -> None:
        self.entry = parse_type(key, "map key type")
        self.item = parse_type(value, "map value type")
        super().__init__(pa.map_(self.entry, self.item), renamed_from=None, ttl=None)


def _scalar(stored: pa.DataType) -> dict[str, Any]:
    return {
        "exact": exact_class(stored) if not _needs_range_check(stored) else None,
        "coerce": coercion(stored),
        "mutable": is_mutable(stored),
    }


def _needs_range_check(stored: pa.DataType) -> bool:
    """Python ints have no range: narrow columns are checked when written. A bigint is
    checked when the batch is stored, to keep the common case fast."""
    return bool(pa.types.is_integer(stored) and stored.bit_width < 64)


def _callable(function: T, what: str) -> T:
    if callable(function):
        return function
    raise JobDefinitionError(
        "INVALID_FUNCTION",
        f"{what} is {shorten(function)}, which cannot be called.",
        fix=f"pass a function as {what}.",
    )
