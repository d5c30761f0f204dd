//! Kψ on a batch, on the device: what the host draws for it ahead, and how it comes about.

use super::average::{Average, Values};
use super::local::Local;
use super::walk::Walk;
use crate::Result;
use crate::compute::cuda::{Gpu, gather_rows_at, resident};
use crate::compute::{Math, Tensor};
use crate::rng::Rng;
use crate::spectrum::neural::{Action, Functions, RandomWalk, Schroedinger};
use ndarray::ArrayView2;
use resident::{Chunk, Estimate};

/// An operator's action as a device can follow it by itself.
#[derive(Clone, Copy)]
pub enum DeviceAction<'a> {
    /// `(Kψ)(x_b) = (1/Bcτ) Σ_b' κ(x_b,x_b') ψ(x_b')` over batches of data.
    Average {
        /// κ
        values: Values<'a>,
        /// All points `[n, d]`.
        x: ArrayView2<'a, f64>,
        /// τ
        trace: f64,
    },
    /// Kψ from values at the neighbours of a batch's points.
    Walk {
        /// The graph.
        graph: &'a RandomWalk<'a>,
        /// All points `[n, d]`.
        x: ArrayView2<'a, f64>,
    },
    /// Kψ from derivatives at points that the host draws.
    Local(&'a Schroedinger),
}

impl DeviceAction<'_> {
    /// The data `[n, d]`, where there is such.
    fn data(&self) -> Option<ArrayView2<'_, f64>> {
        match self {
            DeviceAction::Average { x, .. } | DeviceAction::Walk { x, .. } => Some(*x),
            DeviceAction::Local(_) => None,
        }
    }

    /// Points of a batch where `batch` are asked for.
    pub(super) fn batch(&self, batch: usize) -> usize {
        match self {
            DeviceAction::Average { x, .. } => batch.min(x.nrows()),
            DeviceAction::Walk { graph, .. } => batch.min(graph.all_ends()),
            DeviceAction::Local(_) => batch,
        }
    }
}

/// Points as networks see them, and the functions' envelope there.
pub(super) struct Points {
    /// `[n, d]`
    pub x: Tensor,
    /// `[n, 1]`
    pub w: Option<Tensor>,
}

impl Points {
    /// Room for `n` points of `d` columns.
    pub fn room(functions: &Functions, n: usize) -> Result<Points> {
        let (device, d) = (functions.device(), functions.network().inputs());
        let w = functions.has_envelope().then(|| Tensor::zeros(device, &[n, 1])).transpose()?;
        Ok(Points { x: Tensor::zeros(device, &[n, d])?, w })
    }

    /// Queues `out ← ` those whose `count` numbers (u32) lie at `rows`.
    pub fn gather(&self, gpu: &Gpu, rows: u64, count: usize, out: &mut Points) {
        gather_rows_at(gpu, &self.x, rows, count, &mut out.x);
        if let (Some(w), Some(out)) = (&self.w, &mut out.w) {
            gather_rows_at(gpu, w, rows, count, out);
        }
    }
}

/// An operator on the device, and the buffers of its action on a batch.
pub(super) enum Image {
    Average(Box<Average>),
    Walk(Box<Walk>),
    Local(Box<Local>),
}

impl Image {
    /// For these functions on batches of `b` points, in chunks of at most `most` steps; and all points that batches are
    /// rows of. `None` where a step has to pass through the host.
    pub fn new(
        gpu: &'static Gpu,
        action: &dyn Action,
        way: DeviceAction<'_>,
        functions: &Functions,
        [most, b]: [usize; 2],
        math: Math,
    ) -> Result<Option<(Image, Points)>> {
        let mut all = match way.data() {
            Some(x) if x.nrows() > i32::MAX as usize => return Ok(None),
            Some(x) => Points { x: action.standard().gather(functions.device(), x, 0..x.nrows())?, w: None },
            None => Points::room(functions, Local::chunk(functions, [most, b]) * b)?,
        };
        let image = match way {
            DeviceAction::Average { values, x, trace } => {
                Average::new(gpu, values, x, trace, [functions.count(), b], math)?
                    .map(|average| Image::Average(Box::new(average)))
            }
            DeviceAction::Walk { graph, .. } => {
                Walk::new(gpu, graph, functions, [most, b])?.map(|walk| Image::Walk(Box::new(walk)))
            }
            DeviceAction::Local(_) if functions.has_envelope() => None,
            DeviceAction::Local(operator) => {
                Some(Image::Local(Box::new(Local::new(gpu, operator, functions, [most, b])?)))
            }
        };
        if way.data().is_some() && image.is_some() {
            all.w = functions.envelope_at(&all.x)?;
        }
        Ok(image.map(|image| (image, all)))
    }

    /// Most steps of a chunk, of at most `most`.
    pub fn chunk(&self, functions: &Functions, [most, b]: [usize; 2]) -> usize {
        match self {
            Image::Average(_) | Image::Walk(_) => most,
            Image::Local(_) => Local::chunk(functions, [most, b]),
        }
    }

    /// How products round their factors where `math` is asked for: as f32 where Kψ is made of differences.
    pub fn math(&self, math: Math) -> Math {
        match self {
            Image::Average(_) => math,
            Image::Walk(_) | Image::Local(_) => Math::F32,
        }
    }

    /// Draws `count` batches of `b` points, brings what the operator wants to know of them, and returns their row numbers
    /// among all points, `[count, b]`, and the generator's state after each.
    pub fn draw(&mut self, all: &mut Points, rng: &Rng, b: usize, count: usize) -> (Vec<u32>, Vec<Rng>) {
        let (mut rng, mut rows, mut states) = (rng.clone(), Vec::with_capacity(count * b), vec![]);
        for _ in 0..count {
            match self {
                Image::Average(average) => rows.extend(average.draw(&mut rng, b).into_iter().map(|row| row as u32)),
                Image::Walk(walk) => rows.extend(walk.draw(&mut rng, b).into_iter().map(|row| row as u32)),
                Image::Local(local) => local.draw(&mut rng, b),
            }
            states.push(rng.clone());
        }
        match self {
            Image::Average(_) => {}
            Image::Walk(walk) => walk.bring(&rows, b),
            Image::Local(local) => {
                local.bring(&mut all.x);
                rows.extend(0..(count * b) as u32);
            }
        }
        (rows, states)
    }

    /// Queues what a batch takes of the operator, whatever the functions.
    pub fn begin(&mut self, chunk: &Chunk, all: &Points) {
        match self {
            Image::Average(average) => average.begin(chunk),
            Image::Walk(walk) => walk.begin(chunk, all),
            Image::Local(_) => {}
        }
    }

    /// Queues `kpsi ← Kψ`; `psi`, `kpsi` `[k, B, c]`, of `functions` at the points `x` `[B, d]`.
    pub fn apply(
        &mut self,
        chunk: &Chunk,
        all: &Points,
        x: &Tensor,
        functions: &Functions,
        psi: &Tensor,
        kpsi: &mut Tensor,
    ) -> Result<()> {
        kpsi.reshape(psi.shape())?;
        match self {
            Image::Average(average) => {
                average.apply(psi, kpsi);
                Ok(())
            }
            Image::Walk(walk) => walk.apply(chunk, all, functions, psi, kpsi),
            Image::Local(local) => local.apply(chunk, x, functions, kpsi),
        }
    }

    /// What `⟨ψ,Kψ⟩` over a batch of `drawn` points is an estimate of.
    pub fn estimate(&self, drawn: usize) -> Estimate<'_> {
        match self {
            Image::Average(average) => average.estimate(drawn),
            Image::Walk(walk) => unbiased(&walk.none),
            Image::Local(local) => unbiased(&local.none),
        }
    }
}

/// Of an image that is exact at every point of a batch; `none` `[1, 1, 1]` is zero.
fn unbiased(none: &Tensor) -> Estimate<'_> {
    Estimate { gram: none, constant: true, drawn: 1, trace: 1.0, points: 1 }
}
