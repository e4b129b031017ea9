//! What `SGLang`'s file backend calls a page: `<64 hex>_<model>_<rank>_<size>.bin`, with more for pipeline and context
//! ranks, and without ranks where all of them have the same bytes (latent attention).
//!
//! On error: names `storage` and what can't be a name.

use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::storage::Client;

/// A name of more bytes can't be had on any usual file system.
const MOST_BYTES: usize = 255;
/// A digest in hex, and `.bin`.
const REST: usize = 64 + 4;

/// What follows the digest, of a served model's name and the client's ranks: (tensor, pipeline, context).
///
/// # Errors
/// Without a name, with one that is too long or has a NUL, or with more axes than these.
pub fn suffix(client: &Client, model: Option<&str>, latent: bool) -> Result<String> {
    let Some(model) = model.or_else(|| client.field("model")).filter(|model| !model.is_empty()) else {
        return argument("storage", "names=sglang needs model=, the name under which SGLang serves it");
    };
    let axis =
        |at: usize| (client.rank.get(at).copied().unwrap_or(0), client.world.get(at).copied().unwrap_or(1));
    if client.world.iter().skip(3).any(|&size| size > 1) {
        return argument(
            "storage",
            "names=sglang knows tensor, pipeline and context ranks: say suffix= for others",
        );
    }
    let mut suffix = format!("_{}", model.replace('/', "-"));
    let ((tensor, tensors), (stage, stages), (context, contexts)) = (axis(0), axis(1), axis(2));
    if !latent {
        suffix += &format!("_{tensor}_{tensors}");
    }
    if stages > 1 {
        suffix += &format!("_{stages}_{stage}");
    }
    if contexts > 1 {
        suffix += &format!("_cp{context}_{contexts}");
    }
    checked(suffix)
}

/// A suffix that makes names of files in this directory, and no other.
///
/// # Errors
/// When it doesn't.
pub fn checked(suffix: String) -> Result<String> {
    if suffix.contains(['/', '\0']) {
        return argument("storage", format!("{suffix:?} can't be in a file's name"));
    }
    if REST + suffix.len() > MOST_BYTES {
        return argument("storage", format!("{suffix:?} makes names of more than {MOST_BYTES} bytes"));
    }
    Ok(suffix)
}

/// A page's file.
pub fn file(key: &Digest, suffix: &str) -> String {
    format!("{}{suffix}.bin", hex::encode(key.0))
}

/// The page whose file this is, if it is one of ours.
pub fn digest(name: &str, suffix: &str) -> Option<Digest> {
    let mut key = [0; 32];
    hex::decode_to_slice(name.strip_suffix(".bin")?.strip_suffix(suffix)?, &mut key).ok()?;
    (name == file(&Digest(key), suffix)).then_some(Digest(key))
}
