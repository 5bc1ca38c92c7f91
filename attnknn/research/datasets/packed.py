"""Files that come gzipped: who packs them again gets other bytes around the same content."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

INSIDE = {  # the sha256 of what is inside
    "letter.tsv.gz": "1ce967cac310120042a497760cb642e21b26d813e87c87fa1bb13896da6c812c",
    "magic.tsv.gz": "05549371c27df5b9e060a2febe8f2ab8887ea8980155d53b623ee345392de584",
    "satimage.tsv.gz": "64f24621c46cfc27caa7ec92641e49122a8d7ecfc5fe6a6d38179034670534c1",
    "churn.tsv.gz": "42de232ebc4fc95958dbdc32bdc38e5ea0d72ff37487f1aefd1cc35a7248419e",
    "adult-train.csv.gz": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult-test.csv.gz": "72567b94f5c1a6f8501377dd80f93892c3848ff071cf91ba47e00b0785a28074",
    "winequality-red.csv.gz": "c9614512e980f1cbd221c796daa97f00c4898c3cd1716863abac60f6cd1a522e",
    "winequality-white.csv.gz": "659d419fff887f225bf977d20520bb64a64cae203e460087f809721d4430ba27",
    "bank.csv.gz": "2b100ec58183c55e10316f60f3a4433c0886d2943be7e09afc4529321c64fd60",
    "credit.csv.gz": "0f2c8fcc66e1f90e5fa79b92df18c0a67f8c7c4ec1eabbc4fd256438bcc608bf",
}


def holds_the_same(path: Path, name: str) -> bool:
    """Whether a gzipped file has the content of the one that is published under `name`."""
    if name not in INSIDE:
        return False
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        return False
    return hashlib.sha256(content).hexdigest() == INSIDE[name]
