//! Dense problems within a training step, each solved by one block: what Ritz and SpIN do to `[p, p]` matrices.

use super::gpu::Gpu;
use super::launch::Arg;
use super::memory::Buffer;
use super::module::Source;
use super::resident::{Chunk, Estimate, own_stride};
use crate::compute::Tensor;
use crate::{Error, Result};
use std::sync::OnceLock;

/// Threads of a block that solves a problem.
const THREADS: u32 = 1024;

pub(super) fn source() -> String {
    concat!("#define THREADS 1024\n", include_str!("control.cuh"), include_str!("resident_small.cu")).into()
}

fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// Queues a kernel that solves a problem of `p` rows; `arguments` are given whether shared memory holds `[p, p]`.
fn solve<const N: usize>(gpu: &Gpu, name: &'static str, p: usize, arguments: impl FnOnce(Arg) -> [Arg; N]) {
    // The kernels' own shared memory is less than a kilobyte.
    let bytes = 8 * p * p;
    let fits = bytes + 1024 <= gpu.shared_memory as usize;
    let shared = if fits { bytes as u32 } else { 0 };
    gpu.launch(compiled(), name, [1, 1, 1], THREADS, shared, &arguments(Arg::I32(i32::from(fits))));
}

fn at(tensor: &Tensor) -> Arg {
    Arg::U64(tensor.address())
}

/// f64 memory for problems of `p` rows.
fn room(gpu: &'static Gpu, p: usize, numbers: usize) -> Result<Buffer> {
    gpu.allocate(8 * numbers.max(1), &|| format!("eigenproblems of {p} rows"), "use fewer functions")
}

/// Eigenvalues in descending order and the eigenvectors as rows `[p, p]`, of a symmetric matrix `[p, p]` (its lower half is
/// read), by the Jacobi rotations of one block that solve the eigenproblems within a training step.
pub fn eigenpairs(gpu: &'static Gpu, p: usize, a: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    if a.len() != p * p {
        return Err(Error::input(format!("{} numbers are no {p}×{p} matrix", a.len())));
    }
    let (mut matrix, work) = (room(gpu, p, p * p)?, room(gpu, p, p * (p + 1))?);
    let (values, vectors, failed) = (room(gpu, p, p)?, room(gpu, p, p * p)?, room(gpu, p, 1)?);
    matrix.write(0, a);
    solve(gpu, "eigenpairs", p, |fits| {
        let [a, work, values, vectors, failed] = [&matrix, &work, &values, &vectors, &failed].map(Arg::from);
        [Arg::size(p), a, fits, work, values, vectors, failed]
    });
    let (mut λ, mut u, mut bad) = (vec![0.0f64; p], vec![0.0; p * p], [0u32]);
    values.read(0, &mut λ)?;
    vectors.read(0, &mut u)?;
    failed.read(0, &mut bad)?;
    if bad[0] == 0 && λ.iter().all(|λ| λ.is_finite()) {
        return Ok((λ, u));
    }
    Err(Error::Numerical(format!("the rotations of a {p}×{p} matrix did not converge: are its entries finite?")))
}

/// Memory for [`Chunk::ritz`] with `p` functions.
pub fn ritz_room(gpu: &'static Gpu, p: usize) -> Result<Buffer> {
    room(gpu, p, (5 * p + 2) * p)
}

/// Memory for [`Chunk::spin`] with `k` functions.
pub fn spin_room(gpu: &'static Gpu, k: usize) -> Result<Buffer> {
    room(gpu, k, 5 * k * k)
}

/// What [`Chunk::spin`] finds.
pub struct Masks {
    /// `[k, k]` with `g = image Kψ`.
    pub image: Tensor,
    /// `2 G` `[k, k]`
    pub mask: Tensor,
    /// How much of the Jacobian's average stays, and how much the new one counts: `[2]`.
    pub share: Tensor,
}

impl Chunk {
    /// Ritz's matrices `[p, p]` with `g = image Kφ + own φ` from `Σ` and `Π` `[p, p]` of functions with `values` values
    /// each; directions of Σ below `floor` of its largest are left out.
    pub fn ritz(
        &mut self,
        values: usize,
        floor: f64,
        [sigma, pi]: [&Tensor; 2],
        work: &mut Buffer,
        [image, own]: [&mut Tensor; 2],
    ) {
        let p = sigma.shape()[0];
        solve(self.gpu, "ritz", p, |fits| {
            let [work, control, record] = [&*work, &self.control, &self.record].map(Arg::from);
            let sizes = [Arg::size(p), Arg::size(self.k), Arg::F64(values as f64), Arg::F64(floor)];
            let [p, k, points, floor] = sizes;
            [p, k, points, floor, at(sigma), at(pi), fits, work, control, record, at(image), at(own)]
        });
    }

    /// SpIN's matrices from `Σ` and `Π` `[k, k]` of functions with `values` values each, with the moving average of Σ,
    /// which keeps the share `decay` at each step; `own` `[k, k]` is `⟨κ(x,x)ψ_i,ψ_j⟩` where κ(x,x) varies.
    #[allow(clippy::too_many_arguments)]
    pub fn spin(
        &mut self,
        estimate: Estimate<'_>,
        values: usize,
        decay: f64,
        own: Option<&Tensor>,
        [sigma, pi]: [&Tensor; 2],
        work: &mut Buffer,
        out: &mut Masks,
    ) {
        let (drawn, n) = (estimate.drawn as f64, estimate.points as f64);
        // (1 − 1/n) (R − D) B/(B−1) + D B/n, or R where it has no bias
        let biased = estimate.drawn > 1;
        let [apart, own_share] = if biased { [(1.0 - 1.0 / n) * drawn / (drawn - 1.0), drawn / n] } else { [1.0, 1.0] };
        solve(self.gpu, "spin", self.k, |fits| {
            let [work, average, control, record] = [&*work, &self.average, &self.control, &self.record].map(Arg::from);
            let [gram, own] = [Some(estimate.gram), own].map(|t| t.filter(|_| biased).map_or(Arg::U64(0), at));
            let [apart, own_share, size, decay] =
                [apart, own_share, estimate.trace * values as f64, decay].map(Arg::F64);
            let points = Arg::F64(values as f64);
            let [sigma, pi, image, mask, share] = [sigma, pi, &out.image, &out.mask, &out.share].map(at);
            [
                Arg::size(self.k),
                points,
                apart,
                own_share,
                size,
                decay,
                gram,
                own,
                sigma,
                pi,
                fits,
                work,
                average,
                control,
                record,
                image,
                mask,
                share,
            ]
        });
    }
}

/// `out_ib = κ(x_b,x_b) ψ_ib` with κ from the diagonal of `gram` `[B, B]`, or its blocks `[B, c, c]`; `psi`, `out`
/// `[k, B, c]`.
pub fn weigh(gpu: &Gpu, gram: &Tensor, psi: &Tensor, out: &mut Tensor) {
    let (b, c) = (psi.shape()[1], psi.shape()[2]);
    let [total, b, c, stride] = [psi.len(), b, c, own_stride(gram)].map(Arg::long);
    gpu.over(compiled(), "weigh", psi.len(), &[total, b, c, stride, at(gram), at(psi), at(out)]);
}

/// `out_i = scale ψ_one` for every i; `psi`, `out` `[k, B, c]`.
pub fn spread(gpu: &Gpu, scale: f32, psi: &Tensor, one: usize, out: &mut Tensor) {
    let [total, values, one] = [psi.len(), psi.len() / psi.shape()[0], one].map(Arg::long);
    gpu.over(compiled(), "spread", psi.len(), &[total, values, one, Arg::F32(scale), at(psi), at(out)]);
}

/// `average ← share_0 average + share_1 fresh` `[P]`
pub fn blend(gpu: &Gpu, share: &Tensor, fresh: &Tensor, average: &mut Tensor) {
    gpu.over(compiled(), "blend", fresh.len(), &[Arg::long(fresh.len()), at(share), at(fresh), at(average)]);
}

/// The addresses of `J_b` `[P]` for each of k functions.
pub struct Jacobian {
    addresses: Buffer,
    k: usize,
}

impl Jacobian {
    /// Room for the addresses of `k` tensors.
    pub fn new(gpu: &'static Gpu, k: usize) -> Result<Jacobian> {
        Ok(Jacobian { addresses: room(gpu, k, k)?, k })
    }

    /// The tensors that the next steps are to use.
    pub fn point_to(&mut self, tensors: &[Tensor]) {
        self.addresses.write(0, &tensors.iter().map(Tensor::address).collect::<Vec<u64>>());
    }

    /// `gradient_q ← gradient_q + Σ_b mask_bi J_b,q` `[P]`, i the function that q is a parameter of.
    pub fn add_masked(&self, gpu: &Gpu, mask: &Tensor, gradient: &mut Tensor) {
        let [own, k] = [gradient.len() / self.k, self.k].map(Arg::long);
        let arguments = [own, k, Arg::from(&self.addresses), at(mask), at(gradient)];
        gpu.over(compiled(), "masked_sum", gradient.len(), &arguments);
    }
}
