//! Passes over runs of tokens, compiled for the vector units that the machine has.
//!
//! Knows integers of two widths; refuses to know what a page is. What looks at all tokens of a key is here,
//! so that a call costs little more than reading the key. On error: nothing here fails.
#![expect(clippy::inline_always, reason = "what isn't inlined is compiled for the oldest machine")]

use crate::ids::Slot;
use multiversion::multiversion;

/// Tokens that are compared between two looks at the result.
const STRIDE: usize = 32;
/// The same near the end, or near the first difference.
const SHORT: usize = 8;

/// Tokens from which on alignment counts, and to how many bytes.
const LONG: usize = 256;
const ALIGNED: usize = 32;

/// A token as a 64-bit word; a negative one becomes a word that no token has.
pub(crate) trait Word: Copy + Default + std::ops::BitOr<Output = Self> {
    fn word(self) -> u64;
}

macro_rules! words {
    ($($token:ty),*) => {$(
        impl Word for $token {
            #[inline(always)]
            #[allow(clippy::cast_sign_loss, clippy::cast_lossless, reason = "negative tokens keep their sign bit")]
            fn word(self) -> u64 {
                self as u64
            }
        }
    )*};
}
words!(i32, i64, u32, u64);

/// A caller's token beside a stored one.
pub(crate) trait Against<Stored>: Copy {
    /// The narrowest word in which the two can be told apart.
    type Bits: Default + PartialEq + std::ops::BitOr<Output = Self::Bits>;
    /// Zero if they are equal.
    fn differs(self, stored: Stored) -> Self::Bits;
}

macro_rules! against {
    ($($token:ty, $stored:ty, $bits:ty);*) => {$(
        impl Against<$stored> for $token {
            type Bits = $bits;
            #[inline(always)]
            #[allow(clippy::cast_sign_loss, clippy::cast_lossless, reason = "see `Word`")]
            #[allow(trivial_numeric_casts, reason = "of all pairs, some have one width")]
            fn differs(self, stored: $stored) -> $bits {
                self as $bits ^ stored as $bits
            }
        }
    )*};
}
// A negative int32 has a bit that no narrow token has, so that 32 bits are enough for it.
against!(i32, u32, u32; u32, u32, u32; i64, u32, u64; u64, u32, u64);
against!(i32, u64, u64; u32, u64, u64; i64, u64, u64; u64, u64, u64);

/// Tokens that both runs begin with.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn common<A: Against<B>, B: Copy>(tokens: &[A], stored: &[B]) -> usize {
    let most = tokens.len().min(stored.len());
    // A wide load across two lines costs a third of the whole: the caller's tokens, which may be the wider
    // ones, are read from where the next load begins.
    let head = if most > LONG { tokens.as_ptr().align_offset(ALIGNED).min(most) } else { 0 };
    if equal_runs::<A, B, 1>(&tokens[..head], &stored[..head]) < head {
        return equal_runs::<A, B, 1>(tokens, stored);
    }
    head + common_aligned(&tokens[head..most], &stored[head..most])
}

#[inline(always)]
fn common_aligned<A: Against<B>, B: Copy>(tokens: &[A], stored: &[B]) -> usize {
    let most = tokens.len();
    let mut at = STRIDE * equal_runs::<A, B, STRIDE>(tokens, stored);
    let rest = most - at;
    if rest == 0 {
        return most;
    }
    if rest < STRIDE && most >= STRIDE {
        // The usual end, in one look that overlaps the one before.
        let last = most - STRIDE;
        if equal_runs::<A, B, STRIDE>(&tokens[last..], &stored[last..]) == 1 {
            return most;
        }
    }
    at += SHORT * equal_runs::<A, B, SHORT>(&tokens[at..], &stored[at..]);
    at + equal_runs::<A, B, 1>(&tokens[at..], &stored[at..])
}

#[inline(always)]
fn equal_runs<A: Against<B>, B: Copy, const N: usize>(tokens: &[A], stored: &[B]) -> usize {
    let runs = tokens.as_chunks::<N>().0.iter().zip(stored.as_chunks::<N>().0);
    let equal = runs.take_while(|&(a, b)| {
        let differs = a.iter().zip(b).fold(A::Bits::default(), |d, (&p, &q)| d | p.differs(q));
        differs == A::Bits::default()
    });
    equal.count()
}

/// Whether numbers follow one another.
#[multiversion(targets("x86_64+avx2"))]
#[expect(clippy::cast_possible_truncation, reason = "numbers inside of a stride")]
pub(crate) fn in_a_row(slots: &[Slot]) -> bool {
    let Some(first) = slots.first().map(|slot| slot.0) else { return false };
    let (strides, rest) = slots.as_chunks::<STRIDE>();
    let mut before = first;
    for stride in strides {
        let ramp = |at: usize| before.wrapping_add(at as u32);
        if (0..STRIDE).fold(0, |differs, at| differs | (stride[at].0 ^ ramp(at))) != 0 {
            return false;
        }
        before = before.wrapping_add(STRIDE as u32);
    }
    rest.iter().zip(before..=u32::MAX).all(|(slot, number)| slot.0 == number)
}

/// All tokens laid over each other: its highest bit tells whether one is negative, its upper half whether
/// one is wide.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn overlay<A: Word>(tokens: &[A]) -> u64 {
    // In their own width: twice as many at a time where that is narrow.
    tokens.iter().fold(A::default(), |bits, &token| bits | token).word()
}

/// Appends the lower halves; answers as [`overlay`] does, from the same pass.
#[multiversion(targets("x86_64+avx2"))]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is asked for")]
pub(crate) fn lower<A: Word>(tokens: &[A], to: &mut Vec<u32>) -> u64 {
    let mut bits = A::default();
    to.extend(tokens.iter().map(|&token| {
        bits = bits | token;
        token.word() as u32
    }));
    bits.word()
}

/// What fits into 32 bits.
pub(crate) trait Narrow: Copy {
    fn number(self) -> u32;
}

impl Narrow for u32 {
    #[inline(always)]
    fn number(self) -> u32 {
        self
    }
}

impl Narrow for Slot {
    #[inline(always)]
    fn number(self) -> u32 {
        self.0
    }
}

/// A hash of all the numbers, many at a time: sums of products under keys that differ by position, after NH
/// (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, 1999). Each product comes with its factors, so that
/// where one is 0 the other still counts. For digests that nobody tries to forge.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn digest<T: Narrow>(numbers: &[T], seed: u64) -> u64 {
    const STEP: u32 = 0x9E37_79B9;
    let (chunks, rest) = numbers.as_chunks::<16>();
    let mut sums = [0_u64; 8];
    let mut key = STEP;
    for chunk in chunks {
        for (lane, sum) in (0_u32..).zip(&mut sums) {
            let (a, b) = (chunk[lane as usize].number(), chunk[lane as usize + 8].number());
            let a = a.wrapping_add(key).wrapping_add(lane << 24);
            let b = b ^ key.rotate_left(16) ^ (lane << 8);
            let (a, b) = (u64::from(a), u64::from(b));
            *sum = sum.wrapping_add(a * b).wrapping_add(a << 32).wrapping_add(b);
        }
        key = key.wrapping_add(STEP);
    }
    rest.iter().fold(mix(&sums, seed ^ numbers.len() as u64), |hash, number| {
        folded(hash ^ u64::from(number.number()), u64::from(STEP))
    })
}

/// A hash of all the words. Pairs are multiplied independently of each other, each under its own key.
pub(crate) fn mix<A: Word>(tokens: &[A], seed: u64) -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    const OTHER: u64 = 0xD6E8_FEB8_6659_FD93;
    let (pairs, last) = tokens.as_chunks::<2>();
    let mut key = STEP;
    let mut sum = 0_u64;
    for &[a, b] in pairs {
        sum = sum.wrapping_add(folded(a.word() ^ key, b.word() ^ key.rotate_left(32)));
        key = key.wrapping_add(OTHER);
    }
    for token in last {
        sum = sum.wrapping_add(folded(token.word() ^ key, OTHER));
    }
    folded(sum ^ STEP, seed ^ OTHER)
}

/// Both halves of the product, and the factors: where one of them is 0, the other still counts.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64 ^ a ^ b.rotate_left(32)
}
