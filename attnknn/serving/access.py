"""Who may do what: roles, and the tokens that give them."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnknn.errors import InvalidSettingError

Role = Literal["reader", "editor", "admin"]
ROLES: tuple[Role, ...] = ("reader", "editor", "admin")
RIGHTS = {"nobody": 0, "reader": 1, "editor": 2, "admin": 3}
MIN_LENGTH = 24  # characters of a token
MAX_LENGTH = 500
MAX_FILE = 1 << 20
ABOUT = """\
# Tokens of `attnknn serve`: one per line, as ROLE NAME TOKEN. The log of edits shows the name.
# Roles: reader (asks questions), editor (edits, too), admin (sees and erases data subjects, too).
# Keep this file secret.
"""


@dataclass(frozen=True)
class Caller:
    """Who sends a request.

    Parameters
    ----------
    role : what the caller may do; "nobody" sees what is public
    name : the name of the token; "" without tokens
    address : where the request comes from

    >>> Caller("editor", "ann", "::1").may("reader"), Caller("nobody", "", "::1").may("reader")
    (True, False)
    """

    role: Role | Literal["nobody"]
    name: str
    address: str

    def may(self, role: Role) -> bool:
        """Whether the caller has a role, or a higher one."""
        return RIGHTS[self.role] >= RIGHTS[role]


@dataclass(frozen=True)
class Token:
    """A token, of which only a hash is kept."""

    role: Role
    name: str
    digest: bytes


class Tokens:
    """The tokens that a server accepts.

    Parameters
    ----------
    lines : lines as ROLE NAME TOKEN; blank lines and comments (#) are skipped

    >>> tokens = Tokens(["editor ann 0123456789abcdef01234567"])
    >>> tokens.find("0123456789abcdef01234567").name, tokens.find("another") is None
    ('ann', True)
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._tokens = [
            _token(line.split(), number)
            for number, line in enumerate(lines, start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not self._tokens:
            raise InvalidSettingError(
                "There must be at least one token, as a line ROLE NAME TOKEN."
            )
        digests = [token.digest for token in self._tokens]
        if len(set(digests)) < len(digests):
            raise InvalidSettingError("Tokens must differ; one is given twice.")

    def find(self, given: str) -> Token | None:
        """The token, if it is known; takes the same time for all that are not."""
        digest = _digest(given)
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file of tokens."""
        try:
            with open(path, encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode
                lines = file.read(MAX_FILE).splitlines()
        except UnicodeDecodeError as error:
            raise InvalidSettingError(f"The token file {path} must be UTF-8.") from error
        except OSError as error:
            reason = error.strerror or error
            raise InvalidSettingError(f"The token file {path} cannot be read: {reason}.") from error
        if os.name != "nt" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            warnings.warn(
                f"Other users of this machine may read the token file {path}: run "
                f"`chmod 600 {path}`.",
                stacklevel=2,
            )
        return cls(lines)


def create_token_file(path: Path) -> None:
    """Write a file with a random token for each role, which only its owner may read."""
    lines = [f"{role} {role} {secrets.token_urlsafe(32)}\n" for role in ROLES]
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(ABOUT + "".join(lines))


def _token(words: list[str], number: int) -> Token:
    """The words of a line; no message repeats the token."""
    if len(words) != 3:
        raise InvalidSettingError(
            f"Each line must be ROLE NAME TOKEN, line {number} has another number of words."
        )
    role, name, token = words
    if role not in ROLES:
        raise InvalidSettingError(
            f"The first word of a line must be one of {', '.join(ROLES)}, line {number} has "
            "another."
        )
    if not MIN_LENGTH <= len(token) <= MAX_LENGTH or not token.isascii():
        raise InvalidSettingError(
            f"Tokens must be from {MIN_LENGTH} to {MAX_LENGTH} ASCII characters long, that of "
            f"line {number} is not. `openssl rand -base64 32` makes one."
        )
    return Token(ROLES[ROLES.index(role)], name, _digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
