"""Measurements become pages: `python -m benchmarks.pages`.

Times are written to docs/speed.md, counts of failures that were provoked to docs/reliability.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "speed.md"
RELIABILITY = HERE.parent / "docs" / "reliability.md"
MARKS = "<!-- reliability -->", "<!-- /reliability -->"
TITLES = {
    "search": "Searching",
    "predict": "Fitting and predicting",
    "hierarchy": "Hierarchical attention",
    "first_answer": "Time to the first answer",
    "editing": "Editing a memory",
    "convolutions": "Training an image network",
    "vit": "Nearest-neighbor attention",
}
NOTES = {
    "first_answer": """Processor time in new processes. "Before" is an earlier commit, measured in
turns with the present one. Wide and learned tables are measured once.
""",
    "hierarchy": """Processor time of one thread. "Distance" compares a query with all entries and
lets the nearest 64 vote; "clusters" and "classes" are the cells of `HierarchicalAttention`.
"Weight in the visited cells" is the share of the weight of one softmax over all entries that the
entries of the visited cells have.
""",
    "editing": """CPU time. Every edit updates the neighbor graph of all entries. What depends on it
(trust, thresholds of prediction sets, the audit) is computed when it is next
needed.
""",
    "vit": """NATTEN is measured in a separate environment by `make bench-natten`. On a CPU it has
only a forward pass, with Flex attention that it does not compile there.

"Linear maps alone" are the projections to queries, keys and values, and the output projection.
With one head, our layer multiplies the weights of queries and keys first and needs no keys, one
projection fewer. With 32 samples, it takes about as long as the linear maps alone.

Our threads each process a share of the images and release Python's lock. After each torch
operation, OpenMP's own thread spins on its core for some milliseconds, and our thread on that core
has to wait. `python -m benchmarks.vit.waiting` measures it. `OMP_WAIT_POLICY=passive` avoids it.
""",
}
HEAD = """# Speed

Look up here how long searching, fitting, editing and training take, compared with a bare matrix
product and with other libraries. `make bench` measures on your machine.

Times are medians of interleaved repeats. Ratios are to the first line of each table within one run;
trust them more than the milliseconds. `python -m benchmarks.pages` writes this page from
`benchmarks/results`.
"""


def main() -> None:
    """Write the page from what was measured."""
    chapters = [HEAD]
    for name, title in TITLES.items():
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            chapters.append(chapter(title, name, json.loads(path.read_text())))
    PAGE.write_text("\n".join(chapters))
    start, end = MARKS
    before, rest = RELIABILITY.read_text().split(start)
    after = rest.split(end)[1]
    RELIABILITY.write_text(f"{before}{start}\n{reliability()}\n{end}{after}")


def reliability() -> str:
    """What was tried to make the store, the readers and the tests fail, and how often."""
    parts = {"chaos": chaos, "fuzz": fuzz, "mutants": mutants}
    found = {name: HERE / "results" / f"{name}.json" for name in parts}
    return "\n\n".join(
        parts[name](json.loads(path.read_text())) for name, path in found.items() if path.exists()
    )


def chaos(report: dict[str, Any]) -> str:
    """Killed writers, power cuts, full disks and damage, a line per test."""
    rows = []
    for counts in report["tests"]:
        name = counts["test"].removeprefix("test_").replace("_", " ")
        name = re.sub(r"\[(\w+)-\d+\]", r" (\1)", name)
        bad = counts["lost"] + counts["unnamed_errors"] + counts["hangs"]
        edits = f"{counts['acknowledged_edits']:,}"
        rows.append(f"| {name} | {counts['tries']:,} | {edits} | {bad} |")
    head = "| test | tries | acknowledged edits checked | lost, unnamed errors, hangs |"
    return "\n".join(["`make chaos`:", "", head, "|---|--:|--:|--:|", *rows])


def fuzz(report: dict[str, Any]) -> str:
    """Mutated files, a line per outcome."""
    works = report["outcomes"].get("works", 0)
    refused = sum(n for name, n in report["outcomes"].items() if name != "works")
    refused -= report["n_failures"]
    return (
        f"`make fuzz`: {report['n_cases']:,} mutated files of {len(report['targets'])} kinds. "
        f"{works:,} were used and gave finite probabilities, {refused:,} were refused by a named "
        f"error, {report['n_failures']} failed in another way: other exceptions, NaN, more than "
        "2 GiB of memory, or more than 20 seconds."
    )


def mutants(report: dict[str, Any]) -> str:
    """Small changes of the code, and how many of them the tests notice."""
    total = report["total"]
    noticed, same = total.get("killed", 0) + total.get("timeout", 0), total.get("equivalent", 0)
    return (
        f"`make mutants`: {total['mutants']} random small changes of the code that votes, "
        f"calibrates, searches, edits and stores. {same} of them change nothing that can be "
        f"observed (`tools/mutants_equivalent.toml` says why). Of the others the tests of the same "
        f"room notice {noticed}, that is {100 * report['killed_share']:.0f} %."
    )


def chapter(title: str, module: str, report: dict[str, Any]) -> str:
    """All tables of one benchmark, and the machine they were measured on."""
    machine = report["machine"]
    lines = [f"## {title}\n", f"`python -m benchmarks.{module}`, on {described(machine)}.\n"]
    lines += [NOTES[module]] if module in NOTES else []
    for name, rows in report.items():
        if name not in ("machine", "repeats", "bars") and rows:
            unit = ", ms" if name.endswith(" time") and module == "vit" else ""
            lines.append(f"### {name}{unit}\n\n{table(rows)}\n")
    if "bars" in report:
        lines.append(f"### Bounds that must hold\n\n{bars(report['bars'])}\n")
    return "\n".join(lines)


def described(machine: dict[str, Any]) -> str:
    """The machine in a few words."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    processor = ", ".join(machine["processor"])
    return (
        f"{machine['cores']} cores ({processor}; {machine['vector instructions']}), "
        f"{machine['torch threads']} threads, load {machine['load']:.1f} at the start, {versions}"
    )


def bars(found: list[dict[str, Any]]) -> str:
    """What was asked for, and what was measured."""
    body = [
        f"| {bar['what']} | {bar['measured']:.2f} | {bar['bound']:g} | "
        f"{'met' if bar['is_met'] else 'not met'} |"
        for bar in found
    ]
    return "\n".join(["| | measured | bound | |", "|---|--:|--:|---|", *body])


def table(rows: dict[str, Any]) -> str:
    """Timed work with its ratio, figures of several ways, or plain figures."""
    first = next(iter(rows.values()))
    if isinstance(first, dict) and "ratio" not in first:
        columns = list(first)
        body = [f"| {n} | {' | '.join(str(row[c]) for c in columns)} |" for n, row in rows.items()]
        head = f"| | {' | '.join(columns)} |"
        return "\n".join([head, f"|---|{'--:|' * len(columns)}", *body])
    if all(isinstance(row, dict) for row in rows.values()):
        body = [f"| {n} | {r['median_ms']} | {r['ratio']:.2f} |" for n, r in rows.items()]
        return "\n".join(["| | median ms | ratio |", "|---|--:|--:|", *body])
    body = [f"| {name} | {value:.2f} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|--:|", *body])


if __name__ == "__main__":
    main()
