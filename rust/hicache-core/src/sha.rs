//! SHA-256 of many short messages that follow each other: each begins with the digest of the one before.
//!
//! From one digest to the next there is nothing to be done but rounds, so what a library does around them
//! is what it costs. With the machine's SHA instructions the digest stays in registers; without, the blocks
//! are compressed by the `sha2` crate. Knows words; refuses to know what a namespace is.
//! On error: nothing here fails.

use crate::hash::Digest;
use crate::lanes::Word;
use multiversion::multiversion;
use multiversion::target::match_target;

/// Initial state.
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// Words of a block.
const BLOCK: usize = 16;
/// Words of a digest.
const DIGEST: usize = 8;
/// Blocks of the largest page that is hashed on the stack.
const MOST: usize = 17;

/// The words of a narrow page that is not the first: those of the digest before, one a token, and the padding,
/// which is the same for all pages. Nearly all pages are such.
#[derive(Clone)]
pub(crate) struct Padded {
    words: [[u32; BLOCK]; MOST],
    blocks: usize,
    page: usize,
}

impl Padded {
    /// For pages of so many tokens, unless they are too large.
    pub fn of(page: usize) -> Option<Self> {
        let length = DIGEST + page;
        let blocks = (length + 3).div_ceil(BLOCK);
        let mut words = [[0; BLOCK]; MOST];
        let flat = words.as_flattened_mut().get_mut(..blocks * BLOCK)?;
        flat[length] = 0x8000_0000;
        flat[blocks * BLOCK - 1] = u32::try_from(length * 32).ok()?;
        Some(Self { words, blocks, page })
    }
}

/// Appends the digests of all whole pages of narrow tokens.
#[multiversion(targets("x86_64+sha+sse4.1+ssse3"))]
pub(crate) fn chain_narrow<A: Word>(prior: Digest, tokens: &[A], padded: &Padded, digests: &mut Vec<Digest>) {
    match_target! {
        "x86_64+sha+sse4.1+ssse3" => instructions::chain(prior, tokens, padded, digests),
        _ => chain_by_blocks(prior, tokens, padded, digests),
    }
}

/// The tokens of a page as the words of its message.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the tokens are narrow")]
fn write<A: Word>(page: &[A], words: &mut [[u32; BLOCK]]) {
    for (word, token) in words.as_flattened_mut()[DIGEST..].iter_mut().zip(page) {
        *word = (token.word() as u32).swap_bytes();
    }
}

#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "for machines without the instructions"))]
fn chain_by_blocks<A: Word>(prior: Digest, tokens: &[A], padded: &Padded, digests: &mut Vec<Digest>) {
    let mut words = padded.words;
    let mut bytes = [[0; 4 * BLOCK]; MOST];
    let mut last = prior;
    for page in tokens.chunks_exact(padded.page) {
        write(page, &mut words);
        for (bytes, word) in bytes.as_flattened_mut().as_chunks_mut().0.iter_mut().zip(words.as_flattened()) {
            *bytes = word.to_be_bytes();
        }
        bytes[0][..4 * DIGEST].copy_from_slice(&last.0);
        let mut state = START;
        sha2::block_api::compress256(&mut state, &bytes[..padded.blocks]);
        for (bytes, word) in last.0.as_chunks_mut().0.iter_mut().zip(state) {
            *bytes = word.to_be_bytes();
        }
        digests.push(last);
    }
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    use super::{Padded, START, write};
    use crate::hash::Digest;
    use crate::lanes::Word;
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_cvtsi128_si64, _mm_extract_epi64,
        _mm_set_epi32, _mm_set_epi64x, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32,
        _mm_shuffle_epi8, _mm_shuffle_epi32,
    };

    #[rustfmt::skip]
    const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ];

    #[target_feature(enable = "sha,sse4.1,ssse3")]
    pub(super) fn chain<A: Word>(prior: Digest, tokens: &[A], padded: &Padded, digests: &mut Vec<Digest>) {
        let Padded { mut words, blocks, page } = padded.clone();
        let words = &mut words[..blocks];
        let (before, _) = prior.0.as_chunks::<4>();
        let before: [u32; 8] = std::array::from_fn(|i| u32::from_be_bytes(before[i]));
        let mut head = [four(&before[..4]), four(&before[4..])];
        for page in tokens.chunks_exact(page) {
            write(page, words);
            let mut state = [[5, 4, 1, 0], [7, 6, 3, 2]].map(|lanes| four(&lanes.map(|at: usize| START[at])));
            for (at, block) in words.iter().enumerate() {
                let mut w = [four(&block[..4]), four(&block[4..8]), four(&block[8..12]), four(&block[12..])];
                if at == 0 {
                    [w[0], w[1]] = head;
                }
                state = compress(state, w);
            }
            let [abef, cdgh] = state;
            let (feba, dchg) = (_mm_shuffle_epi32::<0x1B>(abef), _mm_shuffle_epi32::<0xB1>(cdgh));
            head = [_mm_blend_epi16::<0xF0>(feba, dchg), _mm_alignr_epi8::<8>(dchg, feba)];
            digests.push(bytes(head));
        }
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn four(words: &[u32]) -> __m128i {
        let [a, b, c, d] = [words[0], words[1], words[2], words[3]].map(u32::cast_signed);
        _mm_set_epi32(d, c, b, a)
    }

    #[target_feature(enable = "sse4.1,ssse3")]
    #[inline]
    fn bytes(words: [__m128i; 2]) -> Digest {
        let swap = _mm_set_epi64x(0x0C0D_0E0F_0809_0A0B, 0x0405_0607_0001_0203);
        let mut digest = Digest([0; 32]);
        let (halves, _) = digest.0.as_chunks_mut::<8>();
        for (at, four) in words.into_iter().enumerate() {
            let four = _mm_shuffle_epi8(four, swap);
            halves[2 * at] = _mm_cvtsi128_si64(four).to_le_bytes();
            halves[2 * at + 1] = _mm_extract_epi64::<1>(four).to_le_bytes();
        }
        digest
    }

    /// One block, 64 rounds. Spelled out so far that all of it stays in registers.
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn compress(before: [__m128i; 2], w: [__m128i; 4]) -> [__m128i; 2] {
        let state = rounds(rounds(before, w[0], 0), w[1], 1);
        let state = rounds(rounds(state, w[2], 2), w[3], 3);
        let (state, w) = sixteen_rounds(state, w, 4);
        let (state, w) = sixteen_rounds(state, w, 8);
        let (state, _) = sixteen_rounds(state, w, 12);
        [_mm_add_epi32(state[0], before[0]), _mm_add_epi32(state[1], before[1])]
    }

    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn sixteen_rounds(state: [__m128i; 2], w: [__m128i; 4], at: usize) -> ([__m128i; 2], [__m128i; 4]) {
        let [w0, w1, w2, w3] = w;
        let w0 = next(w0, w1, w2, w3);
        let state = rounds(state, w0, at);
        let w1 = next(w1, w2, w3, w0);
        let state = rounds(state, w1, at + 1);
        let w2 = next(w2, w3, w0, w1);
        let state = rounds(state, w2, at + 2);
        let w3 = next(w3, w0, w1, w2);
        (rounds(state, w3, at + 3), [w0, w1, w2, w3])
    }

    /// The four words of the schedule that follow sixteen others.
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn next(w0: __m128i, w1: __m128i, w2: __m128i, w3: __m128i) -> __m128i {
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8::<4>(w3, w2));
        _mm_sha256msg2_epu32(sum, w3)
    }

    /// Rounds 4·`at` to 4·`at` + 3.
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn rounds([abef, cdgh]: [__m128i; 2], words: __m128i, at: usize) -> [__m128i; 2] {
        let sum = _mm_add_epi32(words, four(&ROUNDS[4 * at..4 * at + 4]));
        let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        [_mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0E>(sum)), cdgh]
    }
}

#[cfg(test)]
mod tests {
    use super::{Padded, chain_by_blocks, chain_narrow};
    use crate::hash::{Digest, page_digest};
    use crate::page::Tokens;

    #[test]
    fn every_way_gives_the_digests_of_whole_messages() {
        let tokens: Vec<i64> = (0..1_000_i64).map(|at| at * 4_294_967 % (1 << 32)).collect();
        for page in (1..70).chain([261]) {
            let padded = Padded::of(page).unwrap();
            let prior = Digest([7; 32]);
            let (mut whole, mut fast, mut slow) = (Vec::new(), Vec::new(), Vec::new());
            for tokens in tokens.chunks_exact(page) {
                whole.push(page_digest(Some(whole.last().unwrap_or(&prior)), Tokens::I64(tokens)));
            }
            chain_narrow(prior, &tokens, &padded, &mut fast);
            chain_by_blocks(prior, &tokens, &padded, &mut slow);
            assert!(!whole.is_empty() && whole == fast && whole == slow, "pages of {page}");
        }
        assert!(Padded::of(261).is_some() && Padded::of(262).is_none(), "what fits on the stack");
    }
}
