//! The unified buffer beside a naive model with stamped bytes: nobody gets what a gate may touch, every page keeps
//! its bytes wherever it goes, and what is promised can be had.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::buffer::Buffer;
use common::frames::Kind;
use common::{Seeded, seeds};
use hicache_core::ids::Slot;
use hicache_core::unified::{End, Frame, Gate, Geometry, Grows, Part, Relief, Unified};

fn part(name: &str, grows: Grows, entry_bytes: u64, page: u32) -> Part {
    Part { name: name.into(), grows, entry_bytes, page, slots: None, least: 0 }
}

fn geometry(bytes: u64, up: u64, down: u64) -> Geometry {
    let parts = [part("kv", Grows::Down, down, 1), part("state", Grows::Up, up, 1)];
    Geometry::new(bytes, 1, &parts).unwrap()
}

/// Odd sizes, and sometimes fewer slots than frames.
fn any_geometry(random: &mut Seeded) -> Geometry {
    let mut one = |name: &str, grows| {
        let (entry, page) = (1 + random.below(9) as u64, 1 + u32::try_from(random.below(3)).unwrap());
        let slots = (random.below(3) == 0).then(|| 1 + u32::try_from(random.below(12)).unwrap());
        Part { slots, ..part(name, grows, entry, page) }
    };
    let parts = [one("state", Grows::Up), one("kv", Grows::Down)];
    Geometry::new(60 + random.below(200) as u64, 1, &parts).unwrap()
}

fn step(buffer: &mut Buffer, random: &mut Seeded) {
    let end = End::BOTH[random.below(2)];
    match random.below(12) {
        0..=3 => drop(buffer.take(end, random.below(6))),
        4..=6 => {
            let mut slots: Vec<Slot> =
                buffer.some(6).into_iter().filter(|at| at.0 == end).map(|at| at.1).collect();
            slots.sort_unstable();
            slots.dedup();
            buffer.give_back(end, &slots);
        }
        7 if buffer.gates().len() < 5 => {
            let kind =
                [Kind::Transfer, Kind::Transfer, Kind::Forward, Kind::Forward, Kind::Still][random.below(5)];
            let named = if kind == Kind::Still { Vec::new() } else { buffer.some(3) };
            buffer.open(kind, named);
        }
        7 | 8 => {
            let gates = buffer.gates();
            if !gates.is_empty() {
                buffer.close(gates[random.below(gates.len())]);
            }
        }
        9 => {
            if let Some(moves) = buffer.unified.compact(end, 1 + random.below(8)) {
                buffer.accept(moves);
            }
        }
        _ => {
            let (pages, more) = (random.below(10), buffer.unified.schedulable(end));
            let still = buffer.naive.gates.values().any(|&kind| kind == Kind::Still);
            let (ready, _) = buffer.relieve(end, pages);
            assert!(ready || pages > more, "what is schedulable can be had");
            assert!(still || !ready || pages <= more, "no more than what is schedulable can be had");
        }
    }
    buffer.check();
}

#[test]
fn beside_a_naive_model() {
    for seed in seeds(150) {
        let mut random = Seeded(seed);
        let mut buffer = Buffer::new(&any_geometry(&mut random), seed ^ 0x55);
        for _ in 0..200 {
            step(&mut buffer, &mut random);
        }
        buffer.gates().into_iter().for_each(|id| buffer.close(id));
        for end in End::BOTH {
            let slots: Vec<Slot> = buffer.pages.keys().filter(|at| at.0 == end).map(|at| at.1).collect();
            buffer.give_back(end, &slots);
        }
        buffer.check();
        assert_eq!(End::BOTH.map(|end| buffer.unified.span(end)), [0, 0], "an empty buffer is all gap");
    }
}

/// What fits together can be taken together, one end after the other.
#[test]
fn what_fits_is_had_by_both_ends() {
    for seed in seeds(300) {
        let mut random = Seeded(seed);
        let mut buffer = Buffer::new(&any_geometry(&mut random), seed);
        (0..60).for_each(|_| step(&mut buffer, &mut random));
        let need = [random.below(8), random.below(8)];
        let (fits, still) =
            (buffer.unified.fits(need), buffer.naive.gates.values().any(|&kind| kind == Kind::Still));
        let ends = if random.below(2) == 0 { End::BOTH } else { [End::Down, End::Up] };
        let had = ends.iter().all(|&end| {
            let need = need[end as usize];
            buffer.relieve(end, need).0 && buffer.take(end, need).is_some()
        });
        assert!(had >= fits && (still || had == fits), "seed {seed}");
    }
}

/// Six states of which four go: the other end needs room for 3 pages, and no more pages move than that takes.
#[test]
fn no_more_moves_than_the_need_asks_for() {
    // Sink 10; six states end at 70, eight pages of 5 begin at 70.
    let mut buffer = Buffer::new(&geometry(110, 10, 5), 1);
    let states = buffer.take(End::Up, 6).unwrap();
    buffer.take(End::Down, 8).unwrap();
    buffer.give_back(End::Up, &states[..4]);
    assert_eq!((buffer.unified.available(End::Down), buffer.unified.schedulable(End::Down)), (0, 8));
    assert_eq!(buffer.relieve(End::Down, 2), (true, 1));
    assert_eq!(buffer.relieve(End::Down, 8), (true, 1));
    assert_eq!(buffer.relieve(End::Down, 9), (false, 0));
    assert_eq!(buffer.take(End::Down, 8).unwrap().len(), 8);
    buffer.check();
}

/// A transfer's page stays in the way until it has landed; a forward is waited for.
#[test]
fn moves_wait_for_gates() {
    let mut buffer = Unified::new(geometry(110, 10, 5));
    let states = buffer.take(End::Up, 6).unwrap();
    buffer.take(End::Down, 8).unwrap();
    buffer.give_back(End::Up, &states[..4]).unwrap();

    let transfer = buffer.open(Gate::Transfer(vec![(End::Up, states[5])])).unwrap();
    assert_eq!((buffer.schedulable(End::Down), buffer.relieve(End::Down, 1)), (0, Relief::Short));
    buffer.close(transfer).unwrap();

    let still = buffer.open(Gate::Still).unwrap();
    assert_eq!((buffer.schedulable(End::Down), buffer.compact(End::Up, 9)), (0, None));
    buffer.close(still).unwrap();

    let forward = buffer.open(Gate::Forward { writes: vec![(End::Up, states[5])] }).unwrap();
    assert_eq!(buffer.schedulable(End::Down), 8);
    assert_eq!(buffer.relieve(End::Down, 1), Relief::Wait(vec![forward]));
    buffer.close(forward).unwrap();

    // What it writes and is given back stays nobody's, until it is through; what it can't be reading is free at once.
    let mut freed = Unified::new(geometry(110, 10, 5));
    let two = freed.take(End::Up, 2).unwrap();
    let forward = freed.open(Gate::Forward { writes: vec![(End::Up, two[0])] });
    freed.give_back(End::Up, &two).unwrap();
    assert_eq!((freed.pending(End::Up), freed.span(End::Up)), (1, 1));
    freed.close(forward.unwrap()).unwrap();
    assert_eq!((freed.pending(End::Up), freed.span(End::Up)), (0, 0));

    // One that only reads lets the page move, and keeps where it was.
    let forward = buffer.open(Gate::Forward { writes: Vec::new() }).unwrap();
    let Relief::Moves(moves) = buffer.relieve(End::Down, 2) else { panic!("a page moves") };
    assert_eq!((moves.end, moves.list.len(), moves.list[0].to), (End::Up, 1, Frame(1)));
    assert_eq!(buffer.frame(End::Up, states[5]), Some(Frame(1)), "the tables say so at once");
    buffer.close(moves.gate).unwrap();
    assert_eq!((buffer.available(End::Down), buffer.pending(End::Up)), (0, 1));
    assert_eq!(buffer.relieve(End::Down, 2), Relief::Wait(vec![forward]));
    buffer.close(forward).unwrap();
    assert_eq!((buffer.available(End::Down), buffer.pending(End::Up)), (2, 0));
    buffer.check().unwrap();
}

#[test]
fn tables_are_what_an_index_tensor_wants() {
    let mut buffer = Unified::new(geometry(60, 10, 5));
    let states = buffer.take(End::Up, 2).unwrap();
    assert_eq!(states, [Slot(1), Slot(2)]);
    assert_eq!(buffer.table(End::Up), [0, 1, 2, -1, -1, -1, -1]);
    buffer.give_back(End::Up, &states[..1]).unwrap();
    assert_eq!(buffer.table(End::Up)[..3], [0, -1, 2]);
    assert_eq!(buffer.geometry().address(End::Up, Frame(2)), 20..30);
    assert_eq!(buffer.frame(End::Up, Slot(0)), None, "the sink is nobody's");
}

#[test]
fn wrong_calls_change_nothing() {
    let mut buffer = Unified::new(geometry(60, 10, 5));
    let states = buffer.take(End::Up, 2).unwrap();
    let gate = buffer.open(Gate::Still).unwrap();
    buffer.close(gate).unwrap();
    let before = format!("{buffer:?}");
    let says = |error: hicache_core::Error, what: &str| assert!(error.to_string().contains(what), "{error}");
    says(buffer.give_back(End::Up, &[states[0], states[0]]).unwrap_err(), "slot 1 of state is named twice");
    says(buffer.give_back(End::Up, &[states[0], Slot(5)]).unwrap_err(), "slot 5 of state is not in use");
    says(buffer.give_back(End::Down, &[Slot(1)]).unwrap_err(), "slot 1 of kv is not in use");
    says(buffer.give_back(End::Up, &[Slot(0)]).unwrap_err(), "slot 0");
    says(buffer.give_back(End::Up, &[Slot(u32::MAX)]).unwrap_err(), "not in use");
    says(buffer.open(Gate::Transfer(vec![(End::Up, Slot(1)), (End::Up, Slot(3))])).unwrap_err(), "gate");
    says(buffer.close(gate).unwrap_err(), "not open");
    assert_eq!(buffer.take(End::Up, 4), None);
    assert_eq!(format!("{buffer:?}"), before);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let (up, down) = (part("state", Grows::Up, 16, 1), part("kv", Grows::Down, 8, 2));
    let refused = |bytes, align, parts: &[Part]| Geometry::new(bytes, align, parts).unwrap_err().to_string();
    let middle = part("swa", Grows::Between, 8, 1);
    assert!(
        refused(99, 1, &[up.clone(), middle, down.clone()]).contains("\"swa\" grows between the two ends")
    );
    for parts in [&[up.clone()][..], &[up.clone(), up.clone(), down.clone()], &[]] {
        assert!(refused(99, 1, parts).starts_with("parts: exactly one grows up"));
    }
    assert!(refused(99, 32, &[up.clone(), down.clone()]).starts_with("entry_bytes"));
    assert!(refused(99, 0, &[up.clone(), down.clone()]).starts_with("align"));
    assert!(refused(15, 1, &[up.clone(), down.clone()]).starts_with("bytes"));
    assert!(refused(1 << 34, 1, &[up.clone(), down.clone()]).contains("32 bits"));
    assert!(refused(99, 1, &[Part { page: 0, ..up.clone() }, down.clone()]).starts_with("parts"));
    let hungry = [Part { least: 3, ..up.clone() }, Part { least: 2, ..down.clone() }];
    assert!(refused(95, 1, &hungry).contains("95 are less than the 96 that one request needs"));
    assert!(Geometry::new(96, 1, &hungry).is_ok());
    assert!(
        refused(96, 1, &[Part { slots: Some(2), ..hungry[0].clone() }, down])
            .contains("never have more than 2")
    );
}
