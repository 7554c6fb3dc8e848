"""A result as a table: one line for each figure, in text for a terminal or in Markdown."""

from collections.abc import Iterator

from bench.macro.results import Result, Spread
from bench.macro.rows import ROWS, Line, Row

# A range beyond this share of the median is marked: the machine was not quiet.
NOISE_MARKED = 0.2


def headings(result: Result) -> list[str]:
    """The columns; those of the peer only where there is one."""
    peer = result.peer
    beside = [f"{peer}", "ratio (least..greatest)"] if peer else []
    slash = f" / {peer}" if peer else ""
    return [
        "load", "unit", "holdfast", *beside, "step", "met",
        f"broker us a message{slash}", f"peak MiB{slash}", f"generator's core{slash}",
    ]  # fmt: skip


def cells(result: Result) -> Iterator[list[str]]:
    """The lines of all rows that were measured."""
    measured = {measurement.row for measurement in result.measurements}
    for row in ROWS:
        if row.name in measured:
            for index, line in enumerate(row.lines):
                yield _cells(result, row, line, first=index == 0)


def _cells(result: Result, row: Row, line: Line, *, first: bool) -> list[str]:
    brokers = ["holdfast", result.peer] if result.peer else ["holdfast"]
    figures = [_figure(result.spread(row.name, broker, line.figure), line) for broker in brokers]
    ratio = [_ratio(result.ratio(row.name, line.figure))] if result.peer else []
    steps = result.steps(row, line)
    target = "; ".join(str(target) for target in line.targets)
    met = "; ".join(("yes" if met else "no") + f" ({ratio.median:.2f})" for ratio, met in steps)

    def both(figure: str, digits: int, scale: float = 1, suffix: str = "") -> str:
        if not first:
            return ""
        spreads = [result.spread(row.name, broker, figure) for broker in brokers]
        return " / ".join(
            "-" if spread is None else f"{spread.median * scale:.{digits}f}{suffix}"
            for spread in spreads
        )

    return [
        line.title, line.unit, *figures, *ratio, target, met,
        both("broker_processor_us", 2),
        both("resident_mib_peak", 0),
        both("generator_share", 0, 100, " %"),
    ]  # fmt: skip


def other_headings(result: Result) -> list[str]:
    """The columns of the table of the other peers."""
    beside = [[peer, "ratio (least..greatest)"] for peer in result.other_peers]
    return ["load", "unit", "holdfast", *(heading for pair in beside for heading in pair)]


def other_cells(result: Result) -> Iterator[list[str]]:
    """The lines in which one of the other peers was measured."""
    for row in ROWS:
        for line in row.lines:
            spreads = [result.spread(row.name, peer, line.figure) for peer in result.other_peers]
            if not any(spreads):
                continue
            cells = [line.title, line.unit]
            cells.append(_figure(result.spread(row.name, "holdfast", line.figure), line))
            for peer, spread in zip(result.other_peers, spreads, strict=True):
                cells += [_figure(spread, line), _ratio(result.ratio(row.name, line.figure, peer))]
            yield cells


def _figure(spread: Spread | None, line: Line) -> str:
    if spread is None:
        return "-"
    value = spread.median * line.scale
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" + ("~" if spread.noise > NOISE_MARKED else "")


def _ratio(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{spread.median:.2f} ({spread.least:.2f}..{spread.greatest:.2f})"


def remarks(result: Result) -> list[str]:
    """What a reader of the figures must know besides: failures, losses, the disk."""
    found = [
        f"{failure.row}, {failure.broker}, repetition {failure.repetition}: {failure.error}"
        for failure in result.failures
    ]
    for row in ROWS:
        for broker in result.brokers:
            for what in ("lost", "duplicated", "stalls"):
                total = sum(result.figures(row.name, broker, what).values())
                if total:
                    found.append(f"{row.name}, {broker}: {what} {total:.0f}")
    disk = Spread.of([m.figures["fdatasync_us"] for m in result.measurements if m.figures])
    if disk:
        found.append(
            f"append and fdatasync of 700 bytes in the same run: {disk.median:.0f} us "
            f"({disk.least:.0f}..{disk.greatest:.0f})"
        )
    found.append(f"~ marks figures whose range is beyond {NOISE_MARKED:.0%} of their median")
    return found


def as_text(result: Result) -> str:
    """For a terminal."""
    text = _aligned([headings(result), *cells(result)])
    if result.other_peers:
        text += ["", *_aligned([other_headings(result), *other_cells(result)])]
    return "\n".join([*text, "", *remarks(result)])


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def as_markdown(result: Result) -> str:
    """For the page."""
    text = _marked(headings(result), cells(result))
    if result.other_peers:
        text += ["", "Beside the other peers:", ""]
        text += _marked(other_headings(result), other_cells(result))
    return "\n".join([*text, "", *(f"- {remark}" for remark in remarks(result))])


def _marked(head: list[str], cells: Iterator[list[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *cells]]
