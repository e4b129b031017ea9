//! A pool's slots: free, out (with the engine or a transfer), or placed (a page of the tree lives there).
//!
//! The states make a double free or a slot that two pages claim an error instead of wrong bytes. Which free slot goes
//! next is the pool's own business, or that of a buffer that its slots are names in ([`SlotPool::named`]). Free slots with
//! something in them that may still be of use (*left*, by a process before this one) go last, and can be asked for by number.

use crate::error::{Result, argument};
use crate::ids::Slot;
use crate::lanes;
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Free, with something in it that may still be of use.
    Left,
    /// Out, and was asked for by its number for what is left in it.
    Claimed,
    Out,
    Placed,
    /// Out, and met by the check that is running.
    Named,
    /// Nobody's, ever: what padded accesses hit.
    Sink,
}

/// The slots of one tier.
#[derive(Debug)]
pub struct SlotPool {
    states: Vec<State>,
    /// Used from the end; filled so that low numbers go first.
    free: Vec<Slot>,
    /// So many are free, where a buffer says which.
    elsewhere: Option<usize>,
    left: Leftovers,
}

/// The slots that something is left in.
#[derive(Debug, Default)]
struct Leftovers {
    /// Those that are left or claimed, each once, and some that are neither any more. The last one goes first.
    order: VecDeque<Slot>,
    /// How many are.
    now: usize,
    claimed: usize,
    adopted: u64,
    given_up: u64,
}

impl SlotPool {
    /// All slots free.
    pub fn new(slots: u32) -> Self {
        let free = (0..slots).rev().map(Slot).collect();
        Self { states: vec![State::Free; slots as usize], free, elsewhere: None, left: Leftovers::default() }
    }

    /// All slots free. Something is left in some of them; the first one in this order goes last.
    pub fn with_left(slots: u32, left: &[Slot]) -> Self {
        let mut pool = Self::new(slots);
        left.iter().for_each(|slot| pool.states[slot.0 as usize] = State::Left);
        let states = &pool.states;
        pool.free.retain(|slot| states[slot.0 as usize] == State::Free);
        pool.left =
            Leftovers { order: left.iter().copied().collect(), now: left.len(), ..Leftovers::default() };
        pool
    }

    /// All slots out: somebody else allocates.
    pub fn all_out(slots: u32) -> Self {
        Self {
            states: vec![State::Out; slots as usize],
            free: Vec::new(),
            elsewhere: None,
            left: Leftovers::default(),
        }
    }

    /// Slots 1 to `slots`, all free, of a buffer that hands them out ([`SlotPool::hand_out`]); slot 0 is its sink.
    pub fn named(slots: u32) -> Self {
        let states = std::iter::once(State::Sink).chain(std::iter::repeat_n(State::Free, slots as usize));
        let left = Leftovers::default();
        Self { states: states.collect(), free: Vec::new(), elsewhere: Some(slots as usize), left }
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.states.len() - usize::from(self.elsewhere.is_some())
    }

    /// Slots that are free.
    pub fn free(&self) -> usize {
        self.elsewhere.unwrap_or(self.free.len() + self.left.now)
    }

    /// Slots that are with the engine or a transfer. Counts them one by one.
    pub fn out(&self) -> usize {
        self.states.iter().filter(|&&state| matches!(state, State::Out | State::Claimed)).count()
    }

    /// These.
    pub fn outs(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..).zip(&self.states).filter(|&(_, &state)| state == State::Out).map(|(slot, _)| Slot(slot))
    }

    /// Slots that a buffer chose are out.
    pub fn hand_out(&mut self, slots: &[Slot]) {
        for &slot in slots {
            debug_assert_eq!(self.states[slot.0 as usize], State::Free);
            self.states[slot.0 as usize] = State::Out;
        }
        self.elsewhere = self.elsewhere.map(|free| free - slots.len());
    }

    /// Whether a slot is free, or doesn't exist.
    pub fn is_free(&self, slot: Slot) -> bool {
        self.states.get(slot.0 as usize).is_none_or(|&state| matches!(state, State::Free | State::Left))
    }

    /// Whether a slot is free and nothing is left in it.
    pub fn is_empty(&self, slot: Slot) -> bool {
        self.states.get(slot.0 as usize) == Some(&State::Free)
    }

    /// Takes `count` slots out, or none if there are fewer. Of a buffer's slots it can't choose any.
    pub fn take(&mut self, count: usize) -> Option<Vec<Slot>> {
        self.free().checked_sub(count)?;
        let keep = self.free.len().saturating_sub(count);
        let mut slots = self.free.split_off(keep);
        slots.reverse();
        while slots.len() < count {
            slots.push(self.give_up()?);
        }
        for slot in &slots {
            self.states[slot.0 as usize] = State::Out;
        }
        Some(slots)
    }

    /// # Errors
    /// When a slot doesn't exist, is not out, or is named twice. Nothing was changed.
    pub fn check_out(&mut self, name: &'static str, slots: &[Slot]) -> Result<()> {
        // Most come as they were handed out: in a row, so that none is named twice.
        if let Some(states) = row(slots).and_then(|row| self.states.get(row))
            && all(states, State::Out)
        {
            return Ok(());
        }
        // Each is marked when it is met, so that one that is named twice is met as marked.
        let mut wrong = None;
        let mut met = 0;
        for &slot in slots {
            match self.states.get_mut(slot.0 as usize) {
                Some(state) if *state == State::Out => *state = State::Named,
                state => {
                    wrong = Some((slot, state.map(|state| *state)));
                    break;
                }
            }
            met += 1;
        }
        slots[..met].iter().for_each(|slot| self.states[slot.0 as usize] = State::Out);
        let Some((slot, state)) = wrong else { return Ok(()) };
        let why = match state {
            None => format!("does not exist: the pool has {}", self.capacity()),
            Some(State::Sink) => "is the sink, which is nobody's".to_owned(),
            Some(State::Free | State::Left) => "is free".to_owned(),
            Some(State::Placed) => "belongs to a cached page".to_owned(),
            Some(State::Named | State::Out | State::Claimed) => "is named twice".to_owned(),
        };
        argument(name, format!("slot {} {why}", slot.0))
    }

    /// Pages of the tree live there from now on.
    pub fn place(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.left.adopted += u64::from(self.returned(slot));
            self.states[slot.0 as usize] = State::Placed;
        }
    }

    /// The pages left; the slots are out again.
    pub fn displace(&mut self, slots: &[Slot]) {
        for &slot in slots {
            debug_assert_eq!(self.states[slot.0 as usize], State::Placed);
            self.states[slot.0 as usize] = State::Out;
        }
    }

    /// Slots that are out are free again. What lies in a row is handed out in ascending order again, so
    /// that copies of it are few and long.
    pub fn give_back(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.left.given_up += u64::from(self.returned(slot));
            self.states[slot.0 as usize] = State::Free;
        }
        if let Some(free) = &mut self.elsewhere {
            *free += slots.len();
        } else if slots.first() < slots.last() {
            self.free.extend(slots.iter().rev());
        } else {
            self.free.extend(slots);
        }
    }

    /// Whether a slot is out no more that was; and whether it was asked for.
    fn returned(&mut self, slot: Slot) -> bool {
        let state = self.states[slot.0 as usize];
        debug_assert!(matches!(state, State::Out | State::Claimed), "a slot that is out: {state:?}");
        let claimed = state == State::Claimed;
        self.left.claimed -= usize::from(claimed);
        claimed
    }

    /// The slot of those with something left in them that is worth least: nothing is left in it from now on.
    fn give_up(&mut self) -> Option<Slot> {
        loop {
            let slot = self.left.order.pop_back()?;
            match &mut self.states[slot.0 as usize] {
                state @ State::Left => {
                    *state = State::Out;
                    self.left.now -= 1;
                    self.left.given_up += 1;
                    return Some(slot);
                }
                State::Claimed => self.left.order.push_front(slot),
                // It was claimed, and never will be left again.
                _ => {}
            }
        }
    }

    /// What is left in free slots is given up; claimed ones keep their place until their read comes back.
    pub fn forget_left(&mut self) {
        for slot in std::mem::take(&mut self.left.order) {
            match self.states[slot.0 as usize] {
                State::Left => {
                    self.states[slot.0 as usize] = State::Free;
                    self.free.push(slot);
                    self.left.now -= 1;
                    self.left.given_up += 1;
                }
                State::Claimed => self.left.order.push_back(slot),
                _ => {}
            }
        }
    }

    /// Takes a slot out for what is left in it; false, and nothing done, if nothing is.
    pub fn claim(&mut self, slot: Slot) -> bool {
        let left = self.states.get(slot.0 as usize) == Some(&State::Left);
        if left {
            self.states[slot.0 as usize] = State::Claimed;
            self.left.now -= 1;
            self.left.claimed += 1;
        }
        left
    }

    /// A slot that was claimed is free again, with what is left in it; false, and nothing done, if it wasn't.
    pub fn unclaim(&mut self, slot: Slot) -> bool {
        let claimed = self.states[slot.0 as usize] == State::Claimed;
        if claimed {
            self.states[slot.0 as usize] = State::Left;
            self.left.now += 1;
            self.left.claimed -= 1;
        }
        claimed
    }

    /// Slots that something is left in: free ones, and those that are claimed.
    pub const fn left(&self) -> [usize; 2] {
        [self.left.now, self.left.claimed]
    }

    /// How many of them became pages, and in how many what was left was given up.
    pub const fn left_so_far(&self) -> [u64; 2] {
        [self.left.adopted, self.left.given_up]
    }

    /// Whether a page of the tree lives there.
    pub fn is_placed(&self, slot: Slot) -> bool {
        self.states.get(slot.0 as usize) == Some(&State::Placed)
    }
}

/// Where slots in a row are, if these are.
fn row(slots: &[Slot]) -> Option<Range<usize>> {
    let first = slots.first()?.0 as usize;
    lanes::in_a_row(slots).then(|| first..first + slots.len())
}

/// Without a branch for each.
fn all(states: &[State], state: State) -> bool {
    states.iter().fold(0, |differs, &is| differs | (is as u8 ^ state as u8)) == 0
}
