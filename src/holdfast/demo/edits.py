"""Synthetic Wikipedia edits: the same for the same seed, skewed as people are.

A few users make most edits, bots among them; some edit anonymously under an IP address; names
and comments are in many scripts. Edits are drawn in blocks, each from a generator of its own,
so a longer stream begins with the shorter one of the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "user string, page string, diff bigint, ts timestamp, bot boolean, comment string"
"""The edits as a Spark schema."""

_BLOCK = 65_536
_MEAN_GAP_MICROSECONDS = 100_000  # about ten edits per second, as in the real stream
_ANONYMOUS_SHARE = 0.08
_BOT_SHARE = 0.25  # of the most active users
_VERY_ACTIVE_SHARE = 0.002

_FIRST = (
    *("Ada", "Bruno", "Chidi", "Dana", "Elif", "Farid", "Greta", "Hiro", "Ines", "Jonas"),
    *("Zoë", "Łukasz", "Søren", "Анна", "Γιώργος", "מרים", "ليلى", "太郎", "민준", "प्रिया"),
)
_SECOND = (
    *("Archivist", "Birder", "Cartographer", "Editor", "Gnome", "Historian", "Linguist"),
    *("Müller", "Nuñez", "Иванова", "東京", "🦉"),
)
_TITLES = (
    *("List of bridges in", "History of", "Geography of", "Battle of", "Music of"),
    *("Économie de", "Straßen in", "История города", "日本の", "Flora of"),
)
_PLACES = (
    *("Lisbon", "Ghent", "Tartu", "Oaxaca", "Hobart", "Zürich", "Kraków", "Reykjavík"),
    *("Київ", "京都", "القاهرة", "São Paulo"),
)
_COMMENTS = (
    *("typo", "copyedit", "add source", "revert vandalism", "", "update infobox", "cleanup"),
    *("fix link", "rm dead link", "expand section", "categories", "per talk page", "grammar"),
    *("quelle ergänzt", "correction d’accord", "опечатка", "誤字修正", "merci 🙏", "«ё» → «е»"),
)

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("user", pa.string()),
    ("page", pa.string()),
    ("diff", pa.int64()),
    ("ts", pa.timestamp("us", tz="UTC")),
    ("bot", pa.bool_()),
    ("comment", pa.string()),
]
_ARROW_SCHEMA = pa.schema(_FIELDS)
_Indices = npt.NDArray[np.int64]


def generate(
    n: int, users: int = 1_000, seed: int = 0, start: datetime = START
) -> Iterator[dict[str, Any]]:
    """`n` edits as records for JSON; `ts` is ISO 8601 in UTC and never goes back."""
    for block in _blocks(n, users, seed, start):
        stamps = np.datetime_as_string(block["ts"].to_numpy().astype("datetime64[us]"))
        columns = [column.to_pylist() for column in block.columns]
        columns[block.schema.get_field_index("ts")] = [f"{stamp}Z" for stamp in stamps]
        for values in zip(*columns, strict=True):
            yield dict(zip(block.schema.names, values, strict=True))


def generate_table(
    n: int, users: int = 120_000, seed: int = 0, start: datetime = START
) -> pa.Table:
    """The same edits as Arrow columns, half a million per second or more."""
    return pa.Table.from_batches(_blocks(n, users, seed, start), schema=_ARROW_SCHEMA)


def _blocks(n: int, users: int, seed: int, start: datetime) -> Iterator[pa.RecordBatch]:
    people = np.random.default_rng([seed, 0])
    is_bot = _bots(people, users)
    names = pa.array(_user_names(people, is_bot))
    pages = max(10, users // 2)
    titles = pa.array([_page_title(number) for number in range(pages)])
    comments = pa.array(_COMMENTS)
    user_odds, page_odds = _zipf(users, 1.0), _zipf(pages, 0.8)
    comment_odds = _zipf(len(_COMMENTS), 0.6)
    clock = int((start - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
    for number in range(-(-n // _BLOCK)):
        draw = np.random.default_rng([seed, 1, number])
        # Always a whole block, cut afterwards: what is drawn must not depend on `n`.
        who = _pick(draw, user_odds)
        gaps = draw.exponential(_MEAN_GAP_MICROSECONDS, _BLOCK).astype(np.int64)
        times = clock + np.cumsum(gaps)
        clock = int(times[-1])
        block = pa.RecordBatch.from_arrays(
            [
                names.take(who),
                titles.take(_pick(draw, page_odds)),
                pa.array(_diffs(draw)),
                pa.array(times).cast(_ARROW_SCHEMA.field("ts").type),
                pa.array(is_bot[who]),
                comments.take(_pick(draw, comment_odds)),
            ],
            schema=_ARROW_SCHEMA,
        )
        yield block.slice(0, min(_BLOCK, n - number * _BLOCK))


def _zipf(size: int, exponent: float) -> npt.NDArray[np.float64]:
    """Cumulated odds of ranks: the second is `2 ** -exponent` times as likely as the first."""
    odds = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -exponent)
    cumulated: npt.NDArray[np.float64] = odds / odds[-1]
    return cumulated


def _pick(draw: np.random.Generator, odds: npt.NDArray[np.float64]) -> _Indices:
    picked: _Indices = np.searchsorted(odds, draw.random(_BLOCK), side="right")
    return picked


def _diffs(draw: np.random.Generator) -> _Indices:
    """Bytes changed: mostly a word or a sentence, now and then a new or an emptied page."""
    small = draw.laplace(8, 40, _BLOCK)
    large = draw.lognormal(8.5, 1.2, _BLOCK)
    kind = draw.random(_BLOCK)
    diffs = np.select([kind < 0.02, kind < 0.05], [-large, large], small)
    whole: _Indices = np.rint(diffs).astype(np.int64)
    return whole


def _bots(people: np.random.Generator, users: int) -> npt.NDArray[np.bool_]:
    very_active = max(4, round(users * _VERY_ACTIVE_SHARE))
    return (np.arange(users) < very_active) & (people.random(users) < _BOT_SHARE)


def _user_names(people: np.random.Generator, is_bot: npt.NDArray[np.bool_]) -> list[str]:
    """One name per user, all different: the number is in the name."""
    anonymous = people.random(len(is_bot)) < _ANONYMOUS_SHARE
    first = people.integers(len(_FIRST), size=len(is_bot)).tolist()
    second = people.integers(len(_SECOND), size=len(is_bot)).tolist()
    return [
        _user_name(number, first[number], second[number], bot=bot, anonymous=nameless)
        for number, (bot, nameless) in enumerate(
            zip(is_bot.tolist(), anonymous.tolist(), strict=True)
        )
    ]


def _user_name(number: int, first: int, second: int, *, bot: bool, anonymous: bool) -> str:
    if bot:
        return f"{_FIRST[first]}{number}Bot"
    if anonymous and number % 2:
        return f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::{first + 1:x}"
    if anonymous:
        return f"10.{number >> 16 & 0xFF}.{number >> 8 & 0xFF}.{number & 0xFF}"
    return f"{_FIRST[first]} {_SECOND[second]} {number}"


def _page_title(number: int) -> str:
    title, place = _TITLES[number % len(_TITLES)], _PLACES[number // 10 % len(_PLACES)]
    return f"{title} {place} ({number})"
