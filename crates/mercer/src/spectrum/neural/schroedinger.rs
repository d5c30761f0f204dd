//! Schrödinger operators `H = −Δ + V` on all of space, in the same loop as kernels.

use super::rows::most_ahead;
use super::{Batches, FunctionOperator, Functions, Points, Sample};
use crate::compute::{Control, Device, Indices, Math, Small, Tensor, elliptic};
use crate::linalg::matmul;
use crate::net::Workspace;
use crate::rng::Rng;
use crate::{Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis};
use rayon::prelude::*;
use std::f64::consts::TAU;

/// A density q on `R^d` that points are drawn from, and whose root carries the wavefunctions: `ψ = √q f`.
/// Example: [the module](super).
pub trait Guide: Send + Sync {
    /// Columns d of a point.
    fn inputs(&self) -> usize;

    /// Uniform numbers that one point takes.
    fn uniforms(&self) -> usize;

    /// A point of distribution q from numbers uniform on [0, 1).
    fn draw(&self, uniforms: &[f64], x: &mut [f64]);

    /// `q(x)`
    fn density(&self, x: &[f64]) -> f64;

    /// Writes `∇ ln q` and returns `Δ ln q`.
    fn logarithmic(&self, x: &[f64], gradient: &mut [f64]) -> f64;
}

/// Independent normal coordinates: `q ∝ exp(−|x|²/2σ²)`. Example: [the module](super).
#[derive(Clone, Copy, Debug)]
pub struct Gaussian {
    /// d
    pub dimension: usize,
    /// σ
    pub width: f64,
}

impl Guide for Gaussian {
    fn inputs(&self) -> usize {
        self.dimension
    }

    fn uniforms(&self) -> usize {
        self.dimension.next_multiple_of(2)
    }

    fn draw(&self, uniforms: &[f64], x: &mut [f64]) {
        // Box and Muller, both of each pair.
        for (x, u) in x.chunks_mut(2).zip(uniforms.chunks_exact(2)) {
            let radius = self.width * (-2.0 * (1.0 - u[0]).ln()).sqrt();
            let (sin, cos) = (TAU * u[1]).sin_cos();
            x.iter_mut().zip([cos, sin]).for_each(|(x, direction)| *x = radius * direction);
        }
    }

    fn density(&self, x: &[f64]) -> f64 {
        let square = (self.width * self.width, x.iter().map(|x| x * x).sum::<f64>());
        (-0.5 * square.1 / square.0).exp() / (TAU * square.0).powf(0.5 * self.dimension as f64)
    }

    fn logarithmic(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let square = self.width * self.width;
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = -x / square);
        -(self.dimension as f64) / square
    }
}

/// Two exponentials in the plane, a core and a tail: `q = Σ_m w_m e^{−r/s_m}/(2π s_m²)`.
/// Example: [the module](super), with this in the place of [`Gaussian`].
#[derive(Clone, Copy, Debug)]
pub struct Exponentials {
    /// `(w_m, s_m)`, the weights adding up to one.
    parts: [(f64, f64); 2],
}

/// Radius below which the origin is taken to be this far away.
const LEAST_RADIUS: f64 = 1e-10;

impl Exponentials {
    /// The weights for which `√q` has the cusp of a charge `c` at the origin, `(√q)' = −c √q` (Kato): then
    /// `(−Δ − c/r)√q` is bounded. The `core` must be shorter than `1/(2c)` and the `tail` longer.
    ///
    /// `½ q'/q = −c` at 0 reads `Σ_m (w_m/s_m²)(1/s_m − 2c) = 0`.
    pub fn with_cusp(c: f64, core: f64, tail: f64) -> Result<Exponentials> {
        let pull = |s: f64| (1.0 / s - 2.0 * c) / (s * s);
        fail_if!(
            !(core > 0.0 && pull(core) > 0.0 && pull(tail) < 0.0),
            "a cusp of charge {c} needs a core shorter than {} and a tail longer; got {core} and {tail}",
            0.5 / c
        );
        let ratio = -pull(tail) / pull(core);
        let w = ratio / (1.0 + ratio);
        Ok(Exponentials { parts: [(w, core), (1.0 - w, tail)] })
    }

    /// `q`, `q'` and `q''` at radius r.
    fn radial(&self, r: f64) -> [f64; 3] {
        self.parts.iter().fold([0.0; 3], |[q, q1, q2], (w, s)| {
            let value = w * (-r / s).exp() / (TAU * s * s);
            [q + value, q1 - value / s, q2 + value / (s * s)]
        })
    }
}

impl Guide for Exponentials {
    fn inputs(&self) -> usize {
        2
    }

    fn uniforms(&self) -> usize {
        2
    }

    fn draw(&self, uniforms: &[f64], x: &mut [f64]) {
        // P(radius > r) = Σ_m w_m (1 + t) e^{−t}, t = r/s_m, falls from 1 to 0: by bisection, then Newton.
        let beyond = |r: f64| self.parts.iter().map(|(w, s)| w * (1.0 + r / s) * (-r / s).exp()).sum::<f64>();
        let (target, longest) = (1.0 - uniforms[0], self.parts[1].1);
        let (mut low, mut high) = (0.0, 45.0 * longest);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if beyond(middle) > target { low = middle } else { high = middle }
        }
        let (sin, cos) = (TAU * uniforms[1]).sin_cos();
        (x[0], x[1]) = (low * cos, low * sin);
    }

    fn density(&self, x: &[f64]) -> f64 {
        self.radial(x[0].hypot(x[1]))[0]
    }

    fn logarithmic(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let r = x[0].hypot(x[1]).max(LEAST_RADIUS);
        let [q, q1, q2] = self.radial(r);
        let slope = q1 / q;
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = slope * x / r);
        q2 / q - slope * slope + slope / r
    }
}

/// A potential `V(x)`.
pub type Potential = dyn Fn(&[f64]) -> f64 + Send + Sync;

/// `H = −Δ + V` on `R^d`, as `K = (shift − H)/scale`, whose largest eigenvalues are the lowest energies.
///
/// Wavefunctions are written `ψ = √q f` with f a network and q the density that points are drawn from. Then
/// `∫ψ_iψ_j dx = E_q[f_i f_j]`, the loop's own inner product, in which
///
/// `Ĥf = (1/√q) H(√q f) = −Δf − ∇ln q·∇f + U f`,  `U = V − (Δ√q)/√q = V − ½ Δ ln q − ¼ |∇ln q|²`
///
/// is self-adjoint, because `−Δf − ∇ln q·∇f = −(1/q) ∇·(q∇f)` is:
///
/// `⟨f,Ĥg⟩ = E_q[∇f·∇g + U f g]`.
///
/// So no weights are needed, ψ vanishes at infinity whatever the network, and where `V` has a pole a guide with the
/// right cusp leaves `U` bounded. `Δf` is exact, from one second-order forward pass ([`Functions::jet`]). The points of a
/// batch are a randomly shifted Kronecker sequence: each has distribution q, and they leave fewer gaps than random ones.
/// Example: [the module](super).
pub struct Schroedinger {
    name: String,
    /// V
    potential: Box<Potential>,
    /// q
    guide: Box<dyn Guide>,
    shift: f64,
    scale: f64,
}

impl Schroedinger {
    /// The points `[n, d]` that those numbers `[n, ·]` stand for.
    fn points(&self, uniforms: &Array2<f64>) -> Vec<f32> {
        let d = self.guide.inputs();
        let (mut point, mut data) = (vec![0.0; d], Vec::with_capacity(uniforms.nrows() * d));
        for u in uniforms.rows() {
            self.guide.draw(u.to_slice().expect("row by row"), &mut point);
            data.extend(point.iter().map(|x| *x as f32));
        }
        data
    }

    /// `∇ln q` and U at the points `x` `[n, d]`: `[n, d+1]`.
    fn local(&self, x: &[f32]) -> Array2<f64> {
        let d = self.guide.inputs();
        let mut local = Array2::<f64>::zeros((x.len() / d, d + 1));
        let mut point = vec![0.0; d];
        for (x, mut local) in x.chunks_exact(d).zip(local.rows_mut()) {
            point.iter_mut().zip(x).for_each(|(p, x)| *p = f64::from(*x));
            let local = local.as_slice_mut().expect("row by row");
            let (gradient, u) = local.split_at_mut(d);
            let laplacian = self.guide.logarithmic(&point, gradient);
            let square: f64 = gradient.iter().map(|g| g * g).sum();
            u[0] = (self.potential)(&point) - 0.5 * laplacian - 0.25 * square;
        }
        local
    }

    /// `−Δ + V` with points from `guide`. `shift` lies above the energies sought; `name` tells operators apart.
    pub fn new(
        name: impl Into<String>,
        potential: Box<Potential>,
        guide: Box<dyn Guide>,
        shift: f64,
        scale: f64,
    ) -> Result<Schroedinger> {
        fail_if!(
            !(scale > 0.0 && scale.is_finite() && shift.is_finite()),
            "the shift {shift} and the scale {scale} of energies must be finite, the scale above 0"
        );
        Ok(Schroedinger { name: name.into(), potential, guide, shift, scale })
    }

    /// `ψ(x) = √q(x) Σ_p f_p(x) A_p` `[n, k]` at points `[n, d]`, for coefficients `A` `[p, k]` of the functions.
    pub fn wavefunctions(
        &self,
        functions: &mut Functions,
        coefficients: ArrayView2<f64>,
        x: ArrayView2<f64>,
    ) -> Result<Array2<f64>> {
        let points: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        let f = functions.columns(&Tensor::from_host(functions.device(), &[x.nrows(), x.ncols()], &points)?)?;
        let mut psi = matmul(f.view(), coefficients);
        for (mut psi, x) in psi.rows_mut().into_iter().zip(x.rows()) {
            psi *= self.guide.density(&x.to_vec()).sqrt();
        }
        Ok(psi)
    }

    /// Energy that one unit of `K` stands for.
    pub fn energy_scale(&self) -> f64 {
        self.scale
    }

    /// `Kf` `[k·B·c]` in double precision from the jets of the functions at the points `x` `[B, d]`.
    fn image_of_jets(&self, x: &[f32], jet: &Tensor) -> Result<Vec<f64>> {
        let d = self.inputs();
        let (k, c, points) = (jet.shape()[0], jet.shape()[2], x.len() / d);
        let local = self.local(x);
        let jet = jet.to_host()?;
        let values = (0..k * points * c).map(|at| {
            let (j, b, output) = (at / (points * c), at / c % points, at % c);
            let of = |order: usize| f64::from(jet[((j * (d + 2) + order) * points + b) * c + output]);
            let drift: f64 = (0..d).map(|i| local[[b, i]] * of(1 + i)).sum();
            (self.shift * of(0) - (local[[b, d]] * of(0) - of(d + 1) - drift)) / self.scale
        });
        Ok(values.collect())
    }
}

/// `n` points of `[0,1)^d`, `frac(shift + i α)` with `α_j = g^{−j}`, g the root of `g^{d+1} = g + 1`.
fn kronecker(rng: &mut Rng, n: usize, d: usize) -> Array2<f64> {
    let root = (0..60).fold(1.5f64, |g, _| (1.0 + g).powf(1.0 / (d as f64 + 1.0)));
    let shift: Vec<f64> = (0..d).map(|_| rng.uniform()).collect();
    Array2::from_shape_fn((n, d), |(i, j)| (shift[j] + i as f64 * root.powi(-(j as i32 + 1))).fract())
}

impl FunctionOperator for Schroedinger {
    fn inputs(&self) -> usize {
        self.guide.inputs()
    }

    fn identity(&self) -> String {
        format!("{}, ({} − H)/{}", self.name, self.shift, self.scale)
    }

    fn batches<'a>(&'a self, functions: &Functions, batch: usize, _: Math) -> Result<Box<dyn Batches + 'a>> {
        let (device, d) = (functions.device(), self.inputs());
        let most = (NUMBERS / (batch * (2 * d + 1))).clamp(1, most_ahead(device));
        let places: Vec<u32> = (0..(most * batch) as u32).collect();
        Ok(Box::new(DrawnPoints {
            operator: self,
            most,
            uniforms: vec![],
            x: Tensor::zeros(device, &[most * batch, d])?,
            field: Small::zeros(device, [most * batch, d + 1])?,
            places: Indices::from_host(device, &[places.len()], &places)?,
            now: Indices::zeros(device, &[batch])?,
            jet: Tensor::zeros(device, &[0])?,
            probe: functions.network().workspace(device)?,
        }))
    }

    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> Result<Sample> {
        let data = self.points(&kronecker(rng, points, self.guide.uniforms()));
        Ok(Sample { x: Tensor::from_host(device, &[points, self.inputs()], &data)?, rows: vec![], kernel: None })
    }

    fn image(
        &self,
        sample: &Sample,
        _: ArrayView2<f64>,
        w: ArrayView2<f64>,
        functions: &mut Functions,
    ) -> Result<Array2<f64>> {
        /// Points whose jets are in memory at a time.
        const STRIP: usize = 2048;
        let (d, k, c) = (self.inputs(), functions.count(), functions.outputs());
        let x = sample.x.to_host()?;
        let mut image = Array2::zeros((sample.x.shape()[0] * c, w.ncols()));
        for (x, mut out) in x.chunks(STRIP * d).zip(image.axis_chunks_iter_mut(Axis(0), STRIP * c)) {
            let jet = functions.jet(&Tensor::from_host(sample.x.device(), &[x.len() / d, d], x)?)?;
            let values = self.image_of_jets(x, &jet)?;
            let values = Array2::from_shape_vec((k, x.len() / d * c), values).expect("k rows");
            out.assign(&matmul(values.t(), w));
        }
        Ok(image)
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.shift - self.scale * mu
    }
}

/// Numbers of points and potentials that are drawn ahead at most.
const NUMBERS: usize = 1 << 23;

/// Batches of points that the host draws, with the potential there.
struct DrawnPoints<'a> {
    operator: &'a Schroedinger,
    most: usize,
    /// Uniform numbers of the batches that were drawn and not yet brought, `[B, ·]` each.
    uniforms: Vec<Array2<f64>>,
    /// The points `[most·B, d]`, and `∇ln q` and U there, `[most·B, d+1]`.
    x: Tensor,
    field: Small,
    /// `0, 1, …` `[most·B]`, and those of the batch, `[B]`.
    places: Indices,
    now: Indices,
    /// `[k, (d+2)·B, c]`
    jet: Tensor,
    probe: Workspace,
}

impl Batches for DrawnPoints<'_> {
    fn size(&self) -> usize {
        self.now.len()
    }

    fn most(&self) -> usize {
        self.most
    }

    fn draw(&mut self, rng: &mut Rng) {
        self.uniforms.push(kronecker(rng, self.now.len(), self.operator.guide.uniforms()));
    }

    fn bring(&mut self) -> Result<()> {
        let (batches, operator) = (std::mem::take(&mut self.uniforms), self.operator);
        let of = |uniforms: &Array2<f64>| {
            let points = operator.points(uniforms);
            let local = operator.local(&points);
            (points, local)
        };
        let drawn: Vec<(Vec<f32>, Array2<f64>)> = batches.par_iter().map(of).collect();
        let (b, d) = (self.now.len(), self.operator.inputs());
        for (i, (points, local)) in drawn.iter().enumerate() {
            self.x.write(i * b * d, points);
            self.field.write_rows(i * b, local);
        }
        Ok(())
    }

    fn begin(&mut self, control: &Control, points: &mut Points) -> Result<()> {
        control.begin_step(&self.places, &self.x, &mut self.now, &mut points.x)
    }

    fn apply(
        &mut self,
        _: &Control,
        points: &Points,
        functions: &Functions,
        _: &Tensor,
        out: &mut Tensor,
    ) -> Result<()> {
        functions.jet_in(&mut self.probe, &points.x, &mut self.jet)?;
        let (shift, scale) = (self.operator.shift, self.operator.scale);
        elliptic([shift, scale], &self.now, &self.field, &self.jet, out)
    }

    /// Kψ is made of differences.
    fn math(&self, _: Math) -> Math {
        Math::F32
    }

    fn recordable(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient and the Laplacian of `ln q` by differences, and the mean of q over its own points.
    fn check(guide: &dyn Guide, x: [f64; 2]) {
        let h = 1e-4;
        let ln = |dx: f64, dy: f64| guide.density(&[x[0] + dx, x[1] + dy]).ln();
        let mut gradient = [0.0; 2];
        let laplacian = guide.logarithmic(&x, &mut gradient);
        let differences = [(ln(h, 0.0) - ln(-h, 0.0)) / (2.0 * h), (ln(0.0, h) - ln(0.0, -h)) / (2.0 * h)];
        let second = (ln(h, 0.0) + ln(-h, 0.0) + ln(0.0, h) + ln(0.0, -h) - 4.0 * ln(0.0, 0.0)) / (h * h);
        for (g, difference) in gradient.iter().zip(differences) {
            assert!((g - difference).abs() < 1e-6, "{gradient:?} {differences:?}");
        }
        assert!((laplacian - second).abs() < 1e-4 * (1.0 + second.abs()), "{laplacian} {second}");
    }

    #[test]
    fn guides_know_their_derivatives_and_are_densities() {
        let exponentials = Exponentials::with_cusp(1.0, 0.3, 2.0).unwrap();
        let gaussian = Gaussian { dimension: 2, width: 0.8 };
        let guides: [(&dyn Guide, f64); 2] = [(&exponentials, 60.0), (&gaussian, 8.0)];
        for (guide, far) in guides {
            for x in [[0.3, -0.2], [1.0, 2.0], [-0.05, 0.4]] {
                check(guide, x);
            }
            // ∫ q dx dy = ∫ 2π r q(r) dr and the mean radius, by the midpoint rule.
            let steps = 200_000;
            let radii = (0..steps).map(|i| (i as f64 + 0.5) * far / f64::from(steps));
            let rings: Vec<(f64, f64)> =
                radii.map(|r| (r, TAU * r * guide.density(&[r, 0.0]) * far / f64::from(steps))).collect();
            let total: f64 = rings.iter().map(|(_, p)| p).sum();
            let mean: f64 = rings.iter().map(|(r, p)| r * p).sum();
            assert!((total - 1.0).abs() < 1e-6, "{total}");
            let uniforms = kronecker(&mut Rng::new(1), 20_000, guide.uniforms());
            let radius = |u: ndarray::ArrayView1<f64>| {
                let mut x = [0.0; 2];
                guide.draw(&u.to_vec(), &mut x);
                x[0].hypot(x[1])
            };
            let drawn = uniforms.rows().into_iter().map(radius).sum::<f64>() / 20_000.0;
            assert!((drawn / mean - 1.0).abs() < 0.01, "{drawn} {mean}");
        }
        // (√q)' = −c √q at the origin.
        let [q, slope, _] = exponentials.radial(0.0);
        assert!((0.5 * slope / q + 1.0).abs() < 1e-12);
        assert!(Exponentials::with_cusp(1.0, 0.6, 2.0).is_err() && Exponentials::with_cusp(1.0, 0.3, 0.4).is_err());
    }

    /// The oscillator `−ψ'' + x²ψ = Eψ`: with q the square of the ground state, f is a Hermite polynomial of energy 1, 3 and 5.
    #[test]
    fn hermite_polynomials_are_eigenfunctions_of_the_oscillator() {
        let guide = Gaussian { dimension: 1, width: 0.5f64.sqrt() };
        let operator = Schroedinger::new("oscillator", Box::new(|x| x[0] * x[0]), Box::new(guide), 7.0, 4.0).unwrap();
        let x = [-1.5f32, -0.25, 0.5, 2.0];
        // Values, first and second derivatives of 1, x and 2x² − 1, `[k, 3·B, 1]`.
        let of = |f: &dyn Fn(f32) -> f32| x.iter().map(|x| f(*x)).collect::<Vec<f32>>();
        let orders: [[&dyn Fn(f32) -> f32; 3]; 3] = [
            [&|_| 1.0, &|_| 0.0, &|_| 0.0],
            [&|x| x, &|_| 1.0, &|_| 0.0],
            [&|x| 2.0 * x * x - 1.0, &|x| 4.0 * x, &|_| 4.0],
        ];
        let jet: Vec<f32> = orders.iter().flat_map(|f| f.iter().flat_map(|order| of(order))).collect();
        let jet = Tensor::from_host(Device::Cpu, &[3, 12, 1], &jet).unwrap();
        let image = operator.image_of_jets(&x, &jet).unwrap();
        for (j, energy) in [1.0, 3.0, 5.0].into_iter().enumerate() {
            let μ = (7.0 - energy) / 4.0;
            for (b, f) in of(orders[j][0]).into_iter().enumerate() {
                assert!((image[j * 4 + b] - μ * f64::from(f)).abs() < 1e-5, "{j} {b}: {image:?}");
            }
            assert!((operator.eigenvalue(μ) - energy).abs() < 1e-12);
        }
    }
}
