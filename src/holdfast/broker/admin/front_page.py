"""`GET /`: the page of whoever opens the broker's address in a browser.

Owns: its words and its form: HTML that needs no script and nothing from elsewhere, on a phone too,
light and dark. Never: counts; each figure is one of the snapshot's.

Invariants:
1. Who may ask for /metrics sees figures, the version among them; everybody else sees what
   /health/ready tells, and no more.
2. Whatever gets into the page is escaped.
3. Who does not name HTML gets the 404 in JSON of any path that is not there.
"""

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from typing import Final

from aiohttp import web

from holdfast import __version__
from holdfast.broker.admin.http.operation import Answered, Asked, Audience, Operation
from holdfast.broker.admin.http.protection import METRICS_PATH
from holdfast.broker.observe.snapshot import Snapshot

HTML: Final = "text/html"
STYLE: Final = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--faint:#59636e;--line:#d1d9e0;"
    "--link:#0958b3;--well:#137333;--unwell:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e6e8ea;--faint:#9aa4ae;"
    "--line:#363c43;--link:#7ab7ff;--well:#6dd58c;--unwell:#ff8a80}}"
    "body{margin:0;background:var(--paper);color:var(--ink);"
    "font:1rem/1.5 system-ui,sans-serif}"
    "main{max-width:40rem;margin:0 auto;padding:1.5rem 1rem}"
    "h1{margin:0}h2{margin:1.5rem 0 .5rem;font-size:1.1rem}p{margin:.5rem 0}"
    "a{color:var(--link)}small{color:var(--faint)}.well{color:var(--well)}.unwell{color:var(--unwell)}"
    "table{width:100%;border-collapse:collapse}"
    "th,td{padding:.35rem 0;border-bottom:1px solid var(--line);text-align:left;"
    "vertical-align:top;font-weight:normal;overflow-wrap:anywhere}"
    "th{width:45%;padding-right:1rem}th small{display:block}"
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'; style-src 'sha256-"
        f"{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
    ),
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept, Authorization",
    "X-Content-Type-Options": "nosniff",
}
"""Nothing is loaded, sent or framed, and no style is taken but the page's own."""
PLACES: Final = (
    ("/v1/sessions", "sessions", "connected and at rest"),
    ("/v1/queues", "queues", "those with names"),
    ("/v1/backlog/longest", "longest queues", "of connected sessions"),
    ("/v1/losses", "losses", "what was not delivered to whom, and why"),
    ("/v1/configuration", "settings", "each value and where it came from"),
    (METRICS_PATH, "metrics", "for Prometheus"),
    ("/v1/openapi.json", "OpenAPI", "everything that can be asked or changed over HTTP"),
    ("/health/live", "live", "whether the process answers"),
    ("/health/ready", "ready", "whether clients are served"),
)
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

Permits = Callable[[web.Request, str], Awaitable[bool]]
"""Whether who made a request may ask for a path."""


def operation(
    ready: Callable[[], bool],
    snapshot: Callable[[], Snapshot],
    now_us: Callable[[], int],
    permits: Permits,
) -> Operation:
    """The row that answers with the page."""

    async def run(asked: Asked) -> web.Response:
        if not _names_html(",".join(asked.request.headers.getall("Accept", []))):
            raise web.HTTPNotFound
        seen = snapshot() if await permits(asked.request, METRICS_PATH) else None
        found = page(seen, now_us(), is_ready=ready())
        return web.Response(text=found, content_type=HTML, charset="utf-8", headers=HEADERS)

    return Operation(
        method="GET",
        path="/",
        name="showFrontPage",
        summary="A page for people: what this is, whether it is well, and where the rest is.",
        run=run,
        answers={
            200: Answered("The page; with figures for who may ask for them.", str, HTML),
            404: Answered("For who does not name text/html as what is accepted."),
        },
        audience=Audience.EVERYBODY,
    )  # fmt: skip


def page(seen: Snapshot | None, now_us: int, *, is_ready: bool) -> str:
    """The whole page; without a snapshot, as it is for who may not see figures."""
    word, meaning = ("Ready", "clients are served") if is_ready else ("Not ready", "no clients are")
    state = (
        f'<p><strong class="{"well" if is_ready else "unwell"}">{word}</strong>: {meaning}, as of '
        f"{_text(_moment(now_us))}.</p>\n"
    )
    version = "" if seen is None else f" Version {_text(__version__)}."
    places = "".join(
        f'<li><a href="{_text(path)}">{_text(name)}</a>: {_text(what)}</li>\n'
        for path, name, what in PLACES
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>Holdfast: {word.lower()}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Holdfast</h1>\n"
        f"<p>A broker of durable messages, for MQTT and PySpark.{version}</p>\n{state}"
        f"{_reference() if seen is None else _table(figures(seen))}"
        f"<h2>Look closer</h2>\n<ul>\n{places}</ul>\n"
        "<h2>Documentation</h2>\n<p>The source has it: <code>docs/operating</code> is for those who"
        " run a broker, <code>docs/clients.md</code> for those who write clients."
        " <code>holdfast --help</code> names the commands, and <code>holdfast top</code> watches a"
        " broker in a terminal.</p>\n</main>\n</body>\n</html>\n"
    )


def figures(seen: Snapshot) -> list[tuple[str, str, str]]:
    """Name, of when it is or what of, and value."""
    lost = sum(seen.losses.values())
    at_rest = seen.sessions_recorded - seen.sessions_recorded_attached
    ahead, as_of = "not known yet", "the first look at sessions at rest is under way"
    if seen.at_rest_age_s is not None:
        as_of = f"for sessions at rest, as of {_span(seen.at_rest_age_s)} ago"
        first = seen.first_loss_in_s
        ahead = "none in sight" if first is None else f"the first in {_span(first)}"
    return [
        ("Running for", "", _span(seen.uptime_s)),
        ("Clients connected", "", _count(seen.sessions_attached)),
        ("Sessions at rest", "", _count(at_rest)),
        ("Messages received", "from clients, since the start", _count(seen.publishes_received)),
        (
            "Messages delivered",
            "to clients, since the start",
            _count(seen.egress["publishes_sent"]),
        ),
        ("Messages lost to someone", "since the start", _count(lost)),
        ("Losses ahead", as_of, ahead),
        ("Log", f"durability {seen.durability}", _size(seen.log["bytes"])),
        ("Disk free", "", _size(seen.disk_free_bytes)),
    ]


def _names_html(accept: str) -> bool:
    """True if it names HTML and does not rule it out, as browsers do."""
    for item in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in item.split(";"))
        if media_type == HTML:
            return not any(re.fullmatch(r"q=0(\.0*)?", each) for each in parameters)
    return False


def _reference() -> str:
    return (
        f'<p>Figures are shown to whoever may ask for <a href="{METRICS_PATH}">metrics</a>: be'
        " known there first, then open this page again.</p>\n"
    )


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{_text(name)}{f" <small>{_text(of)}</small>" if of else ""}</th>'
        f"<td>{_text(value)}</td></tr>\n"
        for name, of, value in rows
    )
    return f"<table>\n{lines}</table>\n"


def _text(written: str) -> str:
    return escape(written, quote=True)


def _moment(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _count(number: int) -> str:
    # A no-break space, so that a number stays on its line.
    return f"{number:,}".replace(",", "\u00a0")


def _size(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} TB"


def _span(seconds: float) -> str:
    """The two largest units of it."""
    left, found = int(seconds), []
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        if count:
            found.append(f"{count} {unit}")
    return " ".join(found[:2]) or "0 s"
