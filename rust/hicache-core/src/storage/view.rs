//! The bytes of a page as a store sees them: runs of memory that together are its payload.
//!
//! Where host memory keeps a page in one run, so does its view, and bytes go straight from and to it.
//! On error: nothing here fails; a length that doesn't match is a bug of the caller.

/// A page to be written.
#[derive(Clone, Debug)]
pub struct PageRef<'a> {
    runs: Vec<&'a [u8]>,
}

/// A page to be read into.
#[derive(Debug)]
pub struct PageMut<'a> {
    runs: Vec<&'a mut [u8]>,
}

impl<'a> PageRef<'a> {
    /// Of its runs, in order.
    pub const fn new(runs: Vec<&'a [u8]>) -> Self {
        Self { runs }
    }

    /// Size of the payload.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[&'a [u8]] {
        &self.runs
    }

    /// The payload in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.runs.concat()
    }
}

impl<'a> PageMut<'a> {
    /// Of its runs, in order.
    pub const fn new(runs: Vec<&'a mut [u8]>) -> Self {
        Self { runs }
    }

    /// Size of the payload.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// The runs, in order.
    pub fn runs(&mut self) -> &mut [&'a mut [u8]] {
        &mut self.runs
    }

    /// What has been read into it.
    pub fn view(&self) -> PageRef<'_> {
        PageRef { runs: self.runs.iter().map(|run| &**run).collect() }
    }

    /// Fills it with a payload of its size; false, and nothing done, if that has another one.
    #[must_use]
    pub fn fill_from(&mut self, payload: &[u8]) -> bool {
        if payload.len() != self.bytes() {
            return false;
        }
        let mut rest = payload;
        for run in &mut self.runs {
            let (now, later) = rest.split_at(run.len());
            run.copy_from_slice(now);
            rest = later;
        }
        true
    }
}

impl<'a> From<&'a [u8]> for PageRef<'a> {
    fn from(run: &'a [u8]) -> Self {
        Self { runs: vec![run] }
    }
}

impl<'a> From<&'a mut [u8]> for PageMut<'a> {
    fn from(run: &'a mut [u8]) -> Self {
        Self { runs: vec![run] }
    }
}
