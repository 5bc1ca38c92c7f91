"""What an erasure has done, in a form to hand on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

ENCODER = "the encoder"
CENTER = "the center of the embeddings"
VOTE = "attention and calibration"
HEAD = "the value head"
REFITTED = (VOTE, HEAD)  # by `refit`
PARTS = {"center.npy": CENTER, "value_head.safetensors": HEAD}  # the others are the vote's


@dataclass(frozen=True)
class Receipt:
    """What was erased of a subject, what was checked, and what has seen it.

    Parameters
    ----------
    ids : of the entries that were removed; texts as hashes where the erasure was cut short
    at, by : when and by whom
    n_cached : embeddings of texts that were erased from the user's cache
    searched : files of the model folder that were searched for pieces of the entries
    n_searched : pieces, words and names that were searched for
    found_in : files, and places within the store, in which any was still found
    n_answers : answers that were compared with those of a memory built again without the entries;
        none after an erasure that was cut short, when the memory is one that was built again
    answers_agree : whether all of them were the same
    seen_by : fitted parts that had seen the entries
    """

    subject: str
    ids: list[Any]
    at: str
    by: str
    n_cached: int
    searched: list[str]
    n_searched: int
    found_in: list[str]
    n_answers: int
    answers_agree: bool
    seen_by: list[str]

    @property
    def is_checked(self) -> bool:
        """Whether something was searched for, nothing was found, and all answers agree."""
        return self.answers_agree and self.n_searched > 0 and not self.found_in

    @property
    def is_complete(self) -> bool:
        """Whether all was checked, and the encoder, which may hold values, had not seen any."""
        return self.is_checked and ENCODER not in self.seen_by

    @property
    def remedy(self) -> str:
        """What would clear the fitted parts too."""
        if not self.seen_by:
            return "No fitted part had seen these entries."
        by_refit = [part for part in self.seen_by if part in REFITTED]
        by_fit = [part for part in self.seen_by if part not in REFITTED]
        said = [f"Fitted with these entries: {', '.join(self.seen_by)}."]
        said += [f"`refit` clears {', '.join(by_refit)} from then on."] if by_refit else []
        said += [f"Only a new `fit` clears {', '.join(by_fit)}."] if by_fit else []
        if ENCODER in by_fit:
            said += ["Until then the encoder may hold their values."]
        return " ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "is_complete": self.is_complete, "remedy": self.remedy}

    def _compared(self) -> str:
        if not self.n_answers:
            return "No answers were compared with those of a memory built without them."
        agree = "the same as" if self.answers_agree else "NOT the same as"
        return f"{self.n_answers:,} answers are {agree} those of a memory built without them."

    def __str__(self) -> str:
        n = len(self.ids)
        pieces = f"{self.n_searched:,} {'piece' if self.n_searched == 1 else 'pieces'}"
        found = f"found in {', '.join(self.found_in)}" if self.found_in else "found in none"
        return "\n".join(
            [
                f"Erased {n:,} {'entry' if n == 1 else 'entries'} of subject {self.subject} "
                f"({self.at}, by {self.by}).",
                f"{pieces} of them were searched in {len(self.searched)} files and {found}.",
                self._compared(),
                self.remedy,
            ]
        )


def part_names(files: set[str]) -> list[str]:
    """What people call the parts that are in these files, without the encoder.

    >>> part_names({"center.npy", "settings.json", "encoder_scale.npy"})
    ['attention and calibration', 'the center of the embeddings']
    """
    named = {PARTS.get(name, VOTE) for name in files if not name.startswith("encoder_")}
    return sorted(named)
