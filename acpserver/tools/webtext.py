"""A web page as rough plain text. Pure."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "footer",
        "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre",
        "section", "table", "tr", "ul",
    }
)  # fmt: skip
_KEPT_SPACE = "\ue000"
"""Stands for a space of preformatted text until all others have been joined; means nothing in itself."""

_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def html_to_text(html: str) -> str:
    """The visible text with line breaks between blocks, # before headings, - before list items."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (re.sub(r"[ \t\r\f\v\xa0]+", " ", line).strip() for line in "".join(reader.pieces).split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip().replace(_KEPT_SPACE, " ")
    return f"{reader.title.strip()}\n\n{text}" if reader.title.strip() else text


class _Reader(HTMLParser):
    """Collects text; knows only which elements are silent and which begin a line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title = ""
        self._silent: list[str] = []
        self._in_title = False
        self._verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line where a block begins; go silent where nothing is visible."""
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._silent.clear()  # ends a head whose end tag was left out
        elif tag in _SILENT:
            self._silent.append(tag)
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        if tag == "pre":
            self._verbatim += 1
        if tag in _HEADINGS:
            self.pieces.append("\n" + "#" * int(tag[1]) + " ")
        elif tag == "li":
            self.pieces.append("- ")
        elif tag in ("td", "th"):
            self.pieces.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        """End a line where a block ends."""
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        if tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)

    def handle_data(self, data: str) -> None:
        """Take visible text."""
        if self._in_title:
            self.title += data.replace("\n", " ")
        elif not self._silent:
            kept = data.expandtabs(2).replace(" ", _KEPT_SPACE)
            self.pieces.append(kept if self._verbatim else data.replace("\n", " "))
