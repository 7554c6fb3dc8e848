"""What the tidy tests look at: the files of the project, and nothing built or ignored."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@cache
def files(*suffixes: str) -> tuple[Path, ...]:
    """Files under version control, and new ones that are not ignored, with these suffixes."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    found = (ROOT / name for name in sorted(set(listed)))
    return tuple(path for path in found if path.is_file() and path.name.endswith(suffixes or ("",)))


def under(folder: str, *suffixes: str) -> tuple[Path, ...]:
    """As `files`, below one folder."""
    return tuple(path for path in files(*suffixes) if path.is_relative_to(ROOT / folder))


def name(path: Path) -> str:
    """A path as one would type it from the root."""
    return path.relative_to(ROOT).as_posix()


def without_tests(rust: str) -> list[str]:
    """The lines of a Rust file before its test module, which stands last."""
    lines = rust.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#[cfg(test)]") and number + 1 < len(lines):
            following = lines[number + 1]
            # `mod tests;` names a file of its own, which `is_rust_test` knows.
            if following.startswith("mod ") and following.endswith("{"):
                return lines[:number]
    return lines


def is_rust_test(path: Path) -> bool:
    """True for a Rust file that is only compiled for tests, benchmarks or fuzzing."""
    parts = path.relative_to(ROOT).parts
    return bool({"tests", "benches", "fuzz"} & set(parts)) or path.stem in {"tests", "test"}
