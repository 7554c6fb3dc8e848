"""What docs/conformance.md promises: every statement has a proof or a reason, and none is
invented."""

from tests.tidy import conformance_page


def test_each_statement_that_obliges_the_server_has_a_test_or_a_reason() -> None:
    assert not conformance_page.unproved(conformance_page.proofs())


def test_no_test_names_a_statement_that_does_not_exist() -> None:
    known = {
        statement.number
        for specification in conformance_page.specifications()
        for statement in specification.statements
    }
    assert not conformance_page.proofs().keys() - known


def test_no_statement_has_both_a_test_and_a_reason_for_having_none() -> None:
    found = conformance_page.proofs()
    both = [
        statement.number
        for specification in conformance_page.specifications()
        for statement in specification.statements
        if statement.number in found and statement.without
    ]
    assert not both


def test_the_page_is_what_the_tests_say() -> None:
    assert conformance_page.main() == 0, "run `make docs`"
