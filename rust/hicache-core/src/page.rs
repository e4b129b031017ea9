//! Tokens in whole pages: the caller's (borrowed, any width) and the tree's (owned, narrow where they fit).
//!
//! A token is a non-negative int64. The caller's buffer is read in place: [`Tokens`] is a view.
//! On error: [`Tokens::checked`] names a negative token and its position.

use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::lanes::{self, Word};
use crate::sha::{self, Padded};
use std::num::NonZeroU32;
use std::ops::Range;

/// Tokens a page holds: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(NonZeroU32);

/// The largest page: larger ones are a mistake in the unit (bytes for tokens, say).
const MAX_PAGE_SIZE: u32 = 1 << 20;

impl PageSize {
    /// # Errors
    /// When `tokens` is 0 or more than 2^20.
    pub fn new(tokens: u32) -> Result<Self> {
        match NonZeroU32::new(tokens) {
            Some(size) if tokens <= MAX_PAGE_SIZE => Ok(Self(size)),
            _ => argument("page_size", format!("must be 1 to {MAX_PAGE_SIZE} tokens, got {tokens}")),
        }
    }

    /// In tokens.
    pub const fn tokens(self) -> usize {
        self.0.get() as usize
    }

    /// Whole pages in so many tokens.
    pub const fn pages(self, tokens: usize) -> usize {
        tokens / self.tokens()
    }
}

/// The largest token that the tree keeps in 32 bits. One bit stays free: a negative int32 equals no token.
const NARROW_MAX: u64 = i32::MAX as u64;

/// A borrowed run of tokens.
#[derive(Clone, Copy, Debug)]
pub enum Tokens<'a> {
    /// 32-bit signed, as engines keep them.
    I32(&'a [i32]),
    /// 64-bit signed, torch's default.
    I64(&'a [i64]),
    /// Our own narrow form.
    U32(&'a [u32]),
    /// Our own wide form.
    U64(&'a [u64]),
}

/// Runs the same expression for whichever width the tokens have.
macro_rules! each_width {
    ($tokens:expr, $slice:ident => $body:expr) => {
        match $tokens {
            Tokens::I32($slice) => $body,
            Tokens::I64($slice) => $body,
            Tokens::U32($slice) => $body,
            Tokens::U64($slice) => $body,
        }
    };
}

impl Tokens<'_> {
    /// No tokens.
    pub const EMPTY: Self = Self::U32(&[]);

    /// # Errors
    /// When a token is negative.
    pub fn checked(self) -> Result<Self> {
        let negative = match self {
            Self::I32(s) => lanes::overlay(s) > i64::MAX as u64,
            Self::I64(s) => lanes::overlay(s) > i64::MAX as u64,
            // Our own wide form comes from checked int64 tokens.
            Self::U32(_) | Self::U64(_) => false,
        };
        if negative { self.refuse_negative() } else { Ok(self) }
    }

    /// The same for tokens of which those before `at` were found in the tree.
    pub(crate) fn checked_from(self, at: usize) -> Result<()> {
        match self.from(at).checked() {
            Ok(_) => Ok(()),
            Err(_) => self.refuse_negative().map(|_| ()),
        }
    }

    #[cold]
    fn refuse_negative(self) -> Result<Self> {
        let first = match self {
            Self::I32(s) => s.iter().position(|&t| t < 0).map(|at| (at, i64::from(s[at]))),
            Self::I64(s) => s.iter().position(|&t| t < 0).map(|at| (at, s[at])),
            Self::U32(_) | Self::U64(_) => None,
        };
        let (at, token) = first.unwrap_or_default();
        argument("tokens", format!("tokens must not be negative: token {token} at position {at}"))
    }

    /// All of them will be read.
    pub(crate) fn soon(self) {
        each_width!(self, s => crate::soon::all(s));
    }

    /// Number of tokens.
    pub fn len(self) -> usize {
        each_width!(self, s => s.len())
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The tokens of a range of positions.
    ///
    /// # Panics
    /// When the range ends beyond the last token.
    #[must_use]
    pub fn range(self, range: Range<usize>) -> Self {
        match self {
            Self::I32(s) => Self::I32(&s[range]),
            Self::I64(s) => Self::I64(&s[range]),
            Self::U32(s) => Self::U32(&s[range]),
            Self::U64(s) => Self::U64(&s[range]),
        }
    }

    /// All from one position on.
    #[must_use]
    pub fn from(self, at: usize) -> Self {
        self.range(at..self.len())
    }

    /// Calls `f` with every token in order.
    pub fn for_each(self, mut f: impl FnMut(u64)) {
        each_width!(self, s => s.iter().for_each(|&t| f(t.word())));
    }

    /// Whether every token fits into 32 bits.
    pub fn is_narrow(self) -> bool {
        each_width!(self, s => u32::try_from(lanes::overlay(s)).is_ok())
    }

    /// A copy in 32 bits each, if all fit.
    pub fn narrow(self) -> Option<Vec<u32>> {
        each_width!(self, s => lowered(s, u64::from(u32::MAX)))
    }

    /// Tokens that both runs begin with. A negative token equals none.
    pub fn common(self, stored: &OwnedTokens) -> usize {
        self.common_from(stored, 0)
    }

    /// The same, with what is stored from one position on.
    pub(crate) fn common_from(self, stored: &OwnedTokens, at: usize) -> usize {
        match stored {
            OwnedTokens::Narrow(stored) => each_width!(self, s => lanes::common(s, &stored[at..])),
            OwnedTokens::Wide(stored) => each_width!(self, s => lanes::common(s, &stored[at..])),
        }
    }

    /// Appends the digests of all whole pages; all tokens must be narrow.
    pub(crate) fn chain_narrow(self, prior: Digest, padded: &Padded, digests: &mut Vec<Digest>) {
        each_width!(self, s => sha::chain_narrow(prior, s, padded, digests));
    }

    /// A hash of all the tokens, quick for those that the tree keeps in 32 bits each.
    pub(crate) fn digest(self, seed: u64) -> u64 {
        match self {
            Self::U32(s) => lanes::digest(s, seed),
            _ => self.mix(seed),
        }
    }

    /// A hash of all the tokens, whatever their width.
    pub(crate) fn mix(self, seed: u64) -> u64 {
        each_width!(self, s => lanes::mix(s, seed))
    }

    /// Pairs of neighbours, two words each: n + 1 tokens are n bigrams, the unit of keys in speculative
    /// decoding whose draft state depends on the next token too.
    pub fn bigrams(self) -> OwnedTokens {
        let mut words = Vec::with_capacity(self.len() * 2);
        let mut before = None;
        self.for_each(|token| {
            words.extend(before.replace(token).into_iter().flat_map(|before| [before, token]));
        });
        Tokens::U64(&words).to_owned()
    }

    /// An owned copy, narrow where all tokens fit.
    pub fn to_owned(self) -> OwnedTokens {
        each_width!(self, s => match lowered(s, NARROW_MAX) {
            Some(narrow) => OwnedTokens::Narrow(narrow),
            None => OwnedTokens::Wide(s.iter().map(|token| token.word()).collect()),
        })
    }
}

/// Lower halves of tokens that are all at most `most`: nearly always they are.
fn lowered<A: Word>(tokens: &[A], most: u64) -> Option<Vec<u32>> {
    let mut lower = Vec::with_capacity(tokens.len());
    (lanes::lower(tokens, &mut lower) <= most).then_some(lower)
}

/// The tree's own copy of tokens: 4 bytes each where all of them fit, else 8.
#[derive(Clone, Debug)]
pub enum OwnedTokens {
    /// Every token fits into 31 bits.
    Narrow(Vec<u32>),
    /// At least one does not (multimodal sentinels).
    Wide(Vec<u64>),
}

impl OwnedTokens {
    /// A view of all of them.
    pub fn view(&self) -> Tokens<'_> {
        match self {
            Self::Narrow(v) => Tokens::U32(v),
            Self::Wide(v) => Tokens::U64(v),
        }
    }

    /// Number of tokens.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(v) => v.len(),
            Self::Wide(v) => v.len(),
        }
    }

    /// Keeps the first `tokens`.
    pub fn truncate(&mut self, tokens: usize) {
        match self {
            Self::Narrow(v) => shorten(v, tokens),
            Self::Wide(v) => shorten(v, tokens),
        }
    }

    /// Appends tokens, if they are as wide as those that are there; else false, and nothing was appended.
    pub(crate) fn push(&mut self, tail: Tokens<'_>) -> bool {
        let before = self.len();
        match self {
            Self::Narrow(v) => {
                make_room(v, tail.len());
                let narrow = each_width!(tail, s => lanes::lower(s, v)) <= NARROW_MAX;
                if !narrow {
                    shorten(v, before);
                }
                narrow
            }
            Self::Wide(v) => {
                let wide = each_width!(tail, s => lanes::overlay(s)) > NARROW_MAX;
                if wide {
                    make_room(v, tail.len());
                    tail.for_each(|token| v.push(token));
                }
                wide
            }
        }
    }
}

/// Items below which room is made for as many again.
const FEW: usize = 2048;

/// Makes room for more items: for as many again while they are few, then for a third more, since most stay as
/// they are.
pub(crate) fn make_room<T>(items: &mut Vec<T>, more: usize) {
    let len = items.len();
    if items.capacity() - len < more {
        items.reserve_exact(more.max(if len < FEW { len } else { len / 3 }));
    }
}

/// Keeps the first `count`; memory goes back when a quarter of it is unused, so that what is kept rarely
/// moves.
pub(crate) fn shorten<T>(items: &mut Vec<T>, count: usize) {
    items.truncate(count);
    if items.len() < items.capacity() / 4 * 3 {
        items.shrink_to_fit();
    }
}
