//! Where one plane's elements are: a base and one stride per axis. Pure arithmetic.
//! On error: nothing here fails; sizes were checked by [`super::Layout`].

/// One plane in host memory. Strides and sizes in bytes; offsets from the slab's start.
///
/// Byte `b` of head `h` of row `t` of slot `s`, with `heads` heads in each of `groups` groups, is at
/// `offset + s·page + (h / heads)·group + t·row + (h mod heads)·head + b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Of slot 0.
    pub offset: usize,
    /// From one slot to the next.
    pub page: usize,
    /// From one group of heads to the next.
    pub group: usize,
    /// From one row (a token's, mostly) to the next.
    pub row: usize,
    /// From one head of a group to the next.
    pub head: usize,
    /// Groups of heads.
    pub groups: usize,
    /// Rows of a page.
    pub rows: usize,
    /// Heads in a group.
    pub heads: usize,
    /// Of one head of one row.
    pub bytes: usize,
}

impl Axes {
    /// Address of a head of a row of a slot, from the slab's start.
    pub const fn address(&self, slot: usize, row: usize, head: usize) -> usize {
        let (group, head) = (head / self.heads, head % self.heads);
        self.offset + slot * self.page + group * self.group + row * self.row + head * self.head
    }

    /// Payload of a page of this plane.
    pub const fn page_bytes(&self) -> usize {
        self.row_bytes() * self.rows
    }

    /// Payload of a row, all heads.
    pub const fn row_bytes(&self) -> usize {
        self.groups * self.heads * self.bytes
    }

    /// A page's axes in the order of its payload (row, group, head) as (extent, stride), outermost first,
    /// neighbours merged; and the bytes that are contiguous in the end.
    pub(super) fn nest(&self) -> ([(usize, usize); 3], usize) {
        let mut nest = [(1, 0); 3];
        let mut run = self.bytes;
        let mut left = 3;
        for (extent, stride) in [(self.heads, self.head), (self.groups, self.group), (self.rows, self.row)] {
            if extent == 1 {
                continue;
            }
            if left == 3 && stride == run {
                run *= extent;
            } else {
                left -= 1;
                nest[left] = (extent, stride);
            }
        }
        (nest, run)
    }
}
