//! Passes over runs of tokens, compiled for the vector units that the machine has.
//!
//! Knows integers of two widths; refuses to know what a page is. What looks at all tokens of a key is here,
//! so that a call costs little more than reading the key. Loops are spelled out: what an iterator's adapter does is
//! compiled for the oldest machine where the compiler doesn't inline it, which it decides anew with every change
//! elsewhere. On error: nothing here fails.
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
    let (tokens, stored) = (tokens.as_chunks::<N>().0, stored.as_chunks::<N>().0);
    let mut at = 0;
    while at < tokens.len() && at < stored.len() {
        let (mut differs, mut lane) = (A::Bits::default(), 0);
        while lane < N {
            differs = differs | tokens[at][lane].differs(stored[at][lane]);
            lane += 1;
        }
        if differs != A::Bits::default() {
            break;
        }
        at += 1;
    }
    at
}

/// Whether numbers follow one another.
#[multiversion(targets("x86_64+avx2"))]
#[expect(clippy::cast_possible_truncation, reason = "numbers inside of a stride")]
pub(crate) fn in_a_row(slots: &[Slot]) -> bool {
    let Some(first) = slots.first().map(|slot| slot.0) else { return false };
    let (strides, rest) = slots.as_chunks::<STRIDE>();
    let mut before = first;
    for stride in strides {
        let (mut differs, mut lane) = (0, 0);
        while lane < STRIDE {
            differs |= stride[lane].0 ^ before.wrapping_add(lane as u32);
            lane += 1;
        }
        if differs != 0 {
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
    let mut bits = A::default();
    for &token in tokens {
        bits = bits | token;
    }
    bits.word()
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
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    // Of a vector of four, each has keys of its own: multiples of an odd number.
    const KEYS: [u64; 4] =
        [0xD6E8_FEB8_6659_FD93, 0xADD1_FD70_CCB3_FB26, 0x84BA_FC29_330D_F8B9, 0x5BA3_FAE1_9967_F64C];
    const OTHERS: [u64; 4] =
        [0x6659_FD93_D6E8_FEB8, 0xCCB3_FB26_ADD1_FD70, 0x330D_F8B9_84BA_FC29, 0x9967_F64C_5BA3_FAE1];
    let (chunks, rest) = numbers.as_chunks::<16>();
    let mut sums = KEYS;
    let (mut keys, mut others) = (KEYS, OTHERS);
    for chunk in chunks {
        let (a, b) = chunk.split_at(8);
        for lane in 0..4 {
            let a = two(a, lane).wrapping_add(keys[lane]);
            let b = two(b, lane) ^ others[lane];
            let low = (a & LOW).wrapping_mul(b & LOW);
            let high = (a >> 32).wrapping_mul(b >> 32);
            let product = low.wrapping_add(high).wrapping_add(a.wrapping_sub(b));
            // Not a plain sum, so that the compiler takes the lanes together, which lie side by side, not the chunks.
            sums[lane] = (sums[lane] ^ KEYS[lane]).wrapping_add(product);
            keys[lane] = keys[lane].wrapping_add(STEP);
            others[lane] = others[lane].wrapping_add(STEP);
        }
    }
    rest.iter().fold(mix(&sums, seed ^ numbers.len() as u64), |hash, number| {
        folded(hash ^ u64::from(number.number()), STEP)
    })
}

const LOW: u64 = u32::MAX as u64;

/// Two numbers side by side.
#[inline(always)]
fn two<T: Narrow>(numbers: &[T], at: usize) -> u64 {
    u64::from(numbers[2 * at].number()) | u64::from(numbers[2 * at + 1].number()) << 32
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

#[cfg(test)]
mod tests {
    use super::digest;
    use crate::ids::Slot;
    use std::collections::HashSet;

    /// Every number counts, wherever it stands and whatever stands beside it, zeros too; so do order, length and seed.
    #[test]
    fn digests_tell_numbers_apart() {
        for length in [0, 1, 15, 16, 17, 32, 47, 656] {
            for numbers in [vec![0; length], (1..).take(length).collect::<Vec<u32>>()] {
                let before = digest(&numbers, 7);
                let slots: Vec<Slot> = numbers.iter().copied().map(Slot).collect();
                assert_eq!(digest(&slots, 7), before, "whatever they are called");
                let mut seen = HashSet::from([before, digest(&numbers, 8)]);
                seen.insert(digest(&[&numbers[..], &[0]].concat(), 7));
                for at in 0..length {
                    let mut other = numbers.clone();
                    for bit in [1, 1 << 15, 1 << 30] {
                        other[at] = numbers[at] ^ bit;
                        seen.insert(digest(&other, 7));
                    }
                }
                let mut swaps = 0;
                for (at, to) in (0..length).flat_map(|at| [1, 2, 8, 16, 32].map(|by| (at, at + by))) {
                    let mut other = numbers.clone();
                    if to < length && numbers[at] != numbers[to] {
                        other.swap(at, to);
                        swaps += usize::from(seen.insert(digest(&other, 7)));
                    }
                }
                let pairs = [1, 2, 8, 16, 32].map(|by| length.saturating_sub(by)).iter().sum();
                assert_eq!(swaps, if numbers.first() == Some(&0) { 0 } else { pairs }, "{length}");
                assert_eq!(seen.len(), 3 + 3 * length + swaps, "{length} numbers");
            }
        }
    }
}
