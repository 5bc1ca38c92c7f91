"""All benchmarks, one after the other, and the page of what they measured: `make bench`."""

from __future__ import annotations

from benchmarks import convolutions, editing, first_answer, hierarchy, pages, predict, search

search.main()
predict.main()
hierarchy.main()
first_answer.main()
editing.main()
convolutions.main()
pages.main()
