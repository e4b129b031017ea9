//! URLs of stores: what is taken, and that everything else is refused by name before anything is touched.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

use hicache_core::identity::{Fingerprint, Identity};
use hicache_core::page::PageSize;
use hicache_core::storage::open::schemes;
use hicache_core::storage::url::Share;
use hicache_core::storage::{Client, Url, open};
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const US: Fingerprint = Fingerprint([1; 32]);

fn refused(text: &str) -> String {
    let Err(error) = Url::parse(text) else { panic!("{text:?} was taken") };
    let error = error.to_string();
    assert!(error.starts_with("storage: "), "{error}");
    error
}

#[test]
fn parts_of_a_url() {
    let mut url = Url::parse("slab:///data/kv?size=200GiB&sync=no&&").unwrap();
    assert_eq!((url.scheme(), url.path()), ("slab", "/data/kv"));
    assert_eq!(url.directory().unwrap(), Path::new("/data/kv"));
    assert_eq!(url.take_size("size").unwrap(), Some(200 << 30));
    assert_eq!((url.take_size("size").unwrap(), url.take("other")), (None, None));
    assert!(url.finish(&["size", "sync"]).unwrap_err().to_string().contains("\"sync\""));
    assert_eq!(url.take_flag("sync").unwrap(), Some(false));
    url.finish(&[]).unwrap();
    let memory = Url::parse("memory://").unwrap();
    memory.no_directory().unwrap();
    assert!(memory.directory().is_err());
    assert!(Url::parse("null:///x").unwrap().no_directory().is_err());
}

#[test]
fn what_is_no_url() {
    for text in
        ["", "nope", "relative/path", "file:/x", "://x", "FILE:///x", "a b:///x", "1x:///x", "f\0:///x"]
    {
        refused(text);
    }
    for text in ["file:///x?size", "file:///x?a=1&a=2", "file:///%", "file:///%0", "file:///%zz"] {
        refused(text);
    }
    for text in ["file:///a%00b", "/a\0b", "file:///%ff", "/kv?size=1GiB"] {
        refused(text);
    }
    assert!(refused("/kv?size=1GiB").contains("file:///kv?size=1GiB"), "the message says how");
}

#[test]
fn a_path_is_what_it_says() {
    for (text, path) in [
        ("/a b/%41/ü", "/a b/%41/ü"),
        ("file:///a%20b/%2541/%C3%BC", "/a b/%41/ü"),
        ("file:///a%3Fb", "/a?b"),
    ] {
        let url = Url::parse(text).unwrap();
        assert_eq!((url.scheme(), url.path()), ("file", path));
    }
}

#[test]
fn sizes_times_and_shares() {
    let size = |text: &str| Url::parse(&format!("x://?v={text}")).unwrap().take_size("v").ok().flatten();
    for (text, bytes) in [
        ("4096", 4096),
        ("4096B", 4096),
        ("1k", 1_000),
        ("1KB", 1_000),
        ("1KiB", 1_024),
        ("200G", 200_000_000_000),
        ("1Gi", 1 << 30),
        ("1.5MiB", 3 << 19),
        ("2%20TiB", 2 << 40),
    ] {
        assert_eq!(size(text), Some(bytes), "{text}");
    }
    for text in ["", "0", "-1", "1e3", "12XB", "1iB", "GiB", ".", "1.2.3", "5000000TiB", "inf", "NaN", "+5"] {
        assert_eq!(size(text), None, "{text}");
    }
    let time = |text: &str| Url::parse(&format!("x://?v={text}")).unwrap().take_seconds("v").ok().flatten();
    for (text, seconds) in [("90", 90.0), ("90s", 90.0), ("500ms", 0.5), ("5m", 300.0), ("7d", 604_800.0)] {
        assert_eq!(time(text), Some(Duration::from_secs_f64(seconds)), "{text}");
    }
    for text in ["", "0", "-5s", "5w", "1e300d", "s"] {
        assert_eq!(time(text), None, "{text}");
    }
    let share = |text: &str| Url::parse(&format!("x://?v={text}")).unwrap().take_share("v").ok().flatten();
    assert_eq!(share("5%25"), Some(Share::Fraction(0.05)));
    assert_eq!(share("10GiB"), Some(Share::Bytes(10 << 30)));
    assert_eq!((share("101%25"), share("%25"), share("x")), (None, None, None));
    assert_eq!((Share::Fraction(0.05).of(1_000), Share::Bytes(7).of(1_000)), (50, 7));
}

#[test]
fn errors_name_the_option_and_what_it_may_be() {
    let mut url = Url::parse("x://?io=fast&sync=1&n=-1&r=x").unwrap();
    let error = |result: Result<(), hicache_core::Error>| result.unwrap_err().to_string();
    let io = error(url.take_choice("io", &["auto", "uring"]).map(drop));
    assert_eq!(io, "storage: io: \"fast\" is not auto or uring");
    assert_eq!(error(url.take_flag("sync").map(drop)), "storage: sync: \"1\" is not yes or no");
    assert_eq!(error(url.take_number("n").map(drop)), "storage: n: \"-1\" is not a whole number");
    assert!(url.take_real("r").is_err());
    url.finish(&[]).unwrap();
}

#[test]
fn no_store_is_opened_with_an_option_that_it_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    for scheme in schemes() {
        let path = dir.path().join(scheme);
        let path =
            if scheme == "file" || scheme == "slab" { path.display().to_string() } else { String::new() };
        let Err(error) = open(&format!("{scheme}://{path}?fnord=1"), &Client::alone(US)) else {
            panic!("{scheme} took it")
        };
        let error = error.to_string();
        assert!(error.starts_with("storage: "), "{error}");
        assert!(error.contains("fnord") || error.contains("size"), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
    let error = open("s3://bucket", &Client::alone(US)).err().unwrap().to_string();
    assert!(schemes().all(|scheme| error.contains(scheme)), "{error}");
}

#[test]
fn ranks_have_directories_and_shares() {
    let identity = Identity::of(&[], &[0, 1], &[2, 4], PageSize::new(1).unwrap(), &[]);
    let client = Client::new(&identity, vec![0, 1], vec![2, 4]).unwrap();
    assert_eq!(client.directory(), "rank-0.1-of-2.4");
    assert_eq!((client.share(800, None), client.share(800, Some(2)), client.ranks()), (100, 400, 8));
    assert_eq!(client.field("rank"), Some("0.1"));
    assert_eq!((Client::alone(US).directory(), Client::alone(US).share(8, None)), (String::from("all"), 8));
    for (rank, world) in [(vec![2], vec![2]), (vec![0], vec![]), (vec![0; 9], vec![1; 9])] {
        assert!(Client::new(&identity, rank, world).is_err());
    }
    let most = Client::new(&identity, vec![u32::MAX - 1; 8], vec![u32::MAX; 8]).unwrap();
    assert!(most.directory().len() <= 255 && most.ranks() == u64::MAX);
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,40}", tail in "[a-z=&%?0-9/]{0,30}") {
        for text in [text.clone(), format!("file:///{text}?{tail}"), format!("file:///{tail}"), tail] {
            if let Ok(mut url) = Url::parse(&text) {
                prop_assert!(!url.path().contains('\0'));
                for name in ["a", "b", ""] {
                    let _ = (url.clone().take_size(name), url.clone().take_seconds(name), url.take_share(name));
                }
            } else {
                prop_assert!(!text.starts_with('/') || text.contains(['?', '\0']));
            }
        }
    }
}
