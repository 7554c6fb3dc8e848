"""One standalone cluster for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.pipeline.cluster.standalone import Standalone, standalone


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running
