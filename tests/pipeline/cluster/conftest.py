"""One standalone cluster for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.pipeline.cluster.standalone import standalone


@pytest.fixture(scope="package")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone(tmp_path_factory.mktemp("standalone")) as address:
        yield address
