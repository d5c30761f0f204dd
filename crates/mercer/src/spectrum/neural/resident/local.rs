//! A Schrödinger operator's action, on the device: the host draws points and takes the potential there, the device takes the
//! functions' derivatives.

use crate::Result;
use crate::compute::Tensor;
use crate::compute::cuda::resident::Chunk;
use crate::compute::cuda::{Gpu, action};
use crate::net::Workspace;
use crate::rng::Rng;
use crate::spectrum::neural::schroedinger::Field;
use crate::spectrum::neural::{Functions, Schroedinger};
use ndarray::Array2;
use rayon::prelude::*;
use std::sync::Arc;

/// `H = −Δ + V` on the device.
pub(super) struct Local {
    gpu: &'static Gpu,
    field: Arc<Field>,
    /// Shift and scale of K.
    energies: [f64; 2],
    /// Uniform numbers of the batches that were drawn and not yet brought, `[B, ·]` each.
    uniforms: Vec<Array2<f64>>,
    /// `∇ln q` and U at a chunk's points, `[chunk·B, d+1]`.
    local: Tensor,
    /// `[k, (d+2)·B, 1]`
    jet: Tensor,
    probe: Workspace,
    /// Nothing to take out of an estimate.
    pub none: Tensor,
}

/// Numbers of points and potentials that a chunk brings at most: 64 MiB.
const NUMBERS: usize = 1 << 24;

impl Local {
    /// Steps of a chunk, at most `most`, of `b` points.
    pub fn chunk(functions: &Functions, [most, b]: [usize; 2]) -> usize {
        (NUMBERS / (b * (2 * functions.network().inputs() + 1))).clamp(1, most)
    }

    /// For these functions on batches of `b` points.
    pub fn new(gpu: &'static Gpu, operator: &Schroedinger, functions: &Functions, sizes: [usize; 2]) -> Result<Local> {
        let zeros = |shape: &[usize]| Tensor::zeros(functions.device(), shape);
        let (d, rows) = (functions.network().inputs(), Local::chunk(functions, sizes) * sizes[1]);
        Ok(Local {
            gpu,
            field: operator.field(),
            energies: operator.energies(),
            uniforms: vec![],
            local: zeros(&[rows, d + 1])?,
            jet: zeros(&[functions.count(), (d + 2) * sizes[1], 1])?,
            probe: functions.network().workspace(functions.device())?,
            none: zeros(&[1, 1, 1])?,
        })
    }

    /// Takes the numbers of the next batch of `b` points from the generator.
    pub fn draw(&mut self, rng: &mut Rng, b: usize) {
        self.uniforms.push(self.field.uniforms(rng, b));
    }

    /// Brings the points of the batches that were drawn to the start of `x`, and what the operator is there.
    pub fn bring(&mut self, x: &mut Tensor) {
        let batches = std::mem::take(&mut self.uniforms);
        let of = |uniforms: &Array2<f64>| {
            let points = self.field.points(uniforms);
            let local: Vec<f32> = self.field.local(&points).iter().map(|v| *v as f32).collect();
            (points, local)
        };
        let drawn: Vec<(Vec<f32>, Vec<f32>)> = batches.par_iter().map(of).collect();
        let (points, local): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        x.write(0, &points.concat());
        self.local.write(0, &local.concat());
    }

    /// Queues `kpsi ← Kψ` `[k, B, 1]` of `functions` at `x` `[B, d]`.
    pub fn apply(&mut self, chunk: &Chunk, x: &Tensor, functions: &Functions, kpsi: &mut Tensor) -> Result<()> {
        functions.jet_in(&mut self.probe, x, &mut self.jet)?;
        action::hamiltonian(self.gpu, self.energies, chunk.step_rows(), &self.local, &self.jet, kpsi);
        Ok(())
    }
}
