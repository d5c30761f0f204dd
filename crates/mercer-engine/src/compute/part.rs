//! Some of the rows of a matrix: all, a range or a list.

use std::borrow::Cow;
use std::ops::Range;

/// Some of the rows of a matrix or of the points of a set, in the order in which they are named.
///
/// ```
/// use mercer_engine::compute::Part;
/// assert_eq!(Part::Rows(&[4, 1]).len(10), 2);
/// assert_eq!(Part::All.within(10, 3..5), Part::Range(3..5));
/// assert_eq!(Part::Range(2..8).within(10, 3..5), Part::Range(5..7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// All of them, in their order.
    All,
    /// Consecutive ones.
    Range(Range<usize>),
    /// Those of a list, in any order; where something is added to rows, they must differ.
    Rows(&'a [usize]),
}

impl Part<'_> {
    /// How many there are, of `n`.
    pub fn len(&self, n: usize) -> usize {
        match self {
            Part::All => n,
            Part::Range(range) => range.len(),
            Part::Rows(rows) => rows.len(),
        }
    }

    /// The range that they are, of `n`; none for a list.
    pub fn range(&self, n: usize) -> Option<Range<usize>> {
        match self {
            Part::All => Some(0..n),
            Part::Range(range) => Some(range.clone()),
            Part::Rows(_) => None,
        }
    }

    /// All their numbers, of `n`.
    pub fn list(&self, n: usize) -> Cow<'_, [usize]> {
        match self {
            Part::Rows(rows) => Cow::Borrowed(rows),
            _ => Cow::Owned(self.range(n).into_iter().flatten().collect()),
        }
    }

    /// Those at the places `range` among them.
    pub fn within(&self, n: usize, range: Range<usize>) -> Part<'_> {
        match self {
            Part::Rows(rows) => Part::Rows(&rows[range]),
            _ => {
                let first = self.range(n).map_or(0, |own| own.start);
                Part::Range(first + range.start..first + range.end)
            }
        }
    }

    /// Whether they are all of `n`, in their order.
    pub fn is_all(&self, n: usize) -> bool {
        self.range(n) == Some(0..n)
    }
}
