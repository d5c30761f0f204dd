//! Graphs of neighbours beside an index, where the program has them.

use mercer::retrieval::{ExactSearch, Hits, Index, Metric, Rounding};
use mercer::{Error, Result};
use ndarray::ArrayView2;
use std::path::{Path, PathBuf};

/// The words for how a graph keeps codes.
pub const ROUNDINGS: &[(&str, Rounding)] =
    &[("f32", Rounding::F32), ("i8", Rounding::I8), ("binary", Rounding::Binary)];

/// The file of the graph of an index.
pub fn beside(index: &Path) -> PathBuf {
    let mut path = index.as_os_str().to_owned();
    path.push(".graph");
    path.into()
}

/// Refuses graphs where the program has none.
pub fn check() -> Result<()> {
    match cfg!(feature = "usearch") {
        true => Ok(()),
        false => Err(Error::input(
            "this program has no graphs of neighbours; build it by `cargo build --release -p mercer-cli --features usearch` (it needs \
             a C++ compiler), or search exactly",
        )),
    }
}

/// Writes the graph of codes `[n, k]`.
#[cfg(feature = "usearch")]
pub fn write(path: &Path, codes: ArrayView2<f32>, metric: Metric, rounding: Rounding) -> Result<()> {
    mercer::retrieval::Graph::new(codes, metric, rounding)?.save(path)
}

#[cfg(not(feature = "usearch"))]
pub fn write(_: &Path, _: ArrayView2<f32>, _: Metric, _: Rounding) -> Result<()> {
    check()
}

/// Almost the nearest items of `queries` `[m, k]`, by the graph beside the index.
#[cfg(feature = "usearch")]
pub fn nearest(path: &Path, index: &Index, search: &ExactSearch, queries: ArrayView2<f32>, top: usize) -> Result<Hits> {
    let Some(rounding) = index.about.graph else {
        return Err(Error::file(path, "has no graph of neighbours; make the index with --graph, or search exactly"));
    };
    mercer::retrieval::Graph::open(&beside(path), index.k(), index.about.metric, rounding)?
        .nearest(search, queries, top)
}

#[cfg(not(feature = "usearch"))]
pub fn nearest(_: &Path, _: &Index, _: &ExactSearch, _: ArrayView2<f32>, _: usize) -> Result<Hits> {
    check().map(|()| unreachable!("refused"))
}
