"""A result as a picture: the ratio of each throughput row to the peer, with the steps to reach."""

from pathlib import Path

from bench.macro.results import Result, Spread
from bench.macro.rows import REFERENCE, ROWS, Line

BAR = "#3b6ea5"
STEP = "#c0504d"


def _rows(result: Result) -> list[tuple[Line, Spread]]:
    found = []
    for row in ROWS:
        line = row.lines[0]
        ratio = result.ratio(row.name, line.figure)
        if ratio and not line.lower_is_better:
            found.append((line, ratio))
    return found[::-1]


def draw(result: Result, path: Path) -> None:
    """Write the picture as SVG; the same result gives the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": result.commit, "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot, ticker

    rows = _rows(result)
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.36 * len(rows)))
    for height, (line, ratio) in enumerate(rows):
        error = [[ratio.median - ratio.least], [ratio.greatest - ratio.median]]
        # On a scale of ratios a bar begins where both are the same.
        axes.barh(height, ratio.median - 1, 0.6, left=1, color=BAR, xerr=error, ecolor="#222222")
        axes.text(max(ratio.greatest, 1) * 1.05, height, f"{ratio.median:.1f}", va="center")
        steps = [
            step
            for step in line.targets
            if not (step.of_row or step.of_itself) and step.of_peer == REFERENCE
        ]
        for target in (step.at_least for step in steps if step.at_least):
            axes.plot([target, target], [height - 0.42, height + 0.42], color=STEP, linewidth=2)
    axes.set_yticks(range(len(rows)), [line.title for line, _ in rows])
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.axvline(1, color="#888888", linewidth=1)
    axes.set_xlabel(f"times {result.peer} in the same run (median, range; red: the step to reach)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
