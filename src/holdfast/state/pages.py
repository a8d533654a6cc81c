"""Maps and lists of one key that may be far larger than what a record touches of them.

Such a value is cut into pages, one entry each, and a small head entry. The head comes with the
key when a batch begins; pages are read when they are needed, and written if they changed. The
head itself holds the page of a small map, and the elements of a list that do not fill a page
yet. So small values cost no further reads, and appending never reads anything.

A map's entries are spread over its pages by linear hashing: whenever the pages are full on
average, one of them is split in two. So no insertion ever reads more than two pages, however
large the map is. Pages are never merged; a map that has become empty loses all of them.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.codec import decoder, dump, encoder, load
from holdfast.state.entries import EntryStore, Writes, page_keys, page_prefix
from holdfast.state.key_groups import canonical_bytes
from holdfast.state.values import coercion, exact_class, key_part

PAGE_ENTRIES = 64
"""Entries of a map's page, on average."""
CHUNK_ELEMENTS = 128
"""Elements of a list's page."""


class PagesHead(NamedTuple):
    """What is stored of one paged value."""

    length: int = 0
    pages: int = 0
    """How many pages there are outside the head."""
    size: int = 0
    """Bytes of those pages' entries."""
    home: str | None = None
    """The name under which those pages are stored, if the variable has another one now:
    renaming a variable does not move its pages."""
    inline: bytes | None = None
    """The page of a map that has only one; the last elements of a list."""


class Flushed(NamedTuple):
    """The new head, None if nothing is left; and by how many bytes the pages have grown."""

    head: bytes | None
    growth: int


class PagedValue(ABC):
    """What maps and lists have in common: where their pages are, and how they are written."""

    __slots__ = ("_count", "_home", "_kept", "_key", "_raw", "_store", "_stored", "_variable")

    def __init__(
        self,
        variable: PagedVariable,
        store: EntryStore,
        key: bytes,
        head: bytes | None,
        found_under: str,
    ) -> None:
        self._variable, self._store, self._key = variable, store, key
        self._stored = PagesHead() if head is None else PagesHead(*load(head))
        self._home = self._stored.home or found_under
        self._count = self._stored.length
        self._kept = True
        """Whether what is stored is still a part of this value."""
        self._raw: dict[int, bytes | None] = {}
        """Pages as they were read."""

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def replace(self, content: Any) -> None:
        """Let this value be `content` from now on. Reads nothing."""

    @abstractmethod
    def flush(self, writes: Writes) -> Flushed:
        """Say what must be written. This is the end of the object: a batch has one flush."""

    def _fetch(self, numbers: Sequence[int]) -> list[bytes | None]:
        found = self._store.get_many(page_keys(page_prefix(self._home, self._key), numbers))
        self._raw.update(zip(numbers, found, strict=True))
        return found

    def _write(
        self,
        writes: Writes,
        changed: Iterable[tuple[int, bytes | None]],
        pages: int,
        inline: bytes | None,
    ) -> Flushed:
        before = self._stored
        stays = self._kept and before.pages > 0
        if before.pages and not stays:
            old = page_prefix(self._home, self._key)
            writes.remove(*page_keys(old, range(before.pages)))
        home, size = (self._home, before.size) if stays else (self._variable.name, 0)
        prefix = page_prefix(home, self._key)
        for number, page in changed:
            (entry,) = page_keys(prefix, (number,))
            known = self._raw.get(number) if stays else None
            if page == known:
                continue
            size -= 0 if known is None else len(entry) + len(known)
            if page is None:
                writes.remove(entry)
            else:
                writes.put(entry, page)
                size += len(entry) + len(page)
        if not self._count:
            return Flushed(None, -before.size)
        moved = home if home != self._variable.name else None
        head = dump(PagesHead(self._count, pages, size, moved, inline))
        return Flushed(head, size - before.size)

    def _damaged(self, what: str) -> CorruptionError:
        return CorruptionError(
            "STATE_PAGE_MISSING",
            f"state {self._variable.name!r}: {what}.",
            fix="restore the checkpoint directory from a backup; this one is damaged.",
        )


class LazyMap(PagedValue, MutableMapping[Any, Any]):
    """A dict of which only the pages in use are in memory. Its entries have no order."""

    __slots__ = ("_buckets", "_dirty", "_pages")
    _variable: PagedMap

    def __init__(
        self,
        variable: PagedMap,
        store: EntryStore,
        key: bytes,
        head: bytes | None = None,
        found_under: str = "",
    ) -> None:
        super().__init__(variable, store, key, head, found_under or variable.name)
        self._buckets = max(1, self._stored.pages)
        self._pages: dict[int, dict[Any, Any]] = {}
        self._dirty: set[int] = set()

    def __getitem__(self, entry: Any) -> Any:
        exact, page = self._find(entry)
        return page[exact]

    def __contains__(self, entry: object) -> bool:
        try:
            exact, page = self._find(entry)
        except KeyError:
            return False
        return exact in page

    def __setitem__(self, entry: Any, value: Any) -> None:
        exact = self._variable.exact(entry)
        number = self._bucket_of(exact)
        page = self._page(number)
        self._dirty.add(number)
        if exact not in page:
            self._count += 1
        page[exact] = value
        if self._count > self._buckets * PAGE_ENTRIES:
            self._split()

    def __delitem__(self, entry: Any) -> None:
        exact, page = self._find(entry)
        del page[exact]
        self._dirty.add(self._bucket_of(exact))
        self._count -= 1
        if not self._count:
            self.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole())

    def items(self) -> ItemsView[Any, Any]:
        """All entries as they are now: unlike a dict's, the view does not follow changes."""
        return self._whole().items()

    def values(self) -> ValuesView[Any]:
        """All values as they are now: unlike a dict's, the view does not follow changes."""
        return self._whole().values()

    def fetch(self, entries: Iterable[Any]) -> None:
        """Read the pages of many entries at once, if they are going to be needed."""
        self._load({self._bucket_of(self._variable.exact(entry)) for entry in entries})

    def clear(self) -> None:
        self.replace({})

    def replace(self, content: Mapping[Any, Any]) -> None:
        exact = {self._variable.exact(entry): value for entry, value in content.items()}
        self._kept, self._count = False, len(exact)
        self._buckets = max(1, -(-len(exact) // PAGE_ENTRIES))
        self._pages = {number: {} for number in range(self._buckets)}
        self._dirty = set(self._pages)
        for entry, value in exact.items():
            self._pages[self._bucket_of(entry)][entry] = value

    def flush(self, writes: Writes) -> Flushed:
        encode = self._variable.encode
        if self._buckets == 1:
            inline = encode(self._pages[0]) if self._dirty else self._stored.inline
            return self._write(writes, (), 0, inline)
        # Pages of a map that had only the one in its head are all in memory, and all new.
        changed = self._dirty if self._stored.pages else range(self._buckets)
        encoded = (
            (number, encode(page) if page else None)
            for number, page in ((number, self._pages[number]) for number in sorted(changed))
        )
        return self._write(writes, encoded, self._buckets, None)

    def _bucket_of(self, exact: Any) -> int:
        """Linear hashing: as many bits of the hash as number the buckets, or one fewer where
        that bucket has not been split off yet."""
        mask = (1 << (self._buckets - 1).bit_length()) - 1
        bucket = crc32(canonical_bytes(exact)) & mask
        return bucket if bucket < self._buckets else bucket & mask >> 1

    def _split(self) -> None:
        new = self._buckets
        source = new - (1 << new.bit_length() - 1)
        page = self._page(source)
        self._buckets += 1
        moved = {entry: found for entry, found in page.items() if self._bucket_of(entry) == new}
        for entry in moved:
            del page[entry]
        self._pages[new] = moved
        self._dirty |= {source, new}

    def _find(self, entry: Any) -> tuple[Any, dict[Any, Any]]:
        """The entry's exact form and its page. A dict finds what is equal, whatever its class
        (1 and 1.0); the hash of the bytes does not, so the class is put right first."""
        try:
            exact = self._variable.exact(entry)
            same = exact is entry or exact == entry or exact != exact  # noqa: PLR0124 - NaN
            return exact, self._page(self._bucket_of(exact)) if same else {}
        except (TypeError, struct.error):
            raise KeyError(entry) from None

    def _page(self, number: int) -> dict[Any, Any]:
        if number not in self._pages:
            self._load((number,))
        return self._pages[number]

    def _load(self, numbers: Iterable[int]) -> None:
        missing = [number for number in numbers if number not in self._pages]
        if not missing:
            return
        # What is not in memory is stored, or it is the only page there is.
        found = self._fetch(missing) if self._stored.pages else [self._stored.inline]
        decode = self._variable.decode_page
        for number, raw in zip(missing, found, strict=True):
            self._pages[number] = {} if raw is None else decode(raw)

    def _whole(self) -> dict[Any, Any]:
        self._load(range(self._buckets))
        found = sum(map(len, self._pages.values()))
        if found != self._count:
            raise self._damaged(f"a map of {self._count} entries has {found} in its pages")
        whole: dict[Any, Any] = {}
        for page in self._pages.values():
            whole.update(page)
        return whole

    def __repr__(self) -> str:
        return f"<map of {self._count} entries in {self._buckets} pages>"


class LazyList(PagedValue, Sequence[Any]):
    """A list to which elements are appended without reading it."""

    __slots__ = ("_chunks", "_full", "_new", "_tail")

    def __init__(
        self,
        variable: PagedVariable,
        store: EntryStore,
        key: bytes,
        head: bytes | None = None,
        found_under: str = "",
    ) -> None:
        super().__init__(variable, store, key, head, found_under or variable.name)
        self._full = self._stored.pages
        self._chunks: dict[int, list[Any]] = {}
        self._new: list[int] = []
        self._tail: list[Any] | None = None

    def append(self, element: Any) -> None:
        self.extend((element,))

    def extend(self, elements: Iterable[Any]) -> None:
        tail = self._last_elements()
        before = len(tail)
        tail.extend(elements)
        self._count += len(tail) - before
        whole = len(tail) - len(tail) % CHUNK_ELEMENTS
        for at in range(0, whole, CHUNK_ELEMENTS):
            self._chunks[self._full] = tail[at : at + CHUNK_ELEMENTS]
            self._new.append(self._full)
            self._full += 1
        del tail[:whole]

    def __iter__(self) -> Iterator[Any]:
        self._load(range(self._full))
        chunks = [self._chunks[number] for number in range(self._full)]
        return chain.from_iterable([*chunks, self._last_elements()])

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return list(self)[at]
        number, place = divmod(range(self._count)[at], CHUNK_ELEMENTS)
        if number == self._full:
            return self._last_elements()[place]
        self._load((number,))
        return self._chunks[number][place]

    def clear(self) -> None:
        self.replace(())

    def replace(self, content: Iterable[Any]) -> None:
        self._kept, self._count, self._full = False, 0, 0
        self._chunks, self._new, self._tail = {}, [], []
        self.extend(content)

    def flush(self, writes: Writes) -> Flushed:
        encode = self._variable.encode
        if self._tail is None:
            inline = self._stored.inline
        else:
            inline = encode(self._tail) if self._tail else None
        new = ((number, encode(self._chunks[number])) for number in self._new)
        return self._write(writes, new, self._full, inline)

    def _last_elements(self) -> list[Any]:
        if self._tail is None:
            raw = self._stored.inline
            self._tail = [] if raw is None else self._variable.decode(raw)
        return self._tail

    def _load(self, numbers: Iterable[int]) -> None:
        missing = [number for number in numbers if number not in self._chunks]
        if not missing:
            return
        for number, raw in zip(missing, self._fetch(missing), strict=True):
            if raw is None:
                raise self._damaged(f"page {number} of a list of {self._count} is missing")
            self._chunks[number] = self._variable.decode(raw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, LazyList)):
            return len(self) == len(other) and list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<list of {self._count} elements>"


def whole(value: Any) -> Any:
    """A value as plain Python: a paged one is read as a whole."""
    if isinstance(value, LazyMap):
        return dict(value.items())
    return list(value) if isinstance(value, LazyList) else value


class PagedVariable:
    """A variable whose values are paged: what all of them have in common."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name, self.kind = name, kind
        # A page has the type of the whole: it is a small map, or a short list.
        self.encode, self.decode = encoder(kind), decoder(kind)

    def open(
        self, store: EntryStore, key: bytes, head: bytes | None = None, found_under: str = ""
    ) -> LazyMap | LazyList:
        """The value of `key` (canonical bytes) whose stored head was found under a name."""
        return LazyList(self, store, key, head, found_under)


class PagedMap(PagedVariable):
    """A variable of paged maps."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        super().__init__(name, kind)
        self._coerce, self._as_key = coercion(kind.key_type), key_part(kind.key_type)
        # Ranges of numbers are not looked at here: what user code writes was coerced before.
        self._exact = exact_class(kind.key_type) if self._as_key is None else None

    def exact(self, entry: Any) -> Any:
        """The one form of an entry: equal ones have equal bytes, and a dict finds them."""
        if type(entry) is self._exact:
            return entry
        exact = self._coerce(entry)
        return exact if self._as_key is None else self._as_key(exact)

    def decode_page(self, raw: bytes) -> dict[Any, Any]:
        page: dict[Any, Any] = self.decode(raw)
        if self._as_key is None:
            return page
        return {self._as_key(entry): value for entry, value in page.items()}

    def open(
        self, store: EntryStore, key: bytes, head: bytes | None = None, found_under: str = ""
    ) -> LazyMap:
        return LazyMap(self, store, key, head, found_under)


def paged_variable(name: str, kind: pa.DataType) -> PagedVariable:
    return PagedMap(name, kind) if pa.types.is_map(kind) else PagedVariable(name, kind)
