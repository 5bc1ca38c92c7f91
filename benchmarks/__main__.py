"""All benchmarks, one after the other, and the page of what they measured: `make bench`."""

from __future__ import annotations

from benchmarks import convolutions, editing, pages, predict, search

search.main()
predict.main()
editing.main()
convolutions.main()
pages.main()
