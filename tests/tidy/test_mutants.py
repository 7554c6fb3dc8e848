"""The faults that `make mutants` plants still have a place in the sources, and tests that exist."""

import re

import pytest

from tests.mutants.faults import FAULTS, Fault
from tests.mutants.planting import FaultError, planted
from tests.tidy.repository import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_each_fault_has_one_place(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text()
    assert planted(fault, text) != text


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_the_tests_that_have_to_find_a_fault_exist(fault: Fault) -> None:
    assert fault.tests
    for test in fault.tests:
        file, name = test.split("::")
        assert re.search(rf"^ *(async )?(def|fn) {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_a_fault_whose_place_has_gone_is_told() -> None:
    fault = Fault("it is wrong", "a.py", "right", "wrong", ())
    for text in ("nothing", "right and right"):
        with pytest.raises(FaultError, match="it is wrong"):
            planted(fault, text)


def test_no_two_faults_have_the_same_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
