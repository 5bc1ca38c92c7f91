"""All benchmarks, one after the other: `make bench`."""

from __future__ import annotations

from benchmarks import predict, search

search.main()
predict.main()
