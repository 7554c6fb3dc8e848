"""The data directory: for whom it is made."""

from pathlib import Path

from holdfast.broker.data_directory import held


def test_a_directory_that_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    for _start in range(2):
        with held(directory):
            assert directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with held(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o750
