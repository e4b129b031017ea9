//! How the buffer is divided, and the byte address of any frame, in one place.
//!
//! Both ends number their frames from byte 0 of the buffer, each with its own page size: frame `f` is bytes
//! `f · page … (f + 1) · page`. The lowest bytes are the sink, which padded reads and writes may hit; it is as large
//! as the largest page, so that frame 0 of either end lies in it.
//!
//! On error: what can't be meant is refused, naming the field.

use crate::error::{Result, argument};
use std::ops::Range;

/// One of the two ends that grow towards each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// From the low bytes up: recurrent states, or windows.
    Up = 0,
    /// From the high bytes down: the KV of full attention.
    Down = 1,
}

impl End {
    /// Both, low bytes first.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// The end on the other side of the gap.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// The place of one page in the buffer, counted in pages of its end from byte 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame(pub u32);

/// Where a part starts and how it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// From the low bytes.
    Up,
    /// From the high bytes.
    Down,
    /// In the middle, away from both ends. Not built yet: refused by name.
    Between,
}

/// One kind of state in the buffer, as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// For messages.
    pub name: String,
    /// Which end it has.
    pub grows: Grows,
    /// Bytes of one entry in all layers: of a token's KV, or of a whole recurrent state.
    pub entry_bytes: u64,
    /// Entries of a page: tokens, or 1 for states.
    pub page: u32,
    /// How many pages may be in use at most, where the engine's own tables limit it; as many as there are frames
    /// otherwise.
    pub slots: Option<u32>,
    /// Pages that one worst-case request needs: a buffer in which it can never run is refused.
    pub least: u32,
}

/// The divided buffer. Arrays are by [`End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    bytes: u64,
    sink: u64,
    names: [String; 2],
    page_bytes: [u64; 2],
    /// The first frame behind the sink, and the one behind the last.
    first: [u32; 2],
    past: [u32; 2],
    slots: [u32; 2],
}

impl Geometry {
    /// Divides `bytes`; every entry is whole multiples of `align` bytes.
    ///
    /// # Errors
    /// When there is not exactly one part for each end, a size is 0, not aligned or beyond 2^31 entries, or one worst-case
    /// request doesn't fit.
    pub fn new(bytes: u64, align: u64, parts: &[Part]) -> Result<Self> {
        if let Some(part) = parts.iter().find(|part| part.grows == Grows::Between) {
            let why = "grows between the two ends: a third part is not built yet, use Up and Down";
            return argument("parts", format!("{:?} {why}", part.name));
        }
        let of = |grows| {
            let mut found = parts.iter().filter(move |part| part.grows == grows);
            (found.next(), found.next().is_some())
        };
        let ((Some(up), false), (Some(down), false)) = (of(Grows::Up), of(Grows::Down)) else {
            return argument("parts", "exactly one grows up and exactly one grows down");
        };
        let parts = [up, down];
        if align == 0 {
            return argument("align", "is 0");
        }
        parts.iter().try_for_each(|part| check_part(part, bytes, align))?;
        let page_bytes = parts.map(|part| part.entry_bytes * u64::from(part.page));
        let sink = page_bytes[0].max(page_bytes[1]);
        let first = page_bytes.map(|page| narrow(sink.div_ceil(page)));
        let past = page_bytes.map(|page| narrow(bytes / page));
        let frames = [0, 1].map(|end: usize| past[end].saturating_sub(first[end]));
        let slots = [0, 1].map(|end| parts[end].slots.unwrap_or(u32::MAX).min(frames[end]));
        let names = parts.map(|part| part.name.clone());
        let geometry = Self { bytes, sink, names, page_bytes, first, past, slots };
        geometry.check_least(parts.map(|part| part.least))?;
        Ok(geometry)
    }

    fn check_least(&self, least: [u32; 2]) -> Result<()> {
        let short = End::BOTH.into_iter().find(|&end| least[end as usize] > self.slots(end));
        if let Some(end) = short {
            let (need, has) = (least[end as usize], self.slots(end));
            let why = format!(
                "{} needs {need} pages for one request and can never have more than {has}",
                self.name(end)
            );
            return argument("bytes", why);
        }
        if !self.ordered(least.map(u64::from)) {
            let need = self.sink
                + u64::from(least[0]) * self.page_bytes[0]
                + u64::from(least[1]) * self.page_bytes[1];
            return argument(
                "bytes",
                format!("{} are less than the {need} that one request needs", self.bytes),
            );
        }
        Ok(())
    }

    /// Bytes of the buffer.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes at the low end that belong to nobody.
    pub const fn sink(&self) -> u64 {
        self.sink
    }

    /// Bytes of one page.
    pub const fn page_bytes(&self, end: End) -> u64 {
        self.page_bytes[end as usize]
    }

    /// Pages that may be in use at most.
    pub const fn slots(&self, end: End) -> u32 {
        self.slots[end as usize]
    }

    /// Frames that an end would have if the other one had nothing.
    pub const fn frames(&self, end: End) -> u32 {
        self.past[end as usize].saturating_sub(self.first[end as usize])
    }

    /// The bytes of a frame.
    pub fn address(&self, end: End, frame: Frame) -> Range<u64> {
        let page = self.page_bytes(end);
        u64::from(frame.0) * page..(u64::from(frame.0) + 1) * page
    }

    /// As declared.
    pub fn name(&self, end: End) -> &str {
        &self.names[end as usize]
    }

    /// The frame at a distance (in pages) from an end.
    pub(super) const fn frame(&self, end: End, distance: u32) -> Frame {
        match end {
            End::Up => Frame(self.first[0] + distance),
            End::Down => Frame(self.past[1] - 1 - distance),
        }
    }

    /// How far from its end a frame is, if it belongs to it at all.
    pub(super) fn distance(&self, end: End, frame: Frame) -> Option<u32> {
        let (first, past) = (self.first[end as usize], self.past[end as usize]);
        (first..past).contains(&frame.0).then(|| match end {
            End::Up => frame.0 - first,
            End::Down => past - 1 - frame.0,
        })
    }

    /// Whether these many pages from each end leave no byte to both.
    pub(super) fn ordered(&self, spans: [u64; 2]) -> bool {
        spans[1] <= self.frames(End::Down).into() && spans[0] <= self.most(End::Up, spans[1])
    }

    /// How many pages an end can have before it meets `span` pages of the other; all of its frames if there are none,
    /// also those over the odd bytes that are too few for a page of the other.
    pub(super) fn most(&self, end: End, span: u64) -> u64 {
        let other = end.other();
        if span == 0 {
            return self.frames(end).into();
        }
        if span > u64::from(self.frames(other)) {
            return 0;
        }
        let (own, page) = (self.page_bytes(end), self.page_bytes(other));
        match end {
            End::Up => {
                let frontier = (u64::from(self.past[1]) - span) * page;
                (frontier / own).saturating_sub(u64::from(self.first[0])).min(self.frames(end).into())
            }
            End::Down => {
                let frontier = (u64::from(self.first[0]) + span) * page;
                u64::from(self.past[1]).saturating_sub(frontier.div_ceil(own)).min(self.frames(end).into())
            }
        }
    }
}

fn check_part(part: &Part, bytes: u64, align: u64) -> Result<()> {
    let Part { name, entry_bytes, page, .. } = part;
    if *entry_bytes == 0 || entry_bytes % align != 0 {
        return argument("entry_bytes", format!("{entry_bytes} of {name:?} is no multiple of {align}"));
    }
    if *page == 0 || part.slots == Some(0) {
        return argument("parts", format!("{name:?} has pages without entries, or no slots"));
    }
    if bytes / entry_bytes >= 1 << 31 {
        return argument(
            "bytes",
            format!("{bytes} hold 2^31 entries of {name:?} or more: indices are 32 bits"),
        );
    }
    if entry_bytes.checked_mul((*page).into()).is_none_or(|page| page > bytes) {
        return argument("bytes", format!("{bytes} hold no page of {name:?}"));
    }
    Ok(())
}

/// Fewer than 2^31 pages: checked for every part.
#[expect(clippy::cast_possible_truncation, reason = "checked: see above")]
const fn narrow(pages: u64) -> u32 {
    pages as u32
}
