//! Stores whose calls others answer, late, wrongly or never; and stores that aren't trusted with bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

use hicache_core::Result;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::call::{Ask, Call, Reply};
use hicache_core::storage::{
    Desk, Held, Keys, Outcome, PageMut, PageRef, Relay, Statistics, Store, Verified, seal,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const OURS: Fingerprint = Fingerprint([1; 32]);
const THEIRS: Fingerprint = Fingerprint([2; 32]);
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

type Name = ([u8; 32], [u8; 32]);

/// Objects by name, which tests may touch. What it keeps is judged by nobody.
#[derive(Default)]
struct Objects(Mutex<BTreeMap<Name, Vec<u8>>>);

impl Objects {
    fn each(
        &self,
        keys: Keys<'_>,
        act: impl Fn(usize, Name, &mut BTreeMap<Name, Vec<u8>>) -> bool,
    ) -> Vec<Outcome> {
        let mut objects = self.0.lock().unwrap();
        let outcome = |hit| if hit { Outcome::Hit } else { Outcome::Absent };
        let name = |key: &Digest| (keys.identity.0, key.0);
        keys.digests.iter().enumerate().map(|(at, key)| outcome(act(at, name(key), &mut objects))).collect()
    }
}

impl Store for Objects {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, name, objects| objects.contains_key(&name))
    }
    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let pages = Mutex::new(pages);
        self.each(keys, |at, name, objects| {
            let Some(object) = objects.get(&name) else { return false };
            let mut cut = object.clone();
            cut.resize(pages.lock().unwrap()[at].bytes(), 0);
            pages.lock().unwrap()[at].fill_from(&cut)
        })
    }
    fn put(&self, keys: Keys<'_>, _: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, name, objects| {
            objects.entry(name).or_insert_with(|| pages[at].to_vec());
            true
        })
    }
    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, name, objects| objects.remove(&name).is_some())
    }
    fn clear(&self, _: &Fingerprint) -> Result<u64> {
        Ok(0)
    }
    fn statistics(&self) -> Statistics {
        Statistics { read_pages: 10, read_bytes: 10_000, ..Statistics::default() }
    }
    fn describe(&self) -> String {
        String::from("objects")
    }
    fn list(&self) -> Result<Vec<Held>> {
        let held = |(name, object): (&Name, &Vec<u8>)| Held {
            identity: Fingerprint(name.0),
            digest: Digest(name.1),
            bytes: object.len() as u64,
            age: 0,
        };
        Ok(self.0.lock().unwrap().iter().map(held).collect())
    }
    fn close(&self) {}
}

type Mistake = Box<dyn Fn(&mut BTreeMap<Name, Vec<u8>>)>;

fn read(store: &Verified, identity: &Fingerprint, key: u8, size: usize) -> (Outcome, Vec<u8>) {
    let mut buffer = vec![0; size];
    let (left, right) = buffer.split_at_mut(size / 3);
    let digests = [Digest([key; 32])];
    let keys = Keys { identity, digests: &digests };
    let outcome = store.get(keys, &mut [PageMut::new(vec![left, right])])[0];
    (outcome, buffer)
}

/// Every byte of an object, seal and payload, and every other mistake: none is served, and each is mended.
#[test]
fn no_mistake_of_a_store_is_served() {
    let page = b"seven bytes and more".to_vec();
    let fresh = || {
        let objects = Arc::new(Objects::default());
        let store = Verified::new(Arc::clone(&objects) as Arc<dyn Store>);
        for key in [0, 1] {
            let payload = if key == 0 { page.clone() } else { vec![key; page.len()] };
            store.put(named(&[Digest([key; 32])]), &[None], &[PageRef::from(&payload[..])]);
        }
        (objects, store)
    };
    let (ours, theirs, other) = ((OURS.0, [0; 32]), (THEIRS.0, [0; 32]), (OURS.0, [1; 32]));
    let mut mistakes: Vec<Mistake> = Vec::new();
    for at in 0..seal::BYTES + page.len() {
        mistakes.push(Box::new(move |objects| objects.get_mut(&ours).unwrap()[at] ^= 0x40));
    }
    mistakes.push(Box::new(move |objects| objects.get_mut(&ours).unwrap().truncate(3)));
    mistakes.push(Box::new(move |objects| objects.get_mut(&ours).unwrap().clear()));
    mistakes.push(Box::new(move |objects| {
        let wrong = objects[&other].clone();
        objects.insert(ours, wrong);
    }));
    for mistake in mistakes {
        let (objects, store) = fresh();
        assert_eq!(read(&store, &OURS, 0, page.len()), (Outcome::Hit, page.clone()));
        mistake(&mut objects.0.lock().unwrap());
        assert_eq!(read(&store, &OURS, 0, page.len()).0, Outcome::Corrupt);
        assert_eq!(store.statistics().corrupt_pages, 1);
        assert_eq!(store.statistics().read_pages, 9, "what was rejected is no page read");
        assert_eq!(read(&store, &OURS, 0, page.len()).0, Outcome::Absent, "it was taken away");
        store.put(named(&keys(1)), &[None], &[PageRef::from(&page[..])]);
        assert_eq!(read(&store, &OURS, 0, page.len()), (Outcome::Hit, page.clone()));
    }
    let (objects, store) = fresh();
    let stolen = objects.0.lock().unwrap()[&ours].clone();
    objects.0.lock().unwrap().insert(theirs, stolen);
    assert_eq!(read(&store, &THEIRS, 0, page.len()).0, Outcome::Corrupt, "another identity's page");
    // Another length than was put.
    assert_eq!(read(&store, &OURS, 0, page.len() - 1).0, Outcome::Corrupt);
}

#[test]
fn sizes_are_those_of_payloads() {
    let store = Verified::new(Arc::new(Objects::default()));
    store.put(named(&keys(2)), &[None; 2], &[PageRef::from(&[1; 77][..]), PageRef::from(&[][..])]);
    let sizes: Vec<u64> = store.list().unwrap().iter().map(|held| held.bytes).collect();
    assert_eq!(sizes, [77, 0]);
    assert_eq!(store.exists(named(&keys(3))), [Outcome::Hit, Outcome::Hit, Outcome::Absent]);
    assert!(store.describe().contains("verified"));
}
