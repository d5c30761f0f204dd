//! The features of all points for regression on landmarks, a block of rows at a time.

use crate::compute::Device;
use crate::kernel::Kernel;
use crate::linalg::{Cholesky, Panel, Part, matmul};
use crate::operator::tile::normal::{self, Normal};
use crate::operator::{Operator, Pair, Side, gram_cross, ranges};
use crate::rng::Rng;
use crate::spectrum::{NystromFeatures, add_gram};
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// Rows of κ(X,Z) that are in memory at once.
pub(crate) const ROWS: usize = 1024;

/// Rows of κ(X,Z) whose inner products a GPU keeps for two products.
pub(crate) const STRIP: usize = 8192;

/// The landmarks Z, and N with `NNᵀ = κ(Z,Z)⁻¹`.
pub(crate) enum Map<'a> {
    /// N as a matrix.
    Matrix(&'a NystromFeatures),
    /// `N = L⁻ᵀ`, `κ(Z,Z) = LLᵀ`, by the factor on a GPU: for landmarks whose matrix the host should not hold.
    Factor { kernel: &'a Kernel, landmarks: ArrayView2<'a, f64>, factor: Box<Cholesky<f64>> },
}

impl<'a> Map<'a> {
    /// By a factor on the context's GPU. As much is added to the diagonal of κ(Z,Z) as the rounding of f32 may take from its
    /// eigenvalues.
    pub fn factor(kernel: &'a Kernel, landmarks: ArrayView2<'a, f64>, context: &FitContext) -> Result<Map<'a>> {
        let (operator, m) = (context.kernel_operator(kernel, landmarks)?, landmarks.nrows());
        // A few rows at a time: they are made in f32, and would take half as much again.
        let mut matrix = Panel::zeros(context.device, [m, m])?;
        for rows in ranges(m, ROWS) {
            let rows = Part::Range(rows);
            matrix.add_to_rows(&rows, 1.0, &operator.block_panel(&rows, &Part::All, context.device)?)?;
        }
        let mean = operator.diagonal()?.mean().unwrap_or(1.0);
        matrix.shift_diagonal(1e-6 * (m as f64).sqrt() * mean);
        Ok(Map::Factor { kernel, landmarks, factor: Box::new(Cholesky::of_panel(matrix)?) })
    }

    pub fn kernel(&self) -> &Kernel {
        match self {
            Map::Matrix(map) => map.kernel(),
            Map::Factor { kernel, .. } => kernel,
        }
    }

    /// Z `[M, d]`
    pub fn landmarks(&self) -> ArrayView2<'_, f64> {
        match self {
            Map::Matrix(map) => map.landmarks(),
            Map::Factor { landmarks, .. } => landmarks.view(),
        }
    }

    /// r, the columns of N.
    pub fn dim(&self) -> usize {
        match self {
            Map::Matrix(map) => map.dim(),
            Map::Factor { landmarks, .. } => landmarks.nrows(),
        }
    }

    /// N `[M, r]`, where it is a matrix.
    pub fn matrix(&self) -> &'a NystromFeatures {
        match self {
            Map::Matrix(map) => map,
            Map::Factor { .. } => unreachable!("only EigenPro has landmarks without the matrix N"),
        }
    }
}

/// `√w φ(x)` of all points, `φ(x) = κ(x,Z)N`. Products with N are taken on its own side of the sum, where they cost `M²` and not `n M²`; κ(X,Z) is
/// computed in every product, or stored where there is room for it. On the CPU each value serves both products with κ(X,Z) and its transpose.
pub(crate) struct Design<'a> {
    pub map: Map<'a>,
    /// `[n, d]`
    pub x: ArrayView2<'a, f64>,
    /// w `[n]`
    pub weights: Array1<f64>,
    /// X and Z where products are computed.
    pub pair: Pair<'a>,
    /// N `[M, r]`, where it is a matrix, and w `[n, 1]`, on a GPU.
    on_gpu: Option<(Option<Panel>, Panel)>,
    stored: Option<Vec<Array2<f64>>>,
    /// Where products are computed anew on the CPU.
    normal: Option<Normal<'a>>,
    context: &'a FitContext<'a>,
}

impl<'a> Design<'a> {
    /// κ(X,Z) is stored where a third of the budget holds it beside `other` bytes; never for a GPU, which computes it faster than the host's
    /// memory would give it.
    pub fn new(
        map: Map<'a>,
        x: ArrayView2<'a, f64>,
        weights: Array1<f64>,
        context: &'a FitContext<'a>,
        other: u64,
    ) -> Result<Design<'a>> {
        let (kernel, z) = match &map {
            Map::Matrix(map) => (map.kernel(), map.landmarks()),
            Map::Factor { kernel, landmarks, .. } => (*kernel, *landmarks),
        };
        let needed = 8 * x.nrows() as u64 * z.nrows() as u64;
        let FitContext { precision, device, .. } = *context;
        let pair = Pair::new(kernel, x, z, precision, device)?;
        let on_gpu = match (device, &map) {
            (Device::Cpu, _) => None,
            (_, map) => {
                let matrix = if let Map::Matrix(map) = map { Some(map.normalisation().to_owned()) } else { None };
                let matrix = matrix.map(|matrix| Panel::from_host(device, matrix)).transpose()?;
                Some((matrix, Panel::from_host(device, weights.clone().insert_axis(Axis(1)))?))
            }
        };
        let kept = context.device == Device::Cpu && context.budget.allows(3 * needed + other);
        let normal =
            (context.device == Device::Cpu && !kept).then(|| Normal::new(kernel, x.into(), z.into(), precision));
        let mut design = Design { map, x, weights, pair, on_gpu, stored: None, normal, context };
        if kept {
            let blocks = ranges(x.nrows(), ROWS);
            design.stored = Some(blocks.into_iter().map(|rows| design.computed(rows)).collect::<Result<_>>()?);
        }
        Ok(design)
    }

    fn computed(&self, rows: Range<usize>) -> Result<Array2<f64>> {
        gram_cross(self.map.kernel(), self.x.slice(s![rows, ..]), self.map.landmarks(), self.context.device)
    }

    /// Calls `f` with the rows of κ(X,Z) `[b, M]`, a block at a time.
    pub fn each_block(&self, mut f: impl FnMut(ArrayView2<f64>, Range<usize>)) -> Result<()> {
        for (i, rows) in ranges(self.x.nrows(), ROWS).into_iter().enumerate() {
            match &self.stored {
                Some(blocks) => f(blocks[i].view(), rows),
                None => f(self.computed(rows.clone())?.view(), rows),
            }
        }
        Ok(())
    }

    /// w `[n, 1]` on the device.
    pub fn weights_panel(&self) -> Result<Panel> {
        match &self.on_gpu {
            Some((_, w)) => w.try_clone(),
            None => Ok(Panel::from(self.weights.clone().insert_axis(Axis(1)))),
        }
    }

    /// `N V` `[M, m]` for `V` `[r, m]`.
    pub fn spread(&self, v: &Panel) -> Result<Panel> {
        match (&self.on_gpu, &self.map) {
            (_, Map::Factor { factor, .. }) => factor.solve_triangle(true, v),
            (Some((Some(n), _)), _) => n.times(v),
            _ => v.through_host(|v| Ok(matmul(self.map.matrix().normalisation(), v))),
        }
    }

    /// `Nᵀ U` `[r, m]` for `U` `[M, m]`.
    pub fn projected(&self, u: &Panel) -> Result<Panel> {
        match (&self.on_gpu, &self.map) {
            (_, Map::Factor { factor, .. }) => factor.solve_triangle(false, u),
            (Some((Some(n), _)), _) => n.t_times(u),
            _ => u.through_host(|u| Ok(matmul(self.map.matrix().normalisation().t(), u))),
        }
    }

    /// `κ(Z,X) diag(w) (κ(X,Z)U or Y)` `[M, m]`: of `U` `[M, m]`, or of `Y` `[n, m]`.
    fn weighted(&self, of: Of<'_>) -> Result<Panel> {
        if let Some((_, w)) = &self.on_gpu {
            let mut y = match of {
                Of::Landmarks(u) if self.pair.keeps() => return self.weighted_by_strips(u, w),
                Of::Landmarks(u) => self.pair.apply(u)?,
                Of::Points(y) => y.try_clone()?,
            };
            y.scale_rows(w);
            return self.pair.apply_transpose(&y);
        }
        let (Of::Landmarks(v) | Of::Points(v)) = of;
        v.through_host(|v| {
            if let Some(normal) = &self.normal {
                let of = match of {
                    Of::Landmarks(_) => normal::Of::Landmarks(v),
                    Of::Points(_) => normal::Of::Points(v),
                };
                return Ok(normal.product(self.weights.view(), of));
            }
            let w = self.weights.view().insert_axis(Axis(1));
            let mut sum = Array2::zeros((self.map.landmarks().nrows(), v.ncols()));
            self.each_block(|k, rows| {
                let w = w.slice(s![rows.clone(), ..]);
                let y = match of {
                    Of::Landmarks(_) => matmul(k, v) * w,
                    Of::Points(_) => &v.slice(s![rows, ..]) * &w,
                };
                sum += &matmul(k.t(), y.view());
            })?;
            Ok(sum)
        })
    }

    /// `κ(Z,X) diag(w) κ(X,Z)U` `[M, m]` on a GPU, whose inner products of some rows with all landmarks serve both products.
    fn weighted_by_strips(&self, u: &Panel, w: &Panel) -> Result<Panel> {
        let mut sum = Panel::zeros(u.device(), [self.map.landmarks().nrows(), u.ncols()])?;
        for rows in ranges(self.x.nrows(), STRIP) {
            let rows = Part::Range(rows);
            let block = self.pair.both_ways((Side::X, rows.clone()), (Side::Z, Part::All))?;
            let mut y = block.product(u)?;
            y.scale_rows(&w.rows(&rows)?);
            sum.axpy(&vec![1.0; u.ncols()], &block.transposed_product(&y)?)?;
        }
        Ok(sum)
    }

    /// `ΦᵀWΦ V` `[r, m]` for `V` `[r, m]`.
    pub fn normal(&self, v: &Panel) -> Result<Panel> {
        self.projected(&self.weighted(Of::Landmarks(&self.spread(v)?))?)
    }

    /// `ΦᵀWY` `[r, m]` for `Y` `[n, m]`.
    pub fn transposed(&self, y: &Panel) -> Result<Panel> {
        self.projected(&self.weighted(Of::Points(y))?)
    }

    /// The factor of `(n/b) Σ w φφᵀ + αI` over b random rows. Four times as many as there are landmarks leave eigenvalues within a factor of about three of their
    /// own; as many as landmarks would leave some at zero.
    pub fn sampled(&self, alpha: f64) -> Result<Cholesky<f64>> {
        let (n, m) = (self.x.nrows(), self.map.landmarks().nrows());
        let rows = Rng::new(self.context.seed).fork(0x7072_6563).sample(n, n.min(4 * m));
        let (r, share) = (self.map.matrix().dim(), n as f64 / rows.len() as f64);
        if let Some((Some(normalisation), w)) = &self.on_gpu {
            let mut sum = Panel::zeros(self.context.device, [r, r])?;
            for few in rows.chunks(4 * ROWS) {
                let part = Part::Rows(few);
                let mut roots = w.rows(&part)?;
                roots = roots.through_host(|w| Ok(w.mapv(f64::sqrt)))?;
                let mut phi = self.pair.block((Side::X, part), (Side::Z, Part::All))?.times(normalisation)?;
                phi.scale_rows(&roots);
                sum.axpy(&vec![share; r], &phi.t_times(&phi)?)?;
            }
            sum.shift_diagonal(alpha);
            return Cholesky::of_panel(sum);
        }
        let (mut sum, mut product) = (Array2::<f64>::zeros((r, r)), Array2::<f64>::zeros((r, r)));
        for few in rows.chunks(ROWS) {
            let roots = self.weights.select(Axis(0), few).mapv(f64::sqrt);
            let phi =
                self.map.matrix().transform::<f64>(self.x.select(Axis(0), few).view())? * roots.insert_axis(Axis(1));
            add_gram(&mut sum, &mut product, phi.view());
        }
        sum *= share;
        sum.diag_mut().mapv_inplace(|d| d + alpha);
        Cholesky::new(self.context.device, sum.view())
    }
}

/// What a product begins with.
#[derive(Clone, Copy)]
enum Of<'v> {
    /// `[M, m]`
    Landmarks(&'v Panel),
    /// `[n, m]`
    Points(&'v Panel),
}
