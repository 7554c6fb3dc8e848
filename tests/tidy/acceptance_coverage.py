"""Say which numbered behaviours of docs/acceptance.md have a test that names them.

Usage: python -m tests.tidy.acceptance_coverage [--missing PREFIX]

Python tests name a behaviour with the marker `accepts`, which is read from the syntax tree, so that
a number in a comment or a string does not count; Rust tests with a comment on a line of its own,
`// accepts: S0.3, S0.4`.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict

from tests.tidy.repository import ROOT, files, name, under

ITEM = re.compile(r"^- \*\*(S\d+\.\d+)\*\*", re.MULTILINE)
RUST_MARK = re.compile(r"^\s*// accepts: (.+)$", re.MULTILINE)
NUMBER = re.compile(r"S\d+\.\d+")


def listed() -> list[str]:
    """Every number of the list, in its order."""
    return ITEM.findall((ROOT / "docs" / "acceptance.md").read_text())


def named() -> dict[str, set[str]]:
    """Number to the files of the tests that name it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in under("tests", ".py"):
        for number in _marked_in_python(path.read_text()):
            found[number].add(name(path))
    for path in files(".rs"):
        for mark in RUST_MARK.findall(path.read_text()):
            for number in NUMBER.findall(mark):
                found[number].add(name(path))
    return dict(found)


def _marked_in_python(source: str) -> list[str]:
    return [
        argument.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "accepts"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def main() -> int:
    """Print the coverage of each seed; exit code 1 if a test names a number that does not exist."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--missing", metavar="PREFIX", help="list numbers without a test, such as S0"
    )
    options = parser.parse_args()
    wanted, found = listed(), named()
    seeds = sorted({number.split(".")[0] for number in wanted})
    for seed in seeds:
        numbers = [number for number in wanted if number.startswith(f"{seed}.")]
        print(f"{seed}: {sum(number in found for number in numbers)} of {len(numbers)} have a test")
    if options.missing is not None:
        missing = [n for n in wanted if n not in found and n.startswith(options.missing)]
        print("without a test:", " ".join(missing))
    unknown = sorted(set(found) - set(wanted))
    for number in unknown:
        print(f"{number} is not in the list; named in {', '.join(sorted(found[number]))}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
