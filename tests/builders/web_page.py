"""A page of HTML, read as strictly as it is to be written."""

from html.parser import HTMLParser

VOID = {"meta", "link"}
"""Elements without an end."""
EVERYWHERE = {"html", "head", "title", "body", "main", "h1"}


class WebPage(HTMLParser):
    """What is on a page; each of its elements ends, in order."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        """The text of each element, in order."""
        self.rows: dict[str, str] = {}
        """Of tables: what each row is called, and its value."""
        self._row = ""
        self._open: list[str] = []
        assert content.startswith("<!DOCTYPE html>\n")
        self.feed(content)
        self.close()
        assert not self._open, f"not closed: {self._open}"
        assert {name for name, _ in self.elements} >= EVERYWHERE

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """An element ends, which must be the one that began last."""
        assert self._open, f"</{tag}> ends nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        text = " ".join(data.split())
        if not text or "style" in self._open:
            return
        self.words.append(text)
        if self._open[-1] == "th":
            self._row = text
        elif self._open[-1] == "td":
            self.rows[self._row] = text

    @property
    def links(self) -> list[str]:
        """Where its anchors lead."""
        return [given["href"] for name, given in self.elements if name == "a"]
