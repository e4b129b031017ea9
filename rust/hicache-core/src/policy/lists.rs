//! Doubly linked lists over small numbers: links indexed by number, grown when a number comes.
//!
//! A number is in one of the `N` lists, or in none. Every operation is O(1). Knows nothing of what the numbers
//! mean. On error: wrong books are reported by [`Lists::check`]; numbers that never came are in no list.

use crate::segments::Segments;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
    /// Which list holds the number: 0 none, else 1 + list.
    list: u8,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
}

/// `N` lists of numbers.
#[derive(Debug)]
pub(crate) struct Lists<const N: usize> {
    links: Segments<Link>,
    ends: [Ends; N],
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Self {
        Self { links: Segments::default(), ends: [Ends { newest: NIL, oldest: NIL }; N] }
    }
}

impl<const N: usize> Lists<N> {
    pub fn is_empty(&self) -> bool {
        self.ends.iter().all(|ends| ends.oldest == NIL)
    }

    pub fn holds(&self, number: u32) -> bool {
        self.links.get(number).is_some_and(|link| link.list != 0)
    }

    pub fn oldest(&self, list: usize) -> Option<u32> {
        let oldest = self.ends[list].oldest;
        (oldest != NIL).then_some(oldest)
    }

    pub fn newest(&self, list: usize) -> Option<u32> {
        let newest = self.ends[list].newest;
        (newest != NIL).then_some(newest)
    }

    /// The list that holds a number.
    pub fn list_of(&self, number: u32) -> Option<usize> {
        self.links.get(number).and_then(|link| (link.list as usize).checked_sub(1))
    }

    pub fn push_newest(&mut self, list: usize, number: u32) {
        let second = self.ends[list].newest;
        if second != number {
            self.remove(number);
            self.put(list, number, NIL, self.ends[list].newest);
        }
    }

    pub fn push_oldest(&mut self, list: usize, number: u32) {
        self.remove(number);
        self.put(list, number, self.ends[list].oldest, NIL);
    }

    /// Puts `new` just behind `number`, towards the old end, if that is in a list.
    pub fn push_behind(&mut self, number: u32, new: u32) {
        self.remove(new);
        if let Some(link) = self.links.get(number).copied().filter(|link| link.list != 0) {
            self.put(link.list as usize - 1, new, number, link.older);
        }
    }

    pub fn remove(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(number).filter(|link| link.list != 0) else { return };
        let Link { newer, older, list } = std::mem::replace(link, Link { newer: NIL, older: NIL, list: 0 });
        *self.older_of(list as usize - 1, newer) = older;
        *self.newer_of(list as usize - 1, older) = newer;
    }

    /// All numbers in lists.
    ///
    /// # Errors
    /// When a list doesn't hold exactly the numbers that say so, or is torn.
    pub fn check(&self) -> Result<Vec<u32>, &'static str> {
        let held = self.links.numbered().filter(|(_, link)| link.list != 0);
        let held: Vec<u32> = held.map(|(number, _)| number).collect();
        let mut walked = 0;
        for (list, ends) in self.ends.iter().enumerate() {
            let (mut newer, mut at) = (NIL, ends.newest);
            while at != NIL && walked <= held.len() {
                let link = self.links[at];
                if link.list as usize != list + 1 || link.newer != newer {
                    return Err("a list is torn");
                }
                walked += 1;
                (newer, at) = (at, link.older);
            }
            if newer != ends.oldest {
                return Err("a list is torn");
            }
        }
        if walked == held.len() { Ok(held) } else { Err("a list misses what says that it is there") }
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are a few lists")]
    fn put(&mut self, list: usize, number: u32, newer: u32, older: u32) {
        self.links.cover(number, Link { newer: NIL, older: NIL, list: 0 });
        *self.older_of(list, newer) = number;
        *self.newer_of(list, older) = number;
        self.links[number] = Link { newer, older, list: 1 + list as u8 };
    }

    /// What names the one that follows `number` towards the old end; of none, the list's newest.
    fn older_of(&mut self, list: usize, number: u32) -> &mut u32 {
        match number {
            NIL => &mut self.ends[list].newest,
            number => &mut self.links[number].older,
        }
    }

    fn newer_of(&mut self, list: usize, number: u32) -> &mut u32 {
        match number {
            NIL => &mut self.ends[list].oldest,
            number => &mut self.links[number].newer,
        }
    }

    /// A list from its old end.
    pub fn oldest_first(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let next = |&at: &u32| Some(self.links[at].newer).filter(|&newer| newer != NIL);
        std::iter::successors(self.oldest(list), next)
    }

    /// The same as a list, for tests.
    #[cfg(test)]
    pub fn walk(&self, list: usize) -> Vec<u32> {
        self.oldest_first(list).collect()
    }

    /// Damage of one kind or another to number 1, which has neighbours, for tests.
    #[cfg(test)]
    pub fn tear(&mut self, kind: usize) {
        match kind {
            0 => self.links[1].list = 2,
            1 => self.links[1].list = 0,
            2 => self.links[1].older = 1,
            _ => self.ends[0].oldest = 1,
        }
    }
}
