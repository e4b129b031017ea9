//! The URL that names a store: `scheme:///absolute/path?option=value&…`.
//!
//! Percent escapes are undone; a bare absolute path is the file store's, taken as it is. A store takes the options
//! it has, each by its kind, and refuses the rest ([`Url::finish`]) before it touches anything.
//! On error: names `storage`, and the option where it is one.

use crate::error::{Result, argument};
use percent_encoding::percent_decode_str;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Beyond this a number is a mistake in the unit, and sums of two still fit.
const MOST: f64 = (1u64 << 62) as f64;

/// A parsed URL, with the options that nobody took yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    path: String,
    options: Vec<(String, String)>,
}

/// So much of a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// In bytes.
    Bytes(u64),
    /// As a fraction, from 0 to 1.
    Fraction(f64),
}

impl Share {
    /// In bytes, of so many.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Fraction(part) => (whole as f64 * part) as u64,
        }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Fraction(part) => write!(f, "{}%", part * 100.0),
        }
    }
}

impl Url {
    /// # Errors
    /// When it is no URL: no scheme, an escape that is none, an option without a value or given twice.
    pub fn parse(text: &str) -> Result<Self> {
        if Path::new(text).is_absolute() {
            return bare(text);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse(format!(
                "{text:?} is neither a URL such as file:///directory nor an absolute path"
            ));
        };
        if !matches!(scheme.as_bytes(), [b'a'..=b'z', rest @ ..] if rest.iter().all(u8::is_ascii_alphanumeric))
        {
            return refuse(format!("{text:?} begins with no name of a store, such as file:// or memory://"));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options: Vec<(String, String)> = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let Some((name, value)) = option.split_once('=') else {
                return refuse(format!("{option:?} in {text:?} is no option: write {option}=value"));
            };
            let (name, value) = (unescape(name)?, unescape(value)?);
            if options.iter().any(|(other, _)| *other == name) {
                return refuse(format!("{name} is given twice in {text:?}"));
            }
            options.push((name, value));
        }
        Ok(Self { scheme: scheme.to_owned(), path: unescape(path)?, options })
    }

    /// The store's kind.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What follows the scheme, unescaped; may be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path, of a store that needs a directory.
    ///
    /// # Errors
    /// When it is not absolute.
    pub fn directory(&self) -> Result<PathBuf> {
        let path = PathBuf::from(&self.path);
        if path.is_absolute() {
            return Ok(path);
        }
        refuse(format!("{} needs an absolute path: {0}:///directory", self.scheme))
    }

    /// That there is no path, of a store that needs none.
    ///
    /// # Errors
    /// When there is one.
    pub fn no_directory(&self) -> Result<()> {
        if self.path.is_empty() || self.path == "/" {
            return Ok(());
        }
        refuse(format!("{} keeps nothing in a directory: {0}://, without {:?}", self.scheme, self.path))
    }

    /// An option's text, if it is given.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(option, _)| option == name)?;
        Some(self.options.remove(at).1)
    }

    /// A positive number of bytes: "200GiB" (2^30), "200GB" or "200G" (10^9), "4096".
    ///
    /// # Errors
    /// When it is none.
    pub fn take_size(&mut self, name: &str) -> Result<Option<u64>> {
        self.take_as(name, "a size such as 200GiB or 200GB", |text| size(text).filter(|&bytes| bytes > 0))
    }

    /// Bytes, or a percentage of something: "10GiB", "5%".
    ///
    /// # Errors
    /// When it is neither.
    pub fn take_share(&mut self, name: &str) -> Result<Option<Share>> {
        self.take_as(name, "a size such as 10GiB, or a percentage such as 5%", |text| {
            let Some(percent) = text.strip_suffix('%') else { return size(text).map(Share::Bytes) };
            let percent = decimal(percent)?;
            (percent <= 100.0).then_some(Share::Fraction(percent / 100.0))
        })
    }

    /// A positive time: "90" or "90s", "500ms", "5m", "36h", "7d".
    ///
    /// # Errors
    /// When it is none.
    pub fn take_seconds(&mut self, name: &str) -> Result<Option<Duration>> {
        self.take_as(name, "a time such as 90s, 5m, 36h or 7d", |text| {
            let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
            let (number, unit) = text.split_at(unit_at);
            let unit = match unit {
                "ms" => 1e-3,
                "" | "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return None,
            };
            let seconds = decimal(number)? * unit;
            // Three thousand years: what is more is a mistake, and overflows in sums with clocks.
            (seconds > 0.0 && seconds <= 1e11).then(|| Duration::from_secs_f64(seconds))
        })
    }

    /// A whole number.
    ///
    /// # Errors
    /// When it is none.
    pub fn take_number(&mut self, name: &str) -> Result<Option<u64>> {
        self.take_as(name, "a whole number", |text| text.parse().ok().filter(|&number| number <= 1 << 62))
    }

    /// A number that is not negative, with or without a fraction.
    ///
    /// # Errors
    /// When it is none.
    pub fn take_real(&mut self, name: &str) -> Result<Option<f64>> {
        self.take_as(name, "a number that is not negative", decimal)
    }

    /// One of these words.
    ///
    /// # Errors
    /// When it is another one.
    pub fn take_choice(&mut self, name: &str, choices: &[&'static str]) -> Result<Option<&'static str>> {
        self.take_as(name, &choices.join(" or "), |text| {
            choices.iter().find(|choice| **choice == text).copied()
        })
    }

    /// "yes" or "no".
    ///
    /// # Errors
    /// When it is neither.
    pub fn take_flag(&mut self, name: &str) -> Result<Option<bool>> {
        Ok(self.take_choice(name, &["yes", "no"])?.map(|choice| choice == "yes"))
    }

    /// That all options have been taken.
    ///
    /// # Errors
    /// Names those that have not, and those that `known` lists.
    pub fn finish(&self, known: &[&str]) -> Result<()> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        let known = if known.is_empty() {
            String::from("it has none")
        } else {
            format!("it has {}", known.join(", "))
        };
        refuse(format!("{} has no option {name:?}: {known}", self.scheme))
    }

    fn take_as<T>(
        &mut self,
        name: &str,
        kind: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => refuse(format!("{name}: {text:?} is not {kind}")),
        }
    }
}

fn refuse<T>(reason: String) -> Result<T> {
    argument("storage", reason)
}

/// A path as it is. Who writes options behind one means a URL.
fn bare(text: &str) -> Result<Url> {
    if text.contains('?') {
        return refuse(format!("{text:?} is a path: options need a URL, file://{text}"));
    }
    if text.contains('\0') {
        return refuse(format!("{text:?} is no path"));
    }
    Ok(Url { scheme: String::from("file"), path: text.to_owned(), options: Vec::new() })
}

fn unescape(text: &str) -> Result<String> {
    let hex = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    let whole = text.match_indices('%').all(|(at, _)| hex(at + 1) && hex(at + 2));
    match percent_decode_str(text).decode_utf8() {
        Ok(plain) if whole && !plain.contains('\0') => Ok(plain.into_owned()),
        _ => refuse(format!("{text:?} has an escape that is none: write % as %25")),
    }
}

/// Bytes from a number and a unit of 10^3n (K, KB, …) or 2^10n (KiB, Ki, …), in upper or lower case.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix('B').unwrap_or(&unit);
    let (base, letter) = unit.strip_suffix('I').map_or((1_000.0, unit), |letter| (1_024.0, letter));
    let power = ["", "K", "M", "G", "T", "P"].iter().position(|known| *known == letter)?;
    if power == 0 && base > 1_000.0 {
        return None;
    }
    let bytes = decimal(number.trim_end())? * f64::powi(base, i32::try_from(power).ok()?);
    (bytes <= MOST).then_some(bytes as u64)
}

/// A decimal that is not negative: digits, with or without a fraction.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain && text.starts_with(|digit: char| digit.is_ascii_digit()) { text.parse().ok() } else { None }
}
