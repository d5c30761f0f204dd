//! Retrieval: the items whose codes are nearest to that of a query, and what codes of each length are worth.
//!
//! A code is a row of numbers: the coordinates that a fitted model gives a point ([`Content::codes`](crate::model::Content::codes)),
//! or an embedding of any other program. Where the coordinates are in the order of their importance, as eigenfunctions are, the
//! first m of them are a code of length m.
//!
//! | type | content |
//! |---|---|
//! | [`ExactSearch`] | the nearest items, as if all pairs were compared in f64; a short code that makes a shortlist for the long one |
//! | [`Kept`] | codes in single precision, and whether their rounding is small |
//! | [`Index`] | codes, labels and names of items in a file, which is opened in milliseconds |
//! | `Graph` | almost the nearest of many items, by a graph of neighbours (needs the feature `usearch`) |
//! | [`Relevance`] | mean average precision, precision and recall, with intervals |
//! | [`Probe`] | accuracy of neighbours and of a linear classifier against the length of the code |
//!
//! ```
//! use mercer::retrieval::{ExactSearch, Metric};
//! let codes = ndarray::array![[1.0f32, 0.0], [0.0, 1.0], [0.9, 0.1]];
//! let search = ExactSearch::new(codes.view(), Metric::Cosine)?;
//! let hits = search.nearest(ndarray::array![[2.0f32, 0.0]].view(), 2)?;
//! assert_eq!(hits.items, ndarray::array![[0, 2]]);
//! assert_eq!(hits.scores[[0, 0]], 1.0);
//! # Ok::<(), mercer::Error>(())
//! ```

mod exact_search;
#[cfg(feature = "usearch")]
mod hnsw;
mod index;
mod kept;
mod measures;
mod probe;

pub use crate::operator::Metric;
pub use exact_search::{ExactSearch, Hits, Shortlist};
#[cfg(feature = "usearch")]
pub use hnsw::Graph;
pub use index::{About, Index, Items, ModelFile, Rounding, Source};
pub use kept::{Blurred, Kept};
pub use measures::{Relevance, recall};
pub use probe::{Choice, Probe, Probed};
