"""Small faults in what makes a message outlive a crash, each with the tests that have to find it.

Owns: what is planted where. Never: plants it.

The text that a fault takes the place of has to be in its file once: `tests/tidy/test_mutants.py`
holds this list to the sources, so whoever changes a line here named carries its fault along.
"""

from dataclasses import dataclass

POWER = "kernel/tests/log_power.rs"
RETENTION = "kernel/tests/log_retention_power.rs"
STEPS = "kernel/tests/log_retention_steps.rs"
PROMISES = "tests/unit/broker/test_durability.py"
CONTROLS = "tests/unit/broker/test_control_records.py"
CURSORS = "tests/simulation/test_cursors.py"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    name: str
    """What is so with it, as a sentence."""
    file: str
    sound: str
    """What the file says, once."""
    faulty: str
    """What it says with the fault."""
    tests: tuple[str, ...]
    """File and name of each test that has to fail."""


RECOVERY = (
    Fault(
        "recovery does not write anew the bytes that no marker vouches for",
        "kernel/src/store/resync.rs",
        "        rewrite(segment, sure)?;\n",
        "",
        (f"{POWER}::what_a_start_shows_after_a_failed_sync_outlives_the_next_power_cut",),
    ),
    Fault(
        "recovery takes a checkpoint although the log begins behind it",
        "kernel/src/store/recovery.rs",
        "|position| first.is_some_and(|first| first <= position)",
        "|_| first.is_some()",
        (
            f"{RETENTION}::what_was_deleted_stays_deleted_wherever_retention_of_a_full_disk"
            "_is_cut_short",
        ),
    ),
    Fault(
        "recovery goes on behind a segment whose name was lost",
        "kernel/src/store/recovery.rs",
        "                    break gap && ",
        "                    break false && gap && ",
        (f"{POWER}::a_group_of_several_segments_is_there_from_its_start_up_to_some_place",),
    ),
    Fault(
        "append times begin again from the clock after a replay",
        "kernel/src/store/recovery.rs",
        "        head.time = head.time.max(record.appended_at.0);\n",
        "",
        (f"{POWER}::append_times_go_on_from_the_newest_record_whatever_the_clock_says",),
    ),
    Fault(
        "append times begin again from the clock after a checkpoint",
        "kernel/src/store/checkpoint.rs",
        "position: body.u64()?, time: body.u64()? }",
        "position: body.u64()?, time: body.u64()?.min(0) }",
        (f"{POWER}::append_times_go_on_from_the_newest_record_whatever_the_clock_says",),
    ),
    Fault(
        "recovery does not note a message for its publisher's identifiers",
        "kernel/src/store/recovery.rs",
        "                    self.derived.parties.note_message(record);\n",
        "",
        (f"{POWER}::a_stored_message_is_known_by_its_publishers_identifier_after_a_power_cut",),
    ),
)

FILES = (
    Fault(
        "a small file is renamed without being synced",
        "kernel/src/store/identity.rs",
        "    file.write_at(0, bytes)?;\n    file.sync()?;\n",
        "    file.write_at(0, bytes)?;\n",
        (f"{POWER}::the_log_keeps_its_identity_wherever_a_start_is_cut_short",),
    ),
    Fault(
        "a checkpoint is renamed without being synced",
        "kernel/src/store/checkpoint.rs",
        "        file.sync()?;\n",
        "",
        (f"{POWER}::a_checkpoint_that_was_committed_is_there_after_a_power_cut",),
    ),
    Fault(
        "the directory is not synced after a checkpoint was renamed",
        "kernel/src/store/checkpoint.rs",
        "            self.disk.sync_directory()?;\n",
        "",
        (f"{POWER}::a_checkpoint_that_was_committed_is_there_after_a_power_cut",),
    ),
    Fault(
        "a file that has gone is cut before that is durable",
        "kernel/src/store/nameless.rs",
        "            disk.sync_directory()?;\n",
        "",
        ("kernel/tests/log_nameless.rs::a_file_that_a_power_cut_brings_back_is_whole",),
    ),
    Fault(
        "a file that has gone is cut though a backup made of links has it",
        "kernel/src/store/nameless.rs",
        " && !file.is_held()",
        "",
        ("kernel/tests/log_nameless.rs::a_file_that_a_backup_made_of_links_has_stays_whole",),
    ),
    Fault(
        "a carry segment is renamed without being synced",
        "kernel/src/store/carry.rs",
        "        file.sync()\n",
        "        Ok(())\n",
        (f"{RETENTION}::what_a_queue_needs_is_there_wherever_retention_is_cut_short",),
    ),
    Fault(
        "the directory is not synced after a carry segment was renamed",
        "kernel/src/store/carry.rs",
        "        self.files.disk.sync_directory()?;\n",
        "",
        (f"{RETENTION}::what_a_queue_needs_is_there_wherever_retention_is_cut_short",),
    ),
)

RETAINING = (
    Fault(
        "retention goes on before what it wrote anew is durable",
        "kernel/src/store/retention.rs",
        "until >= end && records.durable_position() >= at);",
        "until >= end && at <= records.end_position());",
        (f"{STEPS}::nothing_is_looked_for_before_what_was_written_anew_is_durable",),
    ),
    Fault(
        "retention goes on before the checkpoint stands that it counts on",
        "kernel/src/store/retention.rs",
        "durable && (checkpointed >= end || records.space.is_low())",
        "durable",
        (f"{STEPS}::nothing_is_looked_for_before_a_checkpoint_stands_behind_the_range",),
    ),
    Fault(
        "control records in force are not carried with their range",
        "kernel/src/store/renewal.rs",
        "if table > 0 && records.derived.in_force.is(table, key, number) {",
        "if table > 99 && records.derived.in_force.is(table, key, number) {",
        (f"{RETENTION}::control_records_are_in_force_wherever_retention_is_cut_short",),
    ),
    Fault(
        "delivery states of parties at rest are not carried with their range",
        "kernel/src/store/renewal.rs",
        "if known.full_number < range.end_control {",
        "if known.full_number < 0 * range.end_control {",
        (
            f"{RETENTION}::delivery_states_of_parties_at_rest_outlive_their_records_without_a"
            "_checkpoint_too",
        ),
    ),
)

COMMITS = (
    Fault(
        "a commit does not sync what it wrote",
        "kernel/src/store/commit.rs",
        "                file.sync()?;\n",
        "                drop(file);\n",
        (f"{POWER}::a_group_of_several_segments_is_there_from_its_start_up_to_some_place",),
    ),
    Fault(
        "a commit does not sync the names of new segments",
        "kernel/src/store/commit.rs",
        "            if self.gathered.sync_directory {\n",
        "            if self.gathered.sync_directory && self.ends.position.0 == 0 {\n",
        (f"{POWER}::a_group_of_several_segments_is_there_from_its_start_up_to_some_place",),
    ),
    Fault(
        "a failed sync is tried again",
        "kernel/src/store/commit.rs",
        "                self.poisoned = true;\n",
        "",
        ("kernel/tests/log.rs::a_failed_sync_poisons_until_the_log_is_opened_again",),
    ),
    Fault(
        "the next group's marker vouches for a group that found no space",
        "kernel/src/store/group.rs",
        "        if self.has_begun {\n            self.revoke_marker(&mut gathered, tail, salt);\n",
        "        if false {\n            self.revoke_marker(&mut gathered, tail, salt);\n",
        (f"{POWER}::a_group_that_found_no_space_is_vouched_for_by_nobody_until_it_is_durable",),
    ),
    Fault(
        "a stored message is not noted for its publisher's identifiers",
        "kernel/src/store/records.rs",
        "        self.derived.parties.note_message(&record);\n",
        "",
        (f"{POWER}::a_stored_message_is_known_by_its_publishers_identifier_after_a_power_cut",),
    ),
)

RELEASED = (
    f"{POWER}::whoever_was_told_that_an_identifier_is_free_may_use_it_again_after_a_power_cut"
)
ANSWERS = (
    Fault(
        "a publisher's PUBREL is answered without a record of it",
        "kernel/src/delivery/admission.rs",
        "self.receivers.change(handle, |changes| changes.released.push(packet_identifier));",
        "",
        (RELEASED,),
    ),
    Fault(
        "PUBCOMP does not wait for the disk",
        "kernel/src/delivery/admission.rs",
        "        if is_durable {\n",
        "        if false && is_durable {\n",
        (RELEASED,),
    ),
    Fault(
        "PUBACK does not wait for the disk",
        "kernel/src/delivery/admission.rs",
        "self.answer(publish, parts, stored.durable_at, None);",
        "self.answer(publish, parts, LogPosition(0), None);",
        ("kernel/tests/delivery_cases.rs::nothing_is_answered_or_sent_before_it_is_durable",),
    ),
    Fault(
        "what waits for the disk waits for any part of it",
        "src/holdfast/broker/store/durability.py",
        "while self and self[0][0] <= durable_position:",
        "while self:",
        (
            f"{PROMISES}::test_a_session_that_is_kept_is_announced_when_it_is_durable",
            f"{PROMISES}::test_an_operators_change_is_answered_when_it_is_durable",
        ),
    ),
    Fault(
        "CONNACK does not wait for the disk",
        "src/holdfast/broker/mqtt/admission.py",
        "        if opened.position is None:\n",
        "        if opened is not None:\n",
        (
            f"{PROMISES}::test_a_session_that_is_kept_is_announced_when_it_is_durable",
            f"{PROMISES}::test_a_session_that_ends_is_gone_for_good_when_its_successor"
            "_is_announced",
        ),
    ),
    Fault(
        "SUBACK and UNSUBACK do not wait for the disk",
        "src/holdfast/broker/store/durability.py",
        "        if position is None:\n",
        "        if position is not False:\n",
        (f"{PROMISES}::test_subscriptions_of_a_kept_session_are_answered_when_they_are_durable",),
    ),
    Fault(
        "an operator's change does not wait for the disk",
        "src/holdfast/broker/store/durability.py",
        "        await kept\n",
        "",
        (
            f"{PROMISES}::test_an_operators_change_is_answered_when_it_is_durable",
            f"{PROMISES}::test_a_session_that_an_operator_removes_is_gone_for_good_when_that"
            "_is_answered",
        ),
    ),
)

VIEW = (
    Fault(
        "the view is kept although it is ahead of the log",
        "src/holdfast/broker/store/control_records.py",
        "        if ahead or has_missed:\n",
        "        if has_missed:\n",
        (f"{CONTROLS}::test_a_view_that_knows_what_the_log_has_lost_is_made_again",),
    ),
    Fault(
        "the view is kept although it has missed what was removed",
        "src/holdfast/broker/store/control_records.py",
        "self._view.applied() + 1 < self._log.whole_controls_from()",
        "self._view.applied() + 1 < 0 * self._log.whole_controls_from()",
        (f"{CONTROLS}::test_a_view_that_missed_what_was_removed_is_made_anew",),
    ),
    Fault(
        "the view is kept although it is ahead of the log by one record",
        "src/holdfast/broker/store/control_records.py",
        "self._view.applied() >= max(next_number, 1)",
        "self._view.applied() > max(next_number, 1)",
        (f"{CONTROLS}::test_a_view_that_knows_what_the_log_has_lost_is_made_again",),
    ),
)

PLACES = (
    Fault(
        "a cursor moves back when less is released",
        "src/holdfast/broker/delivery/cursors.py",
        "        if offset > self._queues.mark(record):\n"
        "            state = state_skip(self._state(record), offset)\n",
        "        if offset:\n            state = new_state(offset, [])\n",
        (f"{CURSORS}::test_releasing_again_or_less_changes_nothing",),
    ),
    Fault(
        "whoever asks has a cursor that another one holds",
        "src/holdfast/broker/delivery/cursors.py",
        'held_by in ("", holder) or',
        "bool(holder) or",
        (
            f"{CURSORS}::test_one_reader_holds_a_cursor_and_others_are_told_who_it_is",
            f"{CURSORS}::test_a_hold_ends_by_itself_and_not_while_its_holder_asks",
        ),
    ),
    Fault(
        "who holds a cursor is on no record",
        "src/holdfast/broker/delivery/cursors.py",
        "            self._put(cursor, replace(record, holder=holder, held_as=held_as), now_us)\n",
        "            cursor.record = replace(record, holder=holder, held_as=held_as)\n",
        (f"{CURSORS}::test_a_broker_that_was_cut_off_still_knows_who_holds_a_cursor",),
    ),
)

CASES = "kernel/tests/delivery_consumers.rs"
CONSUMERS = (
    Fault(
        "a consumer is given entries without permits",
        "kernel/src/delivery/consumer.rs",
        "self.permits > 0 && ",
        "",
        (f"{CASES}::nothing_is_given_without_permits_and_an_entry_may_take_them_below_zero",),
    ),
    Fault(
        "a consumer wants again what another has",
        "kernel/src/delivery/consumers.rs",
        "known.filter(|known| known.holder == member).map",
        "known.map",
        (f"{CASES}::nobody_can_want_again_what_another_has_or_what_nobody_has",),
    ),
    Fault(
        "to leave counts as wanting again",
        "kernel/src/delivery/consumers.rs",
        "take_back(queue, consumer, &held_by(queue, member), false);",
        "take_back(queue, consumer, &held_by(queue, member), true);",
        (f"{CASES}::what_comes_back_from_one_that_has_gone_keeps_its_count",),
    ),
    Fault(
        "what is done while it waits is given out again",
        "kernel/src/delivery/consumers.rs",
        "        // It may be at hand to be given out again.\n        group.look_again();\n",
        "",
        (f"{CASES}::what_waits_to_be_given_out_again_can_be_done",),
    ),
    Fault(
        "the rest of an entry is not read from the log",
        "kernel/src/delivery/admission.rs",
        "Offered::Later => queue.read_up_to(end),",
        "Offered::Later => {}",
        (f"{CASES}::a_session_that_falls_behind_inside_an_entry_reads_on_there",),
    ),
)

FAULTS = (*RECOVERY, *FILES, *RETAINING, *COMMITS, *ANSWERS, *VIEW, *PLACES, *CONSUMERS)
