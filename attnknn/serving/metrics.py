"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
Labels = tuple[tuple[str, str], ...]


class Counter:
    """A number that grows, for each set of labels.

    >>> counter = Counter("requests_total", "Requests.")
    >>> counter.add(route="/api/predict")
    >>> list(counter.lines())[-1]
    'requests_total{route="/api/predict"} 1'
    """

    kind = "counter"

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, n: float = 1, **labels: str) -> None:
        """Count."""
        key = tuple(labels.items())
        with self._lock:
            self._values[key] = self._values.get(key, 0) + n

    def value(self, **labels: str) -> float:
        """What was counted."""
        return self._values.get(tuple(labels.items()), 0)

    def lines(self) -> Iterator[str]:
        """The lines of the text format."""
        yield from _head(self.name, self.about, self.kind)
        for labels, value in sorted(self._values.copy().items()):
            yield f"{self.name}{_labels(labels)} {value:g}"


class Gauge:
    """A number that is looked up when it is asked for."""

    def __init__(self, name: str, about: str, value: Callable[[], float]) -> None:
        self.name, self.about, self._value = name, about, value

    def lines(self) -> Iterator[str]:
        """The lines of the text format."""
        yield from _head(self.name, self.about, "gauge")
        yield f"{self.name} {self._value():g}"


class Histogram:
    """How often values fell below each of some bounds.

    >>> sizes = Histogram("rows", "Rows of a call.", (1, 2))
    >>> sizes.add(2)
    >>> list(sizes.lines())[2:]
    ['rows_bucket{le="1"} 0', 'rows_bucket{le="2"} 1', 'rows_bucket{le="+Inf"} 1', 'rows_sum 2',
     'rows_count 1']
    """

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self.name, self.about, self._bounds = name, about, tuple(bounds)
        self._found: dict[Labels, tuple[list[int], float]] = {}
        self._lock = threading.Lock()

    def add(self, value: float, **labels: str) -> None:
        """Count a value."""
        place = bisect_left(self._bounds, value)
        key = tuple(labels.items())
        with self._lock:
            counts, total = self._found.get(key) or ([0] * (len(self._bounds) + 1), 0.0)
            counts[place] += 1
            self._found[key] = counts, total + value

    def lines(self) -> Iterator[str]:
        """The lines of the text format."""
        yield from _head(self.name, self.about, "histogram")
        with self._lock:
            found = [(key, list(counts), total) for key, (counts, total) in self._found.items()]
        for labels, counts, total in sorted(found):
            n = 0
            bounds = [*map("{:g}".format, self._bounds), "+Inf"]
            for bound, count in zip(bounds, counts, strict=True):
                n += count
                yield f"{self.name}_bucket{_labels((*labels, ('le', bound)))} {n}"
            yield f"{self.name}_sum{_labels(labels)} {total:g}"
            yield f"{self.name}_count{_labels(labels)} {n}"


class Metrics:
    """Everything that is counted.

    Parameters
    ----------
    gauges : numbers that are looked up
    """

    def __init__(self, gauges: Sequence[Gauge] = ()) -> None:
        self.requests = Counter(
            "attnknn_requests_total", "Answered requests by route, method and status."
        )
        self.seconds = Histogram(
            "attnknn_request_seconds", "Seconds from request to answer, by route.", SECONDS
        )
        self.batches = Histogram(
            "attnknn_batch_rows", "Rows that were answered by one call of the model.", ROWS
        )
        self.edits = Counter("attnknn_edits_total", "Edits by kind and outcome.")
        self.refused = Counter("attnknn_refused_total", "Requests that were refused, by reason.")
        self.gauges: list[Counter | Histogram | Gauge] = list(gauges)

    def text(self) -> str:
        """All of them, in the text format."""
        counted: list[Counter | Histogram | Gauge] = [
            self.requests,
            self.seconds,
            self.batches,
            self.edits,
            self.refused,
        ]
        return "\n".join(line for one in counted + self.gauges for line in one.lines()) + "\n"


def _head(name: str, about: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
