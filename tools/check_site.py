"""Check that no page of a built site loads anything from another site; `make docs` runs this.

Links that a reader may click are fine. Scripts, styles, fonts and images must be local, so that the
site works without a network.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED_BY_SRC = {"script", "img", "iframe", "source", "video", "audio", "embed"}
IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")


class Loads(HTMLParser):
    """Collects the addresses that a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of a script, style or image."""
        values = dict(attrs)
        if tag in LOADED_BY_SRC:
            self.addresses.append(values.get("src") or "")
        elif tag == "link" and (values.get("rel") or "") not in ("canonical", "next", "prev"):
            self.addresses.append(values.get("href") or "")


def remote_loads(path: Path) -> list[str]:
    """Addresses on other sites that a page or a style sheet loads."""
    text = path.read_text(errors="replace")
    if path.suffix == ".css":
        return IN_STYLES.findall(text)
    page = Loads()
    page.feed(text)
    remote = [address for address in page.addresses if re.match(r"(https?:)?//", address)]
    return remote + IN_STYLES.findall(text)


def main(folder: str) -> int:
    """Print what pages load from elsewhere; 1 if there is anything, or if there are no pages."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.suffix in (".html", ".css"))
    found = [f"{path} loads {address}" for path in paths for address in remote_loads(path)]
    if not paths:
        found = [f"{folder} holds no pages."]
    if found:
        print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
