"""A limit on failed logins, per address."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

MOST_FAILURES = 20
PER_SECONDS = 60.0
_MOST_ADDRESSES = 10_000


class LoginThrottle:
    """So many failures in so many seconds; then an address has to wait."""

    def __init__(self, most: int = MOST_FAILURES, per_seconds: float = PER_SECONDS) -> None:
        self._most, self._per = most, per_seconds
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, address: str) -> float:
        """Seconds until the address may try again; 0: now."""
        with self._lock:
            failures = self._recent(address)
            if len(failures) < self._most:
                return 0.0
            return max(0.0, failures[0] + self._per - time.monotonic())

    def failed(self, address: str) -> None:
        with self._lock:
            self._recent(address).append(time.monotonic())
            while len(self._failures) > _MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, address: str) -> deque[float]:
        failures = self._failures.setdefault(address, deque(maxlen=self._most))
        self._failures.move_to_end(address)
        while failures and failures[0] < time.monotonic() - self._per:
            failures.popleft()
        return failures
