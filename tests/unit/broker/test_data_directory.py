"""The data directory: for whom it is made."""

from pathlib import Path

import pytest

from holdfast.broker.data_directory import held
from holdfast.core.errors import DirectoryError


def test_a_directory_that_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    for _start in range(2):
        with held(directory):
            assert directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with held(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_a_link_that_leads_nowhere_is_called_so(tmp_path: Path) -> None:
    link = tmp_path / "data"
    link.symlink_to(tmp_path / "gone")
    sentence = "data cannot be used: it is a symbolic link to .*/gone, which is not there"
    with pytest.raises(DirectoryError, match=sentence), held(link):
        pass
