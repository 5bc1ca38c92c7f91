"""The explorer of a classifier beside a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

from attnknn.classifier import AttnKNNClassifier
from attnknn.serving.server import Server

FRAMES = ("http://localhost:*", "http://127.0.0.1:*")  # where notebooks are


class Explorer:
    """A page on which a classifier answers, explains and is edited; `explore` opens it.

    In a notebook it shows itself in a frame, with a link. Edits change the classifier itself.

    Parameters
    ----------
    classifier : AttnKNNClassifier
        A fitted classifier.
    port : int, default=0
        The port; 0 takes a free one.
    height : int, default=800
        Height of the frame in pixels.
    **settings : object
        As for `attnknn.serving.app`.

    Attributes
    ----------
    url : str
        The address of the page, which only this machine reaches.

    Examples
    --------
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with Explorer(clf) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        classifier: AttnKNNClassifier,
        port: int = 0,
        *,
        height: int = 800,
        **settings: Any,
    ) -> None:
        settings.setdefault("frames", FRAMES)
        self._height = height
        self._server = Server(classifier, port=port, **settings)
        self._server.start()
        self.url = self._server.url

    def close(self) -> None:
        """Stop the server; the edits stay in the classifier."""
        self._server.stop()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"Explore the classifier at {self.url}, until `close()` or the end of the process."

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"

    def _repr_html_(self) -> str:
        url = escape(self.url)
        return (
            f'<p>Explorer: <a href="{url}" target="_blank" rel="noopener">{url}</a></p>'
            f'<iframe src="{url}" title="Explorer" width="100%" height="{int(self._height)}" '
            'frameborder="0"></iframe>'
        )
