//! The page hash chain against worked examples, and what keeps namespaces and identities apart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

use hicache_core::hash::{Digest, Namespace, chain, page_digest};
use hicache_core::identity::Fingerprint;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::pool::{Plane, PoolSpec};
use std::collections::HashMap;

const TABLE: &str = include_str!("../golden/hash_chain.txt");

struct Case {
    name: &'static str,
    page: PageSize,
    namespace: Namespace,
    seed: Option<Digest>,
    prior: Option<Digest>,
    tokens: Vec<i64>,
    digests: Vec<Digest>,
}

fn cases() -> Vec<Case> {
    TABLE.lines().filter(|line| !line.starts_with('#')).map(case).collect()
}

fn case(line: &'static str) -> Case {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, page, extra_key, salt, seed, prior, tokens, digests] = fields[..] else {
        panic!("eight fields: {line}")
    };
    let list = |text: &'static str| text.split(',').filter(|part| *part != "-");
    let namespace = Namespace { extra_key: text(extra_key), salt: text(salt), adapter: None };
    Case {
        name,
        page: PageSize::new(page.parse().unwrap()).unwrap(),
        namespace,
        seed: list(seed).map(digest).next(),
        prior: list(prior).map(digest).next(),
        tokens: list(tokens).flat_map(span).collect(),
        digests: list(digests).map(digest).collect(),
    }
}

fn text(field: &str) -> Option<String> {
    (field != "-").then(|| field.trim_matches('"').to_owned())
}

fn digest(hex: &str) -> Digest {
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    assert_eq!(hex.len(), 64);
    Digest(std::array::from_fn(byte))
}

fn span(part: &str) -> Vec<i64> {
    match part.split_once("..") {
        Some((from, to)) => (from.parse().unwrap()..=to.parse().unwrap()).collect(),
        None => vec![part.parse().unwrap()],
    }
}

#[test]
fn worked_examples_hold() {
    let cases = cases();
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names, ["E1", "E1'", "E2", "E2b", "E2c", "E2d", "E3", "E4", "E5", "E6", "E7"]);
    for case in cases {
        assert_eq!(case.namespace.seed(), case.seed, "{}: seed", case.name);
        let start = case.prior.or(case.seed);
        let got = chain(start, Tokens::I64(&case.tokens), case.page);
        assert_eq!(got, case.digests, "{}", case.name);
    }
}

/// E3 as an engine has it: raw tokens, whose pairs are the units.
#[test]
fn bigrams_are_chained_as_their_words() {
    let raw: Vec<i32> = (1..=9).collect();
    let pairs = Tokens::I32(&raw).bigrams();
    let case = cases().into_iter().find(|case| case.name == "E3").unwrap();
    assert_eq!(chain(None, pairs.view(), case.page), case.digests);
    assert!(Tokens::I32(&raw[..1]).bigrams().view().is_empty() && Tokens::EMPTY.bigrams().view().is_empty());
}

#[test]
fn width_and_view_change_nothing() {
    for case in cases() {
        let start = case.prior.or(case.seed);
        let words: Vec<u64> = case.tokens.iter().map(|&token| u64::try_from(token).unwrap()).collect();
        assert_eq!(chain(start, Tokens::U64(&words), case.page), case.digests, "{}: u64", case.name);
        let narrow: Result<Vec<i32>, _> = case.tokens.iter().map(|&token| i32::try_from(token)).collect();
        if let Ok(narrow) = narrow {
            assert_eq!(chain(start, Tokens::I32(&narrow), case.page), case.digests, "{}: i32", case.name);
        }
    }
}

#[test]
fn a_whole_run_may_be_one_page() {
    let tokens: Vec<i64> = (1..=8).collect();
    let whole = page_digest(None, Tokens::I64(&tokens));
    let e7 = cases().into_iter().find(|case| case.name == "E7").unwrap();
    assert_eq!(vec![whole], e7.digests);
}

#[test]
fn pages_of_equal_tokens_differ_by_their_place() {
    let got = chain(None, Tokens::I32(&[7, 7, 7, 7]), PageSize::new(1).unwrap());
    let distinct: std::collections::HashSet<Digest> = got.iter().copied().collect();
    assert_eq!(distinct.len(), 4);
}

#[test]
fn a_partial_page_has_no_digest() {
    let size = PageSize::new(4).unwrap();
    assert!(chain(None, Tokens::I32(&[1, 2, 3]), size).is_empty());
    assert_eq!(chain(None, Tokens::I32(&[1, 2, 3, 4, 5]), size).len(), 1);
}

#[test]
fn namespaces_never_collide() {
    let texts = [None, Some(""), Some("a"), Some("b"), Some("ab"), Some("a\0"), Some("\u{1}a")];
    let mut seen: HashMap<Option<Digest>, Namespace> = HashMap::new();
    for extra_key in texts {
        for salt in texts.into_iter().filter(|salt| *salt != Some("")) {
            for adapter in texts {
                let own = |text: Option<&str>| text.map(str::to_owned);
                let namespace =
                    Namespace { extra_key: own(extra_key), salt: own(salt), adapter: own(adapter) };
                let other = seen.insert(namespace.seed(), namespace.clone());
                assert_eq!(other, None, "{namespace:?} has the seed of another one");
            }
        }
    }
    assert_eq!(seen.len(), 7 * 6 * 7);
}

#[test]
fn an_empty_salt_is_no_salt() {
    let none = Namespace { extra_key: Some("k".into()), ..Namespace::default() };
    let empty = Namespace { salt: Some(String::new()), ..none.clone() };
    assert_eq!(none.seed(), empty.seed());
    assert_eq!(*empty.canonical(), none);
    let bare = Namespace { salt: Some(String::new()), ..Namespace::default() };
    assert_eq!(bare.seed(), None);
    assert_ne!(Namespace { extra_key: Some(String::new()), ..Namespace::default() }.seed(), None);
}

fn pool(name: &str, bytes_per_token: usize) -> PoolSpec {
    PoolSpec::new(name, vec![Plane { layer: 0, role: 0, bytes_per_token }]).unwrap()
}

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn identities_differ_by_every_field_and_not_by_their_order() {
    let size = PageSize::new(16).unwrap();
    let of = |pairs: &[(&str, &str)]| Fingerprint::of(&fields(pairs), size, &[pool("kv", 8)]);
    let base = of(&[("dtype", "bf16"), ("model", "m")]);
    assert_eq!(base, of(&[("model", "m"), ("dtype", "bf16")]));
    assert_ne!(base, of(&[("dtype", "fp8"), ("model", "m")]));
    assert_ne!(base, of(&[("dtype", "bf16m"), ("odel", "m")]));
    assert_ne!(base, of(&[("dtype", "bf16")]));
    let named = fields(&[("dtype", "bf16"), ("model", "m")]);
    assert_ne!(base, Fingerprint::of(&named, PageSize::new(8).unwrap(), &[pool("kv", 8)]));
    assert_ne!(base, Fingerprint::of(&named, size, &[pool("kv", 16)]));
    assert_ne!(base, Fingerprint::of(&named, size, &[pool("kv", 8), pool("draft", 8)]));
}

/// Fields and pools are framed alike: one must not be able to pass for the other.
#[test]
fn a_field_does_not_pass_for_a_pool() {
    let size = PageSize::new(16).unwrap();
    let (first, second) = (pool("a", 8), pool("b", 8));
    let two_pools = Fingerprint::of(&[], size, &[first.clone(), second.clone()]);
    let a_field = Fingerprint::of(&fields(&[("pool", &first.geometry())]), size, &[second]);
    assert_ne!(two_pools, a_field);
}
