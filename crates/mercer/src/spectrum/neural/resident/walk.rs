//! A graph Laplacian's action, on the device: functions are taken at the neighbours of a batch's points too.

use super::image::Points;
use crate::Result;
use crate::compute::Tensor;
use crate::compute::cuda::resident::Chunk;
use crate::compute::cuda::{Gpu, action::Steps};
use crate::net::Workspace;
use crate::rng::Rng;
use crate::spectrum::neural::graph_laplacian::end_rows;
use crate::spectrum::neural::{Functions, RandomWalk};
use std::collections::HashMap;

/// `(s − L)/s` on the device.
pub(super) struct Walk {
    gpu: &'static Gpu,
    shift: f64,
    /// Ends of edges, and neighbours, of the points before each, `[n + 1]`.
    ends: Vec<usize>,
    starts: Vec<u32>,
    steps: Steps,
    /// The neighbours of a batch, padded to the most that there can be; none where all points are as few.
    neighbours: Option<Points>,
    /// Functions there, `[k, m, 1]`.
    there: Tensor,
    probe: Workspace,
    /// Nothing to take out of an estimate.
    pub none: Tensor,
}

impl Walk {
    /// For these functions on batches of `b` points, in chunks of at most `most` steps; `None` for too large a graph.
    pub fn new(
        gpu: &'static Gpu,
        graph: &RandomWalk<'_>,
        functions: &Functions,
        [most, b]: [usize; 2],
    ) -> Result<Option<Walk>> {
        let n = graph.ends.len() - 1;
        let (mut starts, mut neighbours, mut shares) = (vec![0u32], vec![], vec![]);
        for i in 0..n {
            for (j, share) in graph.steps(i) {
                neighbours.push(j as u32);
                shares.push(share);
            }
            let Ok(end) = u32::try_from(neighbours.len()) else { return Ok(None) };
            starts.push(end);
        }
        let listed = Some(most_neighbours(&starts, b)).filter(|m| *m < n);
        let zeros = |shape: &[usize]| Tensor::zeros(functions.device(), shape);
        Ok(Some(Walk {
            gpu,
            shift: graph.shift,
            ends: graph.ends.clone(),
            steps: Steps::new(gpu, &starts, &neighbours, &shares, [most, b], listed)?,
            starts,
            neighbours: listed.map(|m| Points::room(functions, m)).transpose()?,
            there: zeros(&[functions.count(), listed.unwrap_or(n), 1])?,
            probe: functions.network().workspace(functions.device())?,
            none: zeros(&[1, 1, 1])?,
        }))
    }

    /// The rows of the next batch.
    pub fn draw(&self, rng: &mut Rng, batch: usize) -> Vec<usize> {
        end_rows(&self.ends, rng, batch)
    }

    /// Brings what goes with the rows `[steps, b]` of a chunk.
    pub fn bring(&mut self, rows: &[u32], b: usize) {
        if self.neighbours.is_some() {
            let places: Vec<u32> = rows.chunks_exact(b).flat_map(|rows| places(&self.starts, rows)).collect();
            self.steps.bring(&places);
        }
    }

    /// Queues the neighbours of a batch.
    pub fn begin(&mut self, chunk: &Chunk, all: &Points) {
        if let (Some(neighbours), Some(list)) = (&mut self.neighbours, self.steps.list(chunk)) {
            let m = neighbours.x.shape()[0];
            all.gather(self.gpu, list, m, neighbours);
        }
    }

    /// Queues `kpsi ← Kψ`; `psi`, `kpsi` `[k, B, 1]`, of `functions`.
    pub fn apply(
        &mut self,
        chunk: &Chunk,
        all: &Points,
        functions: &Functions,
        psi: &Tensor,
        kpsi: &mut Tensor,
    ) -> Result<()> {
        let at = self.neighbours.as_ref().unwrap_or(all);
        functions.evaluate_in(&mut self.probe, &at.x, at.w.as_ref(), &mut self.there)?;
        self.steps.walk(chunk, self.shift, &self.there, psi, kpsi);
        Ok(())
    }
}

/// The most neighbours that `b` points have together: those of the b with the most. `starts` `[n + 1]`.
fn most_neighbours(starts: &[u32], b: usize) -> usize {
    let mut degrees: Vec<usize> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize).collect();
    degrees.sort_unstable_by(|a, b| b.cmp(a));
    degrees.iter().take(b).sum()
}

/// Where the neighbours of each of `rows` begin when those of the batch lie one after the other, each point's once.
fn places(starts: &[u32], rows: &[u32]) -> Vec<u32> {
    let (mut at, mut end) = (HashMap::with_capacity(rows.len()), 0);
    let place = |&row: &u32| {
        *at.entry(row).or_insert_with(|| {
            let first = end;
            end += starts[row as usize + 1] - starts[row as usize];
            first
        })
    };
    rows.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_batch_lie_apart_and_fit() {
        // Points with 3, 1, 4 and 2 neighbours.
        let starts = [0, 3, 4, 8, 10];
        assert_eq!(places(&starts, &[2, 0, 2, 3, 0]), [0, 4, 0, 7, 4]);
        assert_eq!(most_neighbours(&starts, 1), 4);
        assert_eq!(most_neighbours(&starts, 3), 9);
        assert_eq!(most_neighbours(&starts, 9), 10);
    }
}
