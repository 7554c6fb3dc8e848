//! What receivers by permits are given, and what their settlements mean, case by case.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, clippy::panic, missing_docs)]

mod consumer_world;
mod delivery_support;

use consumer_world::{whole, World, PRODUCER, QUEUE};
use holdfast_kernel::delivery::Deliveries;
use holdfast_kernel::flow::entry::{Receipt, Reply, Says};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Departure, NoticeKind, Refusal, Sending, Terms};
use holdfast_kernel::ids::{Connection, Offset, Party, Receiver, TopicId};
use holdfast_kernel::limits::{
    ALLOT_BYTES_MAXIMUM, CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM, CONSUMER_UNSETTLED_MAXIMUM, QUEUE_ENTRIES_MAXIMUM,
};
use holdfast_kernel::selection::{Key, Owners, Selection};
use std::sync::Arc;

fn offsets(sent: &[Sending]) -> Vec<u64> {
    sent.iter().map(|sending| sending.offset.0).collect()
}

fn redeliveries(sent: &[Sending]) -> Vec<u16> {
    sent.iter().map(|sending| sending.redeliveries).collect()
}

/// Permits, and messages that it has.
fn room(world: &mut World, receiver: Receiver) -> (i64, u64) {
    let consumers = world.deliveries.consumers(world.queue).unwrap();
    let row = consumers.iter().find(|row| row.receiver == receiver).unwrap();
    (row.permits, row.in_flight)
}

#[test]
fn nothing_is_given_without_permits_and_an_entry_may_take_them_below_zero() {
    let mut world = World::new();
    let one = world.consumer(1, 0);
    world.publish(&[3, 4, 5]);
    world.commit();
    assert!(world.turns().is_empty());
    world.permit(one, 4);
    let sent = world.turns();
    assert_eq!(world.numbers_of(&sent, one), [0, 1]);
    assert_eq!(room(&mut world, one), (-3, 7));
    world.permit(one, 3);
    assert!(world.turns().is_empty());
    world.permit(one, 1);
    let sent = world.turns();
    assert_eq!(world.numbers_of(&sent, one), [2]);
    let Sending { qos, packet_identifier, redeliveries, connection, .. } = sent[0];
    assert_eq!((qos, packet_identifier, redeliveries, connection), (1, 0, 0, Connection(1)));
}

#[test]
fn nothing_leaves_before_it_is_durable() {
    let mut world = World::new();
    world.consumer(1, 10);
    world.publish(&[3]);
    assert!(world.turns().is_empty());
    world.commit();
    assert_eq!(offsets(&world.turns()), [0]);
}

// accepts: S4.129
#[test]
fn consumers_take_entries_in_turn_also_where_they_share_a_connection() {
    let mut world = World::new();
    let (one, two) = (world.consumer(1, 100), world.consumer(1, 100));
    world.publish(&[1, 2, 1, 1]);
    world.commit();
    let sent = world.turns();
    assert_eq!(world.numbers_of(&sent, one), [0, 2]);
    assert_eq!(world.numbers_of(&sent, two), [1, 3]);
}

#[test]
fn a_connection_that_takes_nothing_holds_all_on_it_back_also_who_comes_later() {
    let mut world = World::new();
    world.consumer(1, 100);
    world.deliveries.set_writable(Connection(1), false);
    world.consumer(1, 100);
    world.session(Connection(1), 100, 0);
    world.publish(&[1, 1]);
    world.commit();
    assert!(world.turns().is_empty());
    world.deliveries.set_writable(Connection(1), true);
    let sent = world.turns();
    let session = world.deliveries.receiver_on(Connection(1)).unwrap();
    assert_eq!(world.numbers_of(&sent, session), [0, 1]);
    assert_eq!(sent.len(), 4);
}

#[test]
fn a_session_beside_consumers_has_its_own_receiver_and_each_message_by_itself() {
    let mut world = World::new();
    let one = world.consumer(1, 100);
    world.session(Connection(1), 100, 0);
    world.publish(&[3, 2]);
    world.commit();
    let sent = world.turns();
    assert_eq!(world.numbers_of(&sent, one), [0, 1]);
    let session = world.deliveries.receiver_on(Connection(1)).unwrap();
    let own: Vec<Sending> = sent.into_iter().filter(|sending| sending.receiver == session).collect();
    assert_eq!(offsets(&own), [0, 1, 2, 3, 4]);
    assert!(own.iter().all(|sending| sending.packet_identifier > 0));
    assert_eq!(world.deliveries.queues().len(), 1);
}

#[test]
fn a_session_that_falls_behind_inside_an_entry_reads_on_there() {
    let mut world = World::new();
    world.session(Connection(2), u16::MAX, 0);
    world.page = 1;
    world.publish(&[QUEUE_ENTRIES_MAXIMUM as u32 - 2, 10]);
    world.commit();
    let all: Vec<u64> = (0..world.end().0).collect();
    assert_eq!(offsets(&world.turns()), all);
}

#[test]
fn a_session_that_takes_nothing_finds_all_messages_of_an_entry_later() {
    let mut world = World::new();
    (world.is_target, world.page) = (false, 1);
    world.session(Connection(2), u16::MAX, 0);
    world.deliveries.set_writable(Connection(2), false);
    world.publish(&[QUEUE_ENTRIES_MAXIMUM as u32 + 1]);
    world.commit();
    world.turns();
    world.publish(&[3]);
    world.commit();
    world.turns();
    world.deliveries.set_writable(Connection(2), true);
    let all: Vec<u64> = (0..world.end().0).collect();
    assert_eq!(offsets(&world.turns()), all);
}

#[test]
fn consumers_outlast_a_session_on_their_connection() {
    let mut world = World::new();
    let one = world.consumer(1, 100);
    world.session(Connection(1), 100, 0);
    let session = world.deliveries.receiver_on(Connection(1)).unwrap();
    world.deliveries.detach(session, std::iter::empty()).unwrap();
    assert!(world.deliveries.receiver_on(Connection(1)).is_none());
    world.others.clear();
    world.deliveries.set_writable(Connection(1), false);
    world.publish(&[1]);
    world.commit();
    assert!(world.turns().is_empty());
    world.deliveries.set_writable(Connection(1), true);
    assert_eq!(world.turns().len(), 1);
    world.deliveries.close(Connection(1)).unwrap();
    assert!(world.deliveries.detach_consumer(one).is_err());
}

#[test]
fn one_turn_gives_a_consumer_no_more_bytes_than_it_may() {
    let mut world = World::new();
    world.size_bytes = ALLOT_BYTES_MAXIMUM as u32 / 2;
    world.consumer(1, 100);
    world.publish(&[1; 7]);
    world.commit();
    assert_eq!(world.turn().len(), 3);
    assert!(world.deliveries.is_waiting());
    assert_eq!((world.turn().len(), world.turn().len()), (3, 1));
}

#[test]
fn a_message_of_an_entry_counts_for_its_part_of_the_bytes() {
    let mut world = World::new();
    world.size_bytes = 2 * ALLOT_BYTES_MAXIMUM as u32;
    world.session(Connection(2), 100, 0);
    world.publish(&[40]);
    world.commit();
    assert_eq!(world.turn().len(), 21);
}

#[test]
fn an_entry_that_is_gone_when_it_is_given_out_again_is_told_with_all_its_messages() {
    let mut world = World::new();
    let one = world.consumer(1, 10);
    world.publish(&[3, 1]);
    world.commit();
    world.turns();
    world.say(1, one, Says::AllAgain, &[], None);
    world.lost.insert(0);
    assert_eq!(offsets(&world.turns()), [3]);
    let gone = &world.deliveries.take_notices()[0];
    assert_eq!((gone.party, gone.kind, gone.count), (QUEUE, NoticeKind::Retention, 3));
    assert_eq!((gone.first, gone.end), (Offset(0), Offset(3)));
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(3));
}

#[test]
fn the_progress_of_a_queue_that_ends_with_its_consumer_is_not_remembered() {
    let mut world = World::new();
    world.deliveries.close_group(world.queue).unwrap();
    world.queue = world.deliveries.open_group(whole(Party::TRANSIENT, State::default(), 0));
    let one = world.consumer(1, 10);
    world.publish(&[3]);
    world.commit();
    world.turns();
    world.say(1, one, Says::Done, &[0], Some(1));
    world.turns();
    world.turns();
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(3));
    assert!(world.progress.is_empty());
    assert!(world.told.iter().any(|told| matches!(told, Departure::Reply(_))));
}

/// Consumers own one key each; entries have them in turn.
fn by_key(world: &mut World, owners: [Receiver; 2]) {
    let ranges = vec![(0, 1, owners[0]), (1, 2, owners[1])];
    let selection = Selection::ByKey(Key::Publisher, Arc::new(Owners::new(ranges).unwrap()));
    world.deliveries.select(world.queue, selection).unwrap();
}

#[test]
fn the_key_of_an_entry_is_what_the_log_says_and_moves_when_its_holder_has_nothing_of_it() {
    let mut world = World::new();
    let (one, two) = (world.consumer(1, 100), world.consumer(2, 100));
    by_key(&mut world, [one, two]);
    world.publish(&[1, 2, 1, 2]);
    world.commit();
    let sent = world.turns();
    assert_eq!((world.numbers_of(&sent, one), world.numbers_of(&sent, two)), (vec![0, 2], vec![1, 3]));
    world.say(2, two, Says::Again, &[1, 3], None);
    let sent = world.turns();
    assert_eq!(world.numbers_of(&sent, two), [1, 3]);
    // From now on the first owns both, but the second still has something.
    by_key(&mut world, [one, one]);
    world.publish(&[1, 1]);
    world.commit();
    let sent = world.turns();
    assert_eq!((world.numbers_of(&sent, one), world.numbers_of(&sent, two)), (vec![4], vec![]));
    world.say(2, two, Says::Done, &[1], None);
    assert!(world.turns().is_empty());
    world.say(2, two, Says::Again, &[3], None);
    let sent = world.turns();
    assert_eq!(world.numbers_of(&sent, one), [3, 5]);
}

#[test]
fn a_transient_session_without_room_is_told_how_many_messages_of_an_entry_it_misses() {
    let mut world = World::new();
    world.session(Connection(2), 1, 4);
    world.publish(&[10, 3]);
    world.commit();
    world.turns();
    let missed = world.deliveries.take_notices();
    let ranges: Vec<_> = missed.iter().map(|notice| (notice.kind, notice.first.0, notice.end.0)).collect();
    assert_eq!(ranges, [(NoticeKind::SlowReader, 4, 13)]);
    assert_eq!(missed[0].count, 9);
}

// accepts: S4.24
#[test]
fn what_is_done_is_acknowledged_with_all_its_messages_and_never_given_again() {
    let mut world = World::new();
    let one = world.consumer(1, 100);
    world.publish(&[3, 4, 5]);
    world.commit();
    world.turns();
    world.say(1, one, Says::Done, &[1], None);
    world.turns();
    let state = world.deliveries.group_state(world.queue).unwrap();
    assert_eq!((state.mark, state.acknowledged.iter().collect::<Vec<_>>()), (Offset(0), vec![(3, 7)]));
    world.say(1, one, Says::Done, &[0], None);
    world.turns();
    let mut durable = State::default();
    for (party, value) in &world.progress {
        assert_eq!(*party, QUEUE);
        durable.apply(value).unwrap();
    }
    assert_eq!(durable.mark, Offset(7));
    assert_eq!(room(&mut world, one).1, 5);
    world.deliveries.detach_consumer(one).unwrap();
    world.consumer(2, 100);
    assert_eq!(offsets(&world.turns()), [7]);
}

// accepts: S4.25
#[test]
fn done_up_to_is_for_all_before_whoever_has_them_and_for_what_waits() {
    let mut world = World::new();
    let (one, two) = (world.consumer(1, 3), world.consumer(2, 3));
    let gone = world.consumer(3, 3);
    world.publish(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    world.commit();
    world.turns();
    world.deliveries.detach_consumer(gone).unwrap();
    world.turns();
    assert_eq!(world.deliveries.backlog(world.queue).unwrap(), (Offset(9), 3));
    world.say(1, one, Says::DoneUpTo, &[5], None);
    assert_eq!((room(&mut world, one).1, room(&mut world, two).1), (1, 1));
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(6));
    // Of what was not given out nothing is done, however large the number.
    world.say(1, one, Says::DoneUpTo, &[u64::MAX - 1], None);
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(9));
    world.permit(two, 10);
    assert_eq!(offsets(&world.turns()), [9, 10]);
}

#[test]
fn what_waits_to_be_given_out_again_can_be_done() {
    let mut world = World::new();
    let (one, two) = (world.consumer(1, 4), world.consumer(2, 0));
    world.publish(&[1, 1, 1, 1]);
    world.commit();
    world.turns();
    world.say(1, one, Says::AllAgain, &[], None);
    world.permit(one, 1);
    assert_eq!(offsets(&world.turns()), [0]);
    // The others are at hand by now.
    world.say(1, one, Says::Done, &[1, 2], None);
    world.permit(two, 10);
    assert_eq!(offsets(&world.turns()), [3]);
    world.say(2, two, Says::Done, &[3, 0], None);
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(4));
    assert!(world.turns().is_empty() && !world.deliveries.is_waiting());
}

// accepts: S4.29 S4.31
#[test]
fn what_is_wanted_again_comes_ahead_of_what_is_new_in_order_and_is_counted() {
    let mut world = World::new();
    let one = world.consumer(1, 4);
    world.publish(&[1, 1, 1, 1, 1]);
    world.commit();
    world.turns();
    world.say(1, one, Says::Again, &[2], None);
    world.say(1, one, Says::Again, &[0], None);
    world.permit(one, 3);
    let sent = world.turns();
    assert_eq!((offsets(&sent), redeliveries(&sent)), (vec![0, 2, 4], vec![1, 1, 0]));
    world.say(1, one, Says::AllAgain, &[], None);
    world.permit(one, 5);
    let sent = world.turns();
    assert_eq!((offsets(&sent), redeliveries(&sent)), (vec![0, 1, 2, 3, 4], vec![2, 1, 2, 1, 1]));
}

#[test]
fn what_comes_back_goes_ahead_of_what_is_at_hand_again_already() {
    let mut world = World::new();
    let one = world.consumer(1, 3);
    world.publish(&[1, 1, 1]);
    world.commit();
    world.turns();
    world.say(1, one, Says::AllAgain, &[], None);
    world.permit(one, 1);
    assert_eq!(offsets(&world.turns()), [0]);
    world.say(1, one, Says::Again, &[0], None);
    world.permit(one, 3);
    assert_eq!(offsets(&world.turns()), [0, 1, 2]);
}

// accepts: S4.130
#[test]
fn what_comes_back_from_one_that_has_gone_keeps_its_count() {
    let mut world = World::new();
    let one = world.consumer(1, 2);
    world.publish(&[1, 1]);
    world.commit();
    world.turns();
    world.say(1, one, Says::Again, &[1], None);
    world.permit(one, 1);
    world.turns();
    world.deliveries.detach_consumer(one).unwrap();
    world.consumer(2, 2);
    let sent = world.turns();
    assert_eq!((offsets(&sent), redeliveries(&sent)), (vec![0, 1], vec![0, 1]));
    assert!(sent.iter().all(|sending| sending.again));
}

#[test]
fn one_that_does_not_count_wants_all_again_and_is_told_nothing() {
    let mut world = World::new();
    let one = world.consumer(1, 3);
    world.deliveries.join_consumer(world.queue, one, false).unwrap();
    world.publish(&[1, 1, 1]);
    world.commit();
    world.turns();
    world.say(1, one, Says::Again, &[2], None);
    world.permit(one, 3);
    let sent = world.turns();
    assert_eq!((offsets(&sent), redeliveries(&sent)), (vec![0, 1, 2], vec![0, 0, 0]));
    // Nor has it been counted for others.
    world.deliveries.detach_consumer(one).unwrap();
    world.consumer(2, 3);
    assert_eq!(redeliveries(&world.turns()), [0, 0, 0]);
}

#[test]
fn nobody_can_want_again_what_another_has_or_what_nobody_has() {
    let mut world = World::new();
    let (one, two) = (world.consumer(1, 1), world.consumer(2, 1));
    world.publish(&[1, 1]);
    world.commit();
    world.turns();
    world.permit(one, 10);
    world.permit(two, 10);
    world.say(1, one, Says::Again, &[1, 7, u64::MAX], None);
    world.say(1, one, Says::Done, &[7, u64::MAX], None);
    // Somebody else's number for a receiver counts for nothing.
    world.say(2, one, Says::AllAgain, &[], None);
    assert!(world.turns().is_empty());
}

#[test]
fn one_that_says_nothing_is_given_no_more_than_the_maximum() {
    let mut world = World::new();
    let one = world.consumer(1, u32::MAX);
    let half = CONSUMER_UNSETTLED_MAXIMUM as u32 / 2;
    world.publish(&[half, half - 1, 10, 1]);
    world.commit();
    assert_eq!(world.turns().len(), 3);
    world.say(1, one, Says::Done, &[2], None);
    assert_eq!(world.turns().len(), 1);
}

#[test]
fn one_that_takes_all_in_order_may_have_more() {
    let mut world = World::new();
    let alone = world.deliveries.attach_consumer(Connection(1)).unwrap();
    world.permit(alone, u32::MAX);
    world.deliveries.join_consumer(world.queue, alone, false).unwrap();
    let half = CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM as u32 / 2;
    world.publish(&[half, half - 1, 10, 1]);
    world.commit();
    assert_eq!(world.turns().len(), 3);
}

#[test]
fn permits_do_not_overflow() {
    let mut world = World::new();
    let one = world.consumer(1, 0);
    for _ in 0..10 {
        world.permit(one, u32::MAX);
    }
    assert_eq!(room(&mut world, one).0, 10 * i64::from(u32::MAX));
}

#[test]
fn permits_are_the_receivers_and_outlast_joining_and_leaving() {
    let mut world = World::new();
    let standby = world.deliveries.attach_consumer(Connection(1)).unwrap();
    world.permit(standby, 5);
    world.publish(&[2, 2]);
    world.commit();
    assert!(world.turns().is_empty());
    world.deliveries.join_consumer(world.queue, standby, false).unwrap();
    assert_eq!(offsets(&world.turns()), [0, 2]);
    world.deliveries.leave_consumer(world.queue, standby);
    // What it has said since is heard.
    world.say(1, standby, Says::Done, &[0], None);
    world.consumer(2, 9);
    assert_eq!(offsets(&world.turns()), [2]);
}

#[test]
fn a_receiver_takes_from_one_queue_and_windows_from_no_whole_one() {
    let mut world = World::new();
    let one = world.consumer(1, 5);
    let other = world.deliveries.open_group(whole(Party(51), State::default(), 0));
    assert!(world.deliveries.join_consumer(other, one, true).is_err());
    let own = world.session(Connection(2), 5, 0);
    assert!(world.deliveries.join_consumer(own, one, true).is_err());
    let session = world.deliveries.receiver_on(Connection(2)).unwrap();
    assert!(world.deliveries.join(world.queue, session, Terms::default()).is_err());
    assert!(world.deliveries.attach_consumer(Connection::GROUP).is_err());
}

#[test]
fn a_reply_waits_for_progress_and_comes_also_where_nothing_changed() {
    let mut world = World::new();
    let one = world.consumer(1, 5);
    world.publish(&[1]);
    world.commit();
    world.turns();
    world.told.clear();
    world.publish(&[1]);
    world.say(1, one, Says::Done, &[0], Some(8));
    world.say(1, one, Says::Done, &[0], Some(9));
    world.turn();
    assert!(world.told.iter().all(|told| !matches!(told, Departure::Reply(_))));
    world.commit();
    world.turn();
    let replies = world.told.iter().filter_map(|told| match told {
        Departure::Reply(Reply { connection, receiver, request }) => Some((connection.0, *receiver, *request)),
        _ => None,
    });
    assert_eq!(replies.collect::<Vec<_>>(), [(1, one, 8), (1, one, 9)]);
}

fn receipts(world: &World) -> Vec<Receipt> {
    let told = world.told.iter();
    told.filter_map(|told| if let Departure::Receipt(receipt) = told { Some(*receipt) } else { None }).collect()
}

#[test]
fn producers_get_receipts_in_order_once_their_entries_are_durable() {
    let mut world = World::new();
    world.publish(&[3, 1]);
    world.refuse(Refusal::Damaged);
    world.turns();
    assert!(receipts(&world).is_empty());
    world.commit();
    world.turns();
    let Receipt { connection, producer, sequence_first, sequence_last, topic, entry, refusal } = receipts(&world)[1];
    assert_eq!((connection, producer, sequence_first, sequence_last), (PRODUCER, 3, 10, 19));
    assert_eq!((topic, entry, refusal), (TopicId(0), 1, None));
    let all: Vec<_> = receipts(&world).iter().map(|receipt| (receipt.sequence_first, receipt.refusal)).collect();
    assert_eq!(all, [(0, None), (10, None), (770, Some(Refusal::Damaged))]);
    let counters = world.deliveries.counters();
    assert_eq!((counters.answered, counters.refused), (3, 1));
    // Nothing of a window is given back, for producers have none.
    assert!(world.deliveries.take_answered().is_empty());
    let refused: Vec<_> = world.deliveries.take_refused().into_iter().collect();
    assert_eq!(refused, [((PRODUCER, Refusal::Damaged), 1)]);
}

#[test]
fn receipts_outlast_consumers_of_their_connection_and_end_with_it() {
    let mut world = World::new();
    world.publish(&[1]);
    let one = world.consumer(PRODUCER.0, 1);
    world.publish(&[1]);
    world.deliveries.detach_consumer(one).unwrap();
    world.commit();
    world.turns();
    assert_eq!(receipts(&world).len(), 2);
    world.publish(&[1]);
    world.consumer(PRODUCER.0, 1);
    world.deliveries.close(PRODUCER).unwrap();
    assert!(world.deliveries.consumers(world.queue).unwrap().is_empty());
    // Its number stands for another connection now.
    world.consumer(PRODUCER.0, 0);
    world.commit();
    world.turns();
    assert_eq!(receipts(&world).len(), 2);
}

#[test]
fn an_entry_that_could_not_be_sent_is_done_and_costs_nothing() {
    let mut world = World::new();
    let one = world.consumer(1, 5);
    world.publish(&[3, 1]);
    world.commit();
    world.turns();
    world.deliveries.refuse_entry(one, Offset(0), NoticeKind::Retention);
    world.deliveries.refuse_entry(one, Offset(7), NoticeKind::Retention);
    assert_eq!(room(&mut world, one), (4, 1));
    let notices = world.deliveries.take_notices();
    assert_eq!((notices[0].party, notices[0].first, notices[0].count), (QUEUE, Offset(0), 3));
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(3));
}

#[test]
fn a_mark_inside_an_entry_gives_it_whole() {
    let mut world = World::new();
    world.publish(&[3, 4]);
    world.commit();
    world.turns();
    world.deliveries = Deliveries::default();
    let mut state = State::new(Offset(2));
    state.acknowledge(Offset(4), Offset(5));
    world.queue = world.deliveries.open_group(whole(QUEUE, state, 7));
    let one = world.consumer(1, 100);
    assert_eq!(offsets(&world.turns()), [0, 3]);
    world.say(1, one, Says::Done, &[0], None);
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(3));
    world.say(1, one, Says::Done, &[1], None);
    assert_eq!(world.deliveries.mark(world.queue).unwrap(), Offset(7));
}

#[test]
fn a_queue_that_is_gone_leaves_its_consumers_with_nothing() {
    let mut world = World::new();
    let one = world.consumer(1, 10);
    world.publish(&[2, 2]);
    world.commit();
    world.turns();
    world.say(1, one, Says::Done, &[0], None);
    let state = world.deliveries.close_group(world.queue).unwrap();
    assert_eq!(state.mark, Offset(2));
    world.say(1, one, Says::Done, &[1], None);
    world.queue = world.deliveries.open_group(whole(QUEUE, state, 4));
    world.deliveries.join_consumer(world.queue, one, true).unwrap();
    assert_eq!(room(&mut world, one), (6, 0));
    assert_eq!(offsets(&world.turns()), [2]);
}
