//! Breaks each invariant of the buffer on purpose and sees the checker object.

use super::side::State;
use super::{End, Gate, Geometry, Grows, Part, Unified};
use crate::ids::Slot;

fn part(name: &str, grows: Grows, entry_bytes: u64, page: u32) -> Part {
    Part { name: name.into(), grows, entry_bytes, page, slots: None, least: 0 }
}

/// States of 40 bytes up, pages of 2 tokens of 8 bytes down; three states and four pages, of which one of each
/// is parked, one a hole, and one gate of each kind is open.
fn buffer() -> Unified {
    let parts = [part("state", Grows::Up, 40, 1), part("kv", Grows::Down, 8, 2)];
    let mut buffer = Unified::new(Geometry::new(400, 8, &parts).unwrap());
    let states = buffer.take(End::Up, 3).unwrap();
    let pages = buffer.take(End::Down, 4).unwrap();
    buffer.give_back(End::Up, &states[..1]).unwrap();
    buffer.open(Gate::Transfer(vec![(End::Down, pages[1]), (End::Up, states[1])])).unwrap();
    buffer.open(Gate::Forward { writes: vec![(End::Down, pages[2])] }).unwrap();
    buffer.open(Gate::Still).unwrap();
    buffer.give_back(End::Down, &pages[..2]).unwrap();
    buffer.check().unwrap();
    buffer
}

fn objects(break_it: impl FnOnce(&mut Unified), invariant: &str) {
    let mut buffer = buffer();
    break_it(&mut buffer);
    let error = buffer.check().unwrap_err().to_string();
    assert!(error.contains(invariant), "expected {invariant}, got: {error}");
}

const UP: usize = End::Up as usize;
const DOWN: usize = End::Down as usize;

#[test]
fn u1_spans() {
    objects(|b| b.sides[DOWN].span += 1, "U1");
    objects(|b| b.sides[DOWN].live += 1, "U1");
    objects(|b| b.sides[DOWN].parked -= 1, "U1");
    objects(|b| assert!(b.sides[UP].holes.pop_first().is_some()), "U1");
    objects(|b| b.sides[UP].states[7] = State::Parked(None), "U1");
}

#[test]
fn u2_frontiers() {
    objects(
        |b| {
            // The buffer becomes smaller than what is in it.
            let parts = [part("state", Grows::Up, 40, 1), part("kv", Grows::Down, 8, 2)];
            b.geometry = Geometry::new(200, 8, &parts).unwrap();
            for (end, side) in End::BOTH.into_iter().zip(&mut b.sides) {
                let frames = b.geometry.frames(end);
                side.states.truncate(frames as usize);
                side.table.truncate(frames as usize + 1);
                side.table.push(-1);
                side.free_slots.retain(|slot| slot.0 <= frames);
                for (distance, state) in (0..).zip(&side.states) {
                    if let State::Live(slot) = state {
                        side.table[slot.0 as usize] = b.geometry.frame(end, distance).0.cast_signed();
                    }
                }
            }
        },
        "U2",
    );
}

#[test]
fn u3_tables() {
    objects(|b| b.sides[DOWN].table[0] = -1, "U3");
    objects(|b| b.sides[DOWN].table[3] += 1, "U3");
    objects(|b| *b.sides[DOWN].table.last_mut().unwrap() = 0, "U3");
    objects(|b| b.sides[DOWN].states[3] = State::Live(Slot(3)), "U3");
}

#[test]
fn u4_slots() {
    objects(|b| assert!(b.sides[DOWN].free_slots.pop().is_some()), "U4");
    objects(|b| b.sides[DOWN].free_slots.push(Slot(1)), "U4");
    objects(|b| b.sides[DOWN].states[0] = State::Parked(None), "U4");
}

#[test]
fn u5_ties() {
    objects(|b| b.sides[DOWN].ties[2][0] += 1, "U5");
    objects(|b| assert!(b.sides[DOWN].tied.remove(&2)), "U5");
    objects(|b| assert!(b.sides[DOWN].tied_long.remove(&1)), "U5");
    objects(|b| b.gates.still = 0, "U5");
    objects(|b| drop(b.gates.open.pop_first()), "U5");
}

#[test]
fn u6_what_is_parked_waits() {
    objects(|b| b.sides[DOWN].parked_long -= 1, "U6");
    // A gate over a hole: somebody will get what it touches.
    objects(|b| b.gates.open.values_mut().for_each(|open| open.tied.push((End::Up, 0))), "U5");
    objects(
        |b| {
            let id = b.gates.of_moved()[0];
            b.tie_all(End::Up, 0, &[id]);
        },
        "U6",
    );
    objects(
        |b| {
            // All gates forget what they touch.
            b.gates.open.values_mut().for_each(|open| open.tied.clear());
            for side in &mut b.sides {
                side.ties.fill([0; 2]);
                side.tied.clear();
                side.tied_long.clear();
            }
        },
        "U6",
    );
}

#[test]
fn u7_capacities() {
    for end in End::BOTH {
        let (buffer, kept) = (buffer(), buffer().available(end));
        buffer.check_capacity(end, kept).unwrap();
        for wrong in [kept + 1, kept.wrapping_sub(1)] {
            let error = buffer.check_capacity(end, wrong).unwrap_err().to_string();
            assert!(error.contains("U7"), "expected U7, got: {error}");
        }
    }
}
