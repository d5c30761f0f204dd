//! Search in a graph of neighbours beside the exact one: a million clustered codes of 64 coordinates.

use crate::Failure;
use mercer::retrieval::{ExactSearch, Graph, Metric, Rounding, recall};
use mercer::rng::Rng;
use ndarray::Array2;
use serde_json::{Value, json};
use std::time::Instant;

const COLUMNS: usize = 64;
const QUERIES: usize = 1000;
const CLUSTERS: usize = 2000;

/// Codes whose coordinates fall in size, as those of eigenfunctions do: the centre of a cluster and a deviation half as large.
fn codes(n: usize, centres: &Array2<f32>, rng: &mut Rng) -> Array2<f32> {
    let cluster: Vec<usize> = (0..n).map(|_| rng.below(CLUSTERS)).collect();
    Array2::from_shape_fn((n, COLUMNS), |(i, j)| centres[[cluster[i], j]] + 0.5 * size(j) * rng.normal() as f32)
}

fn size(j: usize) -> f32 {
    1.0 / (1.0 + j as f32).sqrt()
}

/// Candidates that walks keep, from the fastest to the most thorough.
const CANDIDATES: [usize; 8] = [16, 24, 32, 48, 64, 96, 128, 256];

/// Seconds of 1000 queries for the ten nearest by cosine, all at once and one by one, and the recall of graphs whose walks keep more and more candidates. What is
/// found is written to the standard error as soon as it is known.
pub fn run(n: usize, repeats: usize) -> Result<Value, Failure> {
    let mut rng = Rng::new(1);
    let centres = Array2::from_shape_fn((CLUSTERS, COLUMNS), |(_, j)| size(j) * rng.normal() as f32);
    let (items, queries) = (codes(n, &centres, &mut rng), codes(QUERIES, &centres, &mut rng));
    let search = ExactSearch::new(items.view(), Metric::Cosine)?;
    let (exact_seconds, exact) = crate::time(0, repeats, || search.nearest(queries.view(), 10))?;
    // One query at a time, as a server gets them; of the exact search fewer, because it takes as long for each.
    let single = |few: usize, find: &dyn Fn(ndarray::ArrayView2<f32>) -> mercer::Result<mercer::retrieval::Hits>| {
        let start = Instant::now();
        for query in queries.rows().into_iter().take(few) {
            find(query.insert_axis(ndarray::Axis(0)))?;
        }
        Ok::<f64, Failure>(start.elapsed().as_secs_f64() / few as f64)
    };
    let exact_single = single(20, &|query| search.nearest(query, 10))?;
    eprintln!("exact: {exact_seconds:.3?} s for {QUERIES} queries, {:.3} ms a single one", 1e3 * exact_single);
    let mut graphs = vec![];
    for rounding in [Rounding::I8, Rounding::F32] {
        let start = Instant::now();
        let mut graph = Graph::new(items.view(), Metric::Cosine, rounding)?;
        let built = start.elapsed().as_secs_f64();
        eprintln!("{rounding:?}: built in {built:.1} s, {} MiB", graph.bytes() >> 20);
        for candidates in CANDIDATES {
            graph = graph.keeping(candidates);
            let (seconds, hits) = crate::time(1, repeats, || graph.nearest(&search, queries.view(), 10))?;
            let found = recall(&hits, &exact).iter().sum::<f64>() / QUERIES as f64;
            let one = single(QUERIES, &|query| graph.nearest(&search, query, 10))?;
            eprintln!(
                "  {candidates} candidates: recall {found:.4}, {seconds:.4?} s at once, {:.4} ms a single one",
                1e3 * one
            );
            graphs.push(json!({
                "rounding": rounding, "candidates": candidates, "build_seconds": built, "seconds": seconds, "single_seconds": one,
                "bytes": graph.bytes(), "recall": found,
            }));
        }
    }
    Ok(json!({
        "items": n, "seconds": exact_seconds, "single_seconds": exact_single, "code_bytes": 4 * n * COLUMNS, "graphs": graphs
    }))
}
