"""What an operator may set: who may ask, how much, and what is shown."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from pathlib import Path

from attnknn._validation import Limits, check_limits
from attnknn.errors import InvalidSettingError
from attnknn.serving.access import Tokens

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    Parameters
    ----------
    tokens : Tokens, default=None
        Tokens that give access. Without them only clients on the same machine are answered, and
        they may do everything.
    by : str, default=None
        Who edits, for the log, if neither a token nor the request says so; None is the name of the
        current user.
    is_read_only : bool, default=False
        Whether edits are refused.
    hosts : tuple of str, default=()
        Names by which browsers reach the server, beside localhost and IP addresses.
    frames : tuple of str, default=()
        Origins whose pages may show the explorer in a frame, beside its own.
    image_folders : tuple of Path, default=()
        Folders with images of entries that may be shown.
    rate : float, default=None
        Requests per second and client; None is 100 for clients with a token, and no limit without
        tokens.
    max_body : int, default=16,000,000
        Bytes of a request that is not an upload.
    max_upload : int, default=64,000,000
        Bytes of an uploaded file.
    body_timeout : float, default=30.0
        Seconds until a request must be complete.
    edit_wait : float, default=5.0
        Seconds that an edit waits for another process that edits the model.

    Examples
    --------
    >>> Settings(by="ann").author
    'ann'
    """

    tokens: Tokens | None = None
    by: str | None = None
    is_read_only: bool = False
    hosts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    image_folders: tuple[Path, ...] = ()
    rate: float | None = None
    max_body: int = 16 * MEGABYTE
    max_upload: int = 64 * MEGABYTE
    body_timeout: float = 30.0
    edit_wait: float = 5.0
    author: str = field(init=False)

    def __post_init__(self) -> None:
        author = _user_name() if self.by is None else self.by
        if not author.strip() or not author.isprintable():
            raise InvalidSettingError("`by` must be a name, for the log.")
        object.__setattr__(self, "author", author)
        whole = Limits(least=1, is_whole=True)
        check_limits(
            self,
            {
                "rate": Limits(above=0, may_be_none=True),
                "max_body": whole,
                "max_upload": whole,
                "body_timeout": Limits(above=0),
                "edit_wait": Limits(least=0),
            },
        )
        for folder in self.image_folders:
            if not folder.is_dir():
                raise InvalidSettingError(f"`images` must be folders, {folder} is none.")

    @property
    def requests_per_second(self) -> float | None:
        """The limit for each client."""
        return 100.0 if self.rate is None and self.tokens is not None else self.rate


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
