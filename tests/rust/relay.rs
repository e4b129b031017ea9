//! Stores whose calls others answer, late, wrongly or never.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::call::{Ask, Call, Reply};
use hicache_core::storage::{Desk, Keys, Outcome, PageMut, PageRef, Relay, Store};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const OURS: Fingerprint = Fingerprint([1; 32]);
const SOON: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

fn keys(count: u8) -> Vec<Digest> {
    (0..count).map(|at| Digest([at; 32])).collect()
}

fn named(digests: &[Digest]) -> Keys<'_> {
    Keys { identity: &OURS, digests }
}

/// A relay, its desk, and someone who answers every call.
fn relayed(
    timeout: Duration,
    answer: impl Fn(&Call) -> Option<Reply> + Send + 'static,
) -> (Relay, Arc<Desk>) {
    let desk = Arc::new(Desk::new(4));
    let taker = Arc::clone(&desk);
    thread::spawn(move || {
        while let Some(call) = taker.take() {
            if let Some(reply) = answer(&call) {
                call.answer(reply);
            }
        }
    });
    (Relay::new(Arc::clone(&desk), timeout, String::from("a relay")), desk)
}

fn count(desk: &Desk, name: &str) -> u64 {
    desk.counts.named().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Within bounds, whatever it does.
fn ends<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(act()));
    wait.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} never ends"))
}

#[test]
fn a_call_is_answered_by_another_thread() {
    let (relay, desk) = relayed(LONG, |call| match &call.ask {
        Ask::Exists => Some(Reply::Outcomes(vec![Outcome::Hit, Outcome::Absent])),
        Ask::Clear => Some(Reply::Number(7)),
        Ask::Close => Some(Reply::Number(0)),
        _ => Some(Reply::Failed("not this".to_owned())),
    });
    assert_eq!(relay.exists(named(&keys(2))), [Outcome::Hit, Outcome::Absent]);
    assert_eq!(relay.exists(named(&[])), [], "nobody is asked for nothing");
    assert_eq!(relay.remove(named(&keys(2))), [Outcome::Failed; 2]);
    assert_eq!(relay.clear(&OURS).unwrap(), 7);
    assert!(relay.list().unwrap_err().to_string().contains("not this"));
    assert_eq!(count(&desk, "calls"), 4);
    relay.close();
    assert_eq!(relay.exists(named(&keys(2))), [Outcome::Failed; 2]);
}

#[test]
fn pages_go_over_as_they_are() {
    let (relay, _desk) = relayed(LONG, |call| {
        let Ask::Put(pages, parents) = &call.ask else { return Some(Reply::Number(0)) };
        let sizes: Vec<Vec<usize>> =
            pages.iter().map(|page| page.0.iter().map(|run| run.1).collect()).collect();
        assert_eq!(sizes, [vec![3, 0, 2]]);
        assert_eq!(parents, &[Some(Digest([9; 32]))]);
        Some(Reply::Outcomes(vec![Outcome::Hit]))
    });
    let page = PageRef::new(vec![b"abc", b"", b"de"]);
    assert_eq!(relay.put(named(&keys(1)), &[Some(Digest([9; 32]))], &[page]), [Outcome::Hit]);
    let statistics = relay.statistics();
    assert_eq!((statistics.written_pages, statistics.written_bytes), (1, 5));
}

#[test]
fn answers_that_nobody_can_believe_are_failures() {
    for (answer, expected) in [
        (vec![Outcome::Hit], [Outcome::Failed; 2]),
        (vec![Outcome::Hit; 3], [Outcome::Failed; 2]),
        (vec![], [Outcome::Failed; 2]),
        // A key that can't be what it is said to be has failed; the other one has not.
        (vec![Outcome::Corrupt, Outcome::Hit], [Outcome::Failed, Outcome::Hit]),
        (vec![Outcome::Hit, Outcome::Declined], [Outcome::Hit, Outcome::Failed]),
    ] {
        let said = answer.clone();
        let (relay, desk) = relayed(LONG, move |_| Some(Reply::Outcomes(said.clone())));
        assert_eq!(relay.exists(named(&keys(2))), expected, "{answer:?}");
        assert!(count(&desk, "nonsense") > 0);
    }
    let (relay, _desk) = relayed(LONG, |_| Some(Reply::Number(3)));
    assert_eq!(relay.exists(named(&keys(2))), [Outcome::Failed; 2]);
}

#[test]
fn what_lends_no_memory_is_given_up_in_time() {
    let (relay, desk) = relayed(SOON, |_| None);
    assert_eq!(relay.exists(named(&keys(3))), [Outcome::TimedOut; 3]);
    assert_eq!(count(&desk, "timed_out"), 1);
    let late = ends("the watch", move || desk.late()).unwrap();
    assert!(!late.answer(Reply::Outcomes(vec![Outcome::Hit; 3])), "it comes too late");
}

#[test]
fn what_nobody_takes_is_given_up_and_never_handed_out() {
    let desk = Arc::new(Desk::new(1));
    let relay = Arc::new(Relay::new(Arc::clone(&desk), SOON, String::from("a relay")));
    let mut buffer = [0; 8];
    let outcomes = relay.get(named(&keys(1)), &mut [PageMut::from(&mut buffer[..])]);
    assert_eq!(outcomes, [Outcome::TimedOut]);
    // It still lies there, and fills the desk: the next one finds no room in time.
    assert_eq!(relay.exists(named(&keys(1))), [Outcome::TimedOut]);
    let taker = Arc::clone(&desk);
    let nobody = thread::spawn(move || taker.take());
    thread::sleep(SOON / 4);
    assert!(!nobody.is_finished(), "a call whose asker has gone is taken by nobody");
    desk.close();
    assert!(nobody.join().unwrap().is_none());
}

/// A call that has memory isn't over before whoever took it has let go: then it is timed out.
#[test]
fn lent_memory_comes_back_first() {
    let (relay, desk) = relayed(SOON, |call| (!call.lends()).then_some(Reply::Number(0)));
    let asked = thread::spawn(move || {
        let mut buffer = [0; 8];
        let outcomes = relay.get(named(&keys(1)), &mut [PageMut::from(&mut buffer[..])]);
        (outcomes, relay)
    });
    let watch = Arc::clone(&desk);
    let late = ends("the watch", move || watch.late()).unwrap();
    for again in 0..2 {
        thread::sleep(SOON);
        assert!(!asked.is_finished(), "the memory is still lent");
        desk.keep(Arc::clone(&late), again == 0);
        let watch = Arc::clone(&desk);
        let same = ends("the watch", move || watch.late()).unwrap();
        assert!(Arc::ptr_eq(&same, &late), "it is handed out again");
    }
    assert_eq!(count(&desk, "kept"), 1);
    assert!(late.answer(Reply::TimedOut));
    let (outcomes, relay) = ends("the call", move || asked.join().unwrap());
    assert_eq!(outcomes, [Outcome::TimedOut]);
    drop(relay);
    assert!(ends("the watch", move || desk.late()).is_none());
}

#[test]
fn close_ends_although_nobody_answers() {
    let desk = Arc::new(Desk::new(2));
    let relay = Arc::new(Relay::new(Arc::clone(&desk), LONG, String::from("a relay")));
    // One is taken, two wait on the desk, more find no room there.
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let relay = Arc::clone(&relay);
            thread::spawn(move || relay.exists(named(&keys(2))))
        })
        .collect();
    let taker = Arc::clone(&desk);
    let call = ends("the taker", move || taker.take()).unwrap();
    desk.close();
    let watch = Arc::clone(&desk);
    assert!(Arc::ptr_eq(&ends("the watch", move || watch.late()).unwrap(), &call), "it is late now");
    call.answer(Reply::TimedOut);
    let mut said: Vec<_> =
        callers.into_iter().map(|caller| ends("a caller", move || caller.join().unwrap())).collect();
    said.sort_unstable_by_key(|outcomes| outcomes[0] as u8);
    assert_eq!(said[..4], vec![vec![Outcome::Failed; 2]; 4], "they waited, on the desk or for room there");
    assert_eq!(said[4], [Outcome::TimedOut; 2]);
    assert_eq!(relay.exists(named(&keys(1))), [Outcome::Failed]);
    assert!(ends("the watch", move || desk.late()).is_none());
}

#[test]
fn who_waits_is_told_when_the_relay_is_gone() {
    let desk = Arc::new(Desk::new(2));
    let relay = Relay::new(Arc::clone(&desk), LONG, String::from("a relay"));
    let (taker, watch) = (Arc::clone(&desk), Arc::clone(&desk));
    let waiting = [thread::spawn(move || taker.take()), thread::spawn(move || watch.late())];
    drop(relay);
    for thread in waiting {
        assert!(ends("a wait", move || thread.join().unwrap()).is_none());
    }
    assert!(desk.is_closed());
}
