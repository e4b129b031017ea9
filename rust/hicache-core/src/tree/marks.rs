//! Which pages of a strand storage has, or will have: nearly always its first ones, so that one number tells; what was
//! stored behind pages that weren't (a batch failed, or what was read hangs below what no batch has taken yet) is kept beside it.
//!
//! Knows pages by number; refuses to know what they are. On error: nothing here fails.

use std::ops::Range;

/// A set of pages, counted from the root.
#[derive(Debug)]
pub(super) struct Marks {
    /// All before it.
    to: u32,
    beyond: Option<Box<Beyond>>,
}

#[derive(Debug, Default)]
struct Beyond {
    /// In order; between `to` and each of them something is missing.
    ranges: Vec<Range<u32>>,
    /// Something was to be stored, and wasn't.
    owing: bool,
}

impl Marks {
    /// None of a strand that begins at `start`.
    pub const fn new(start: u32) -> Self {
        Self { to: start, beyond: None }
    }

    fn ranges(&self) -> &[Range<u32>] {
        self.beyond.as_ref().map_or(&[], |beyond| &beyond.ranges)
    }

    fn change(&mut self, change: impl FnOnce(&mut u32, &mut Beyond)) {
        let mut beyond = self.beyond.take().unwrap_or_default();
        change(&mut self.to, &mut beyond);
        self.beyond = (beyond.owing || !beyond.ranges.is_empty()).then_some(beyond);
    }

    /// These, too.
    pub fn add(&mut self, pages: Range<u32>) {
        if pages.is_empty() || pages.end <= self.to {
            return;
        }
        if self.beyond.is_none() && pages.start <= self.to {
            self.to = pages.end;
            return;
        }
        self.change(|to, beyond| {
            let Range { mut start, mut end } = pages;
            beyond.ranges.retain(|range| {
                let apart = range.end < start || end < range.start;
                if !apart {
                    (start, end) = (start.min(range.start), end.max(range.end));
                }
                apart
            });
            if start <= *to {
                *to = end;
            } else {
                let at = beyond.ranges.partition_point(|range| range.end < start);
                beyond.ranges.insert(at, start..end);
            }
        });
    }

    /// This one not.
    pub fn remove(&mut self, page: u32) {
        self.change(|to, beyond| {
            let ranges = &mut beyond.ranges;
            if page < *to {
                let behind = page + 1..std::mem::replace(to, page);
                if !behind.is_empty() {
                    ranges.insert(0, behind);
                }
            } else if let Some(at) = ranges.iter().position(|range| range.contains(&page)) {
                let Range { start, end } = ranges.remove(at);
                for part in [page + 1..end, start..page] {
                    if !part.is_empty() {
                        ranges.insert(at, part);
                    }
                }
            }
        });
    }

    /// None from `end` on.
    pub fn cut(&mut self, end: u32) {
        self.to = self.to.min(end);
        if self.beyond.is_some() {
            self.change(|_, beyond| {
                beyond.ranges.retain(|range| range.start < end);
                if let Some(last) = beyond.ranges.last_mut() {
                    last.end = last.end.min(end);
                }
            });
        }
    }

    /// Those of some pages that aren't among them.
    pub fn missing(&self, pages: Range<u32>) -> Vec<Range<u32>> {
        let (mut at, mut missing) = (pages.start.max(self.to), Vec::new());
        for range in self.ranges().iter().take_while(|range| range.start < pages.end) {
            if range.start > at {
                missing.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < pages.end {
            missing.push(at..pages.end);
        }
        missing
    }

    /// How many these are.
    pub fn lacks(&self, pages: Range<u32>) -> usize {
        if self.beyond.is_none() {
            return pages.end.saturating_sub(pages.start.max(self.to)) as usize;
        }
        self.missing(pages).iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether something was to be stored, and wasn't.
    pub fn owing(&self) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| beyond.owing)
    }

    /// It is, or it isn't any more. True: it was the other way.
    pub fn owe(&mut self, owing: bool) -> bool {
        let other = self.owing() != owing;
        if other {
            self.change(|_, beyond| beyond.owing = owing);
        }
        other
    }
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
