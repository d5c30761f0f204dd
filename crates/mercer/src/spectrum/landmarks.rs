//! How the landmarks of the Nyström method are chosen.

use super::by_name;
use super::device_landmarks::{DeviceDistances, choosing_device, greedy_pivots, leverage};
use crate::compute::Device;
use crate::compute::ledger::ran;
use crate::data::{CowRows, Rows};
use crate::linalg::{eigh, matmul_into};
use crate::operator::memory::zeros;
use crate::operator::{Operator, Precision, Real, Strips, Workspace, gram, in_precision};
use crate::rng::Rng;
use crate::{Error, FitContext, Progress, Result, fail_if};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, CowArray, Ix2, s};
use rayon::prelude::*;
use std::ops::Range;
use std::str::FromStr;

/// How Nyström's landmarks are chosen among the values of a sample.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, operator::Precision, spectrum::Landmarks};
/// let x = ndarray::array![[0.0], [0.01], [5.0], [9.0]];
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let mut chosen = Landmarks::PivotedCholesky.choose(&operator, 3, 0, Precision::F64)?;
/// chosen.sort();
/// assert_eq!(chosen, [0, 2, 3]);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landmarks {
    /// Each point with the same probability.
    Uniform,
    /// Each next one with probability `∝ D²`, its squared distance `κ(x,x) + κ(z,z) − 2κ(x,z)` in the kernel's
    /// feature space to the nearest landmark so far (the seeding of k-means++; the landmarks stay data points).
    KMeansPlusPlus,
    /// With probability `∝` the ridge leverage score of the point, at the ridge for which the effective dimension is a
    /// quarter of the number of landmarks; estimated recursively, from landmarks chosen so among half of the points.
    LeverageScores,
    /// Each next one where the kernel is worst explained by those so far: greedy, deterministic, `O(n m²)` time and
    /// `O(n m)` memory. Ends early, with fewer landmarks, once nothing is left to explain. It goes for outliers first,
    /// so it is the best choice for many landmarks and a poor one for few.
    PivotedCholesky,
}

/// What is reported while landmarks are chosen.
pub(super) const CHOOSING: &str = "choice of landmarks";

impl Landmarks {
    /// The choices by name.
    pub const NAMED: [(&'static str, Landmarks); 4] = [
        ("uniform", Landmarks::Uniform),
        ("kmeans++", Landmarks::KMeansPlusPlus),
        ("leverage", Landmarks::LeverageScores),
        ("cholesky", Landmarks::PivotedCholesky),
    ];

    /// At most `m` different rows of `operator`; fewer only by [`Landmarks::PivotedCholesky`]. Kernel values are computed in
    /// `precision`.
    pub fn choose(&self, operator: &dyn Operator, m: usize, seed: u64, precision: Precision) -> Result<Vec<usize>> {
        self.choose_reported(operator, m, &FitContext { seed, precision, ..FitContext::default() })
    }

    /// [`Self::choose`] with the context's seed and precision, and progress.
    pub(super) fn choose_reported(
        &self,
        operator: &dyn Operator,
        m: usize,
        context: &FitContext,
    ) -> Result<Vec<usize>> {
        let (n, FitContext { seed, precision, progress, .. }) = (operator.n(), *context);
        fail_if!(m == 0 || m > n, "there must be between 1 and {n} landmarks, one per point; got {m}");
        let mut rng = Rng::new(seed).fork(0x6c61_6e64);
        let device = if *self == Landmarks::Uniform { Device::Cpu } else { choosing_device(operator) };
        ran("choices of landmarks", device, 1);
        in_precision!(precision, T => match self {
            Landmarks::Uniform => Ok(rng.sample(n, m)),
            Landmarks::KMeansPlusPlus => k_means_plus_plus::<T>(operator, m, &mut rng, progress),
            Landmarks::LeverageScores => recursive_leverage::<T>(operator, m, &mut rng, progress),
            Landmarks::PivotedCholesky if device != Device::Cpu => greedy_pivots(operator, m, device, progress),
            Landmarks::PivotedCholesky => pivoted_cholesky::<T>(operator, m, progress),
        })
    }

    /// The rows of n among which m landmarks are chosen where not all are in memory: all of few, else some at random.
    pub(crate) fn candidates(n: usize, m: usize, seed: u64) -> Vec<usize> {
        /// More change the landmarks by k-means++ little, and take more memory.
        const CANDIDATES: usize = 8192;
        let count = CANDIDATES.max(4 * m);
        if n <= count { (0..n).collect() } else { Rng::new(seed).fork(0x6361_6e64).sample(n, count) }
    }

    /// Bytes that choosing `m` of `n` points takes.
    pub(super) fn memory(&self, (n, d): (usize, usize), m: usize, precision: Precision) -> u64 {
        let (n, m, d) = (n as u64, m as u64, d as u64);
        // The points themselves in the tile's precision, shifted once in f64.
        let points = n * d * (8 + precision.bytes());
        match self {
            Landmarks::Uniform => 8 * n,
            Landmarks::KMeansPlusPlus => points + 24 * n,
            Landmarks::LeverageScores => 2 * points + 24 * n + 4 * 8 * m * m,
            Landmarks::PivotedCholesky => points + n * m * precision.bytes(),
        }
    }
}

impl FromStr for Landmarks {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name("choice of landmarks", text, &Self::NAMED)
    }
}

/// `K[·, columns]` a few rows at a time: by tiles of the formula where there is one, else by blocks.
enum Entries<'a, T> {
    Kernel { strips: Box<Strips<T>>, x: Rows<'a> },
    Blocks { operator: &'a dyn Operator, columns: Vec<usize> },
}

impl<'a, T: Real> Entries<'a, T> {
    /// All columns, or those of some values.
    fn new(operator: &'a dyn Operator, columns: Option<&[usize]>) -> Self {
        let Some(kernel) = operator.kernel().filter(|kernel| !kernel.blocks_on_gpu()) else {
            let columns = columns.map_or_else(|| (0..operator.n()).collect(), <[usize]>::to_vec);
            return Entries::Blocks { operator, columns };
        };
        let (formula, x) = (kernel.formula(), kernel.x());
        let z = columns.map_or(CowRows::Borrowed(x), |columns| CowRows::Owned(x.select(columns)));
        Entries::Kernel { strips: Box::new(Strips::new(formula, z.rows())), x }
    }

    /// Rows for which all columns fit into cache.
    fn height(&self) -> usize {
        match self {
            Entries::Kernel { strips, .. } => strips.height(),
            Entries::Blocks { .. } => 1024,
        }
    }

    /// `K[rows, columns[range]]` in `T`.
    fn block<'b>(
        &self,
        buffer: &'b mut Workspace<T>,
        rows: &[usize],
        range: Range<usize>,
    ) -> Result<CowArray<'b, T, Ix2>> {
        Ok(match self {
            Entries::Kernel { strips, x } => {
                let k = strips.block(buffer, x.select(rows).rows(), range);
                let (shape, k) = (k.dim(), k.into_slice().expect("a tile lies row by row"));
                ArrayView2::from_shape(shape, k).expect("as many values").into()
            }
            Entries::Blocks { operator, columns } => operator.block(rows, &columns[range])?.mapv(T::of).into(),
        })
    }
}

/// `K[rows, rows]` in f64.
fn square(operator: &dyn Operator, rows: &[usize]) -> Result<Array2<f64>> {
    match operator.kernel() {
        Some(kernel) if kernel.blocks_on_gpu() => operator.block(rows, rows),
        Some(kernel) => gram::<f64>(kernel.formula(), &kernel.x().select(rows), Device::Cpu),
        None => operator.block(rows, rows),
    }
}

/// D² sampling, a batch at a time and yet exact: D² only falls as landmarks are added, so a candidate drawn from an
/// older D² and kept with probability `D²_now/D²_older` is a draw from D² now. Only the batch's own kernel matrix is
/// needed for that; the distances of all points are updated once a batch.
fn k_means_plus_plus<T: Real>(
    operator: &dyn Operator,
    m: usize,
    rng: &mut Rng,
    progress: &dyn Progress,
) -> Result<Vec<usize>> {
    const BATCH: usize = 64;
    let n = operator.n();
    let diagonal = operator.diagonal()?;
    let mut on_gpu = DeviceDistances::new(operator, &diagonal)?;
    let entries = on_gpu.is_none().then(|| Entries::<T>::new(operator, None));
    let mut distance = vec![f64::INFINITY; n];
    let mut taken = vec![false; n];
    let mut chosen = vec![rng.below(n)];
    taken[chosen[0]] = true;
    let mut counted = 0;
    while chosen.len() < m {
        match (&mut on_gpu, &entries) {
            (Some(there), _) => distance = there.lower(operator, &diagonal, &chosen[counted..])?,
            (None, Some(entries)) => lower_distances(entries, &diagonal, &chosen[counted..], &mut distance)?,
            (None, None) => unreachable!("on one of the devices"),
        }
        counted = chosen.len();
        progress.step(CHOOSING, counted, m, "");
        let cumulative = running_sums(&distance);
        let total = cumulative[n - 1];
        if total <= 0.0 {
            break;
        }
        let candidates: Vec<usize> = (0..BATCH).map(|_| draw(&cumulative, rng.uniform() * total)).collect();
        let k = square(operator, &candidates)?;
        let mut kept: Vec<usize> = vec![];
        for (b, &c) in candidates.iter().enumerate() {
            let now = kept.iter().map(|&a| k[[a, a]] + k[[b, b]] - 2.0 * k[[a, b]]).fold(distance[c], f64::min);
            if !taken[c] && rng.uniform() * distance[c] < now && chosen.len() < m {
                taken[c] = true;
                kept.push(b);
                chosen.push(c);
            }
        }
    }
    // Every point coincides with a landmark: the others add nothing, but the number was asked for.
    let mut rest: Vec<usize> = (0..n).filter(|&i| !taken[i]).collect();
    rng.shuffle(&mut rest);
    rest.truncate(m - chosen.len());
    chosen.extend(rest);
    Ok(chosen)
}

/// `D²_i ← min(D²_i, κ_ii + κ_zz − 2κ_iz)` for the new landmarks; what rounding hides is zero.
fn lower_distances<T: Real>(
    entries: &Entries<T>,
    diagonal: &Array1<f64>,
    new: &[usize],
    distance: &mut [f64],
) -> Result<()> {
    const POINTS: usize = 2048;
    distance.par_chunks_mut(POINTS).enumerate().try_for_each_init(Workspace::default, |buffer, (chunk, distance)| {
        let start = chunk * POINTS;
        let k = entries.block(buffer, new, start..start + distance.len())?;
        for (k_z, &j) in k.rows().into_iter().zip(new) {
            for (i, (d, k_iz)) in distance.iter_mut().zip(k_z).enumerate() {
                let sum = diagonal[start + i] + diagonal[j];
                let squared = sum - 2.0 * k_iz.wide();
                *d = d.min(if squared > 10.0 * T::PRECISION.roundoff(Device::Cpu) * sum { squared } else { 0.0 });
            }
        }
        Ok(())
    })
}

/// The sums of the first 1, 2, … weights.
pub(crate) fn running_sums(weights: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |w: &f64| {
        sum += w;
        sum
    };
    weights.iter().map(add).collect()
}

/// The first index whose running sum lies above `at`.
pub(crate) fn draw(cumulative: &[f64], at: f64) -> usize {
    cumulative.partition_point(|&c| c <= at).min(cumulative.len() - 1)
}

/// Sampling by leverage scores, recursively (Musco and Musco): scores need landmarks, so those of all points come from
/// landmarks for a random half of them, those from landmarks for a quarter, and so on down to a uniform sample.
fn recursive_leverage<T: Real>(
    operator: &dyn Operator,
    m: usize,
    rng: &mut Rng,
    progress: &dyn Progress,
) -> Result<Vec<usize>> {
    let n = operator.n();
    let order = rng.sample(n, n);
    let halvings = std::iter::successors(Some(n), |size| (size / 2 >= 2 * m).then_some(size / 2));
    let sizes: Vec<usize> = halvings.collect();
    let smallest = sizes[sizes.len() - 1];
    let mut chosen = order[..m].to_vec();
    let mut weights = vec![smallest as f64 / m as f64; m];
    for &size in sizes.iter().rev() {
        let target = m as f64 / 4.0;
        progress.step(&format!("leverage scores of {size} points"), 0, 1, "");
        let mut scores = leverage_scores::<T>(operator, &order[..size], &chosen, &weights, target)?;
        // Every point keeps a chance, so that a poor pilot sample cannot exclude it for good.
        scores.iter_mut().for_each(|l| *l = l.max(0.01 * target / size as f64));
        let total: f64 = scores.iter().sum();
        let sample = weighted_sample(&scores, m, rng);
        weights = sample.iter().map(|&i| (total / (m as f64 * scores[i])).max(1.0)).collect();
        chosen = sample.iter().map(|&i| order[i]).collect();
    }
    Ok(chosen)
}

/// `l_i = (κ(x_i,x_i) − k_iᵀ(K_SS + λD⁻¹)⁻¹k_i)/λ`, `k_i = κ(S,x_i)`, of `points` from a `pilot` sample S
/// whose points stand for `D = diag(weights)` points each. λ gives `D^{1/2} K_SS D^{1/2} = UΣUᵀ` the effective dimension
/// `target`, and `(K_SS + λD⁻¹)⁻¹ = R Rᵀ` with `R = D^{1/2} U (Σ+λ)^{−1/2}`.
fn leverage_scores<T: Real>(
    operator: &dyn Operator,
    points: &[usize],
    pilot: &[usize],
    weights: &[f64],
    target: f64,
) -> Result<Vec<f64>> {
    let s = pilot.len();
    let d: Array1<f64> = weights.iter().map(|w| w.sqrt()).collect();
    let k_ss = square(operator, pilot)? * &d * d.view().insert_axis(Axis(1));
    let device = choosing_device(operator);
    let (σ, mut root) = eigh(device, k_ss.view())?;
    let λ = ridge_of_dimension(&σ, target, 100.0 * T::PRECISION.roundoff(Device::Cpu));
    for (mut column, σ_j) in root.axis_iter_mut(Axis(1)).zip(&σ) {
        column /= (σ_j.max(0.0) + λ).sqrt();
    }
    let root = root * d.insert_axis(Axis(1));
    if device != Device::Cpu {
        return leverage(operator, [points, pilot], (root.view(), λ), device);
    }
    let root = root.mapv(T::of);
    let entries = Entries::<T>::new(operator, Some(pilot));
    let diagonal = operator.diagonal()?;
    let height = entries.height();
    let mut scores = vec![0.0; points.len()];
    let pieces: Vec<_> = scores.chunks_mut(height).zip(points.chunks(height)).collect();
    let buffers = || (Workspace::default(), vec![T::default(); height * s]);
    pieces.into_par_iter().try_for_each_init(buffers, |(buffer, product), (scores, rows)| {
        let k = entries.block(buffer, rows, 0..s)?;
        let mut explained = ArrayViewMut2::from_shape(k.dim(), &mut product[..k.len()]).expect("as many values");
        matmul_into(explained.view_mut(), Accum::Replace, k.view(), root.view(), T::one_impl(), Par::Seq);
        for ((score, row), &i) in scores.iter_mut().zip(explained.rows()).zip(rows) {
            let explained: f64 = row.iter().map(|v| v.wide() * v.wide()).sum();
            *score = ((diagonal[i] - explained) / λ).clamp(0.0, 1.0);
        }
        Ok::<(), Error>(())
    })?;
    Ok(scores)
}

/// λ with effective dimension `Σ_j σ_j/(σ_j+λ) = target`, or `floor·σ_1` where even that has fewer.
fn ridge_of_dimension(σ: &[f64], target: f64, floor: f64) -> f64 {
    let dimension = |λ: f64| σ.iter().map(|s| s.max(0.0) / (s.max(0.0) + λ)).sum::<f64>();
    let largest = σ[0].max(f64::MIN_POSITIVE);
    let (mut low, mut high) = ((floor * largest).ln(), (largest * σ.len() as f64 * 4.0).ln());
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if dimension(middle.exp()) > target { low = middle } else { high = middle }
    }
    low.exp()
}

/// `m` different indices, each next one with probability `∝` its weight among those left: the m largest of
/// `ln(u_i)/w_i` (Efraimidis and Spirakis). Weights of zero come last, in random order.
fn weighted_sample(weights: &[f64], m: usize, rng: &mut Rng) -> Vec<usize> {
    let mut keys: Vec<(f64, usize)> =
        weights.iter().enumerate().map(|(i, w)| ((1.0 - rng.uniform()).ln() / w.max(1e-12), i)).collect();
    keys.select_nth_unstable_by(m - 1, |a, b| b.0.total_cmp(&a.0));
    keys.truncate(m);
    keys.into_iter().map(|(_, i)| i).collect()
}

/// Greedy pivots of `K ≈ L Lᵀ`: with `r_i = κ_ii − ‖L_i‖²` what is left of the diagonal and p its largest entry,
/// the next column is `L_ij = (κ_ip − L_i·L_p)/√r_p`.
fn pivoted_cholesky<T: Real>(operator: &dyn Operator, m: usize, progress: &dyn Progress) -> Result<Vec<usize>> {
    const POINTS: usize = 2048;
    let n = operator.n();
    let entries = Entries::<T>::new(operator, None);
    let mut residual = operator.diagonal()?.to_vec();
    let threshold = 10.0 * T::PRECISION.roundoff(Device::Cpu) * residual.iter().fold(0.0, |a: f64, b| a.max(*b));
    let mut l: Array2<T> = Array2::from_shape_vec((n, m), zeros(n * m)).expect("n·m values");
    let mut chosen = vec![];
    while chosen.len() < m {
        // The first of equals.
        let largest = residual.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
        let (p, &r_p) = largest.expect("there are points");
        if r_p <= threshold {
            break;
        }
        let j = chosen.len();
        progress.step(CHOOSING, j, m, "");
        let l_p = l.slice(s![p..=p, ..j]).t().to_owned();
        let scale = 1.0 / r_p.sqrt();
        let pieces: Vec<_> =
            l.axis_chunks_iter_mut(Axis(0), POINTS).zip(residual.chunks_mut(POINTS)).enumerate().collect();
        pieces.into_par_iter().try_for_each_init(Workspace::default, |buffer, (chunk, (mut l, residual))| {
            let start = chunk * POINTS;
            let k = entries.block(buffer, &[p], start..start + residual.len())?;
            let (known, mut column) = l.multi_slice_mut((s![.., ..j], s![.., j..=j]));
            matmul_into(column.view_mut(), Accum::Replace, known.view(), l_p.view(), T::one_impl(), Par::Seq);
            for ((l_ij, k_ip), r_i) in column.iter_mut().zip(k.iter()).zip(residual) {
                let value = (k_ip.wide() - l_ij.wide()) * scale;
                *l_ij = T::of(value);
                *r_i -= value * value;
            }
            Ok::<(), Error>(())
        })?;
        // Rounding must not bring a pivot back.
        residual[p] = f64::NEG_INFINITY;
        chosen.push(p);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use crate::kernel::Kernel;
    use crate::operator::{DenseOperator, KernelOperator};

    fn operator<'a>(kernel: &str, x: &'a Array2<f64>) -> KernelOperator<'a> {
        KernelOperator::new(&Kernel::parse(kernel).unwrap(), x.view(), Precision::F64, Device::Cpu).unwrap()
    }

    #[test]
    fn the_ridge_gives_its_effective_dimension() {
        let σ: Vec<f64> = (0..40).map(|j| 0.7f64.powi(j)).collect();
        let λ = ridge_of_dimension(&σ, 8.0, 1e-12);
        let dimension: f64 = σ.iter().map(|s| s / (s + λ)).sum();
        assert!((dimension - 8.0).abs() < 1e-9);
        assert!((ridge_of_dimension(&[1.0, 0.0, 0.0], 2.0, 1e-10) / 1e-10 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn leverage_scores_from_all_points_are_exact() {
        let x = Array2::from_shape_fn((30, 1), |(i, _)| (i as f64 / 10.0).exp());
        let (operator, all) = (operator("rbf(1)", &x), (0..30).collect::<Vec<_>>());
        let scores = leverage_scores::<f64>(&operator, &all, &all, &[1.0; 30], 10.0).unwrap();
        let (σ, u) = eigh(Device::Cpu, operator.to_dense(&Silent).unwrap().view()).unwrap();
        let λ = ridge_of_dimension(&σ, 10.0, 1e-12);
        for (i, score) in scores.iter().enumerate() {
            let want: f64 = (0..30).map(|j| u[[i, j]].powi(2) * σ[j].max(0.0) / (σ[j].max(0.0) + λ)).sum();
            assert!((score - want).abs() < 1e-8, "point {i}: {score} for {want}");
        }
        // By panels, as on a GPU: `R = U (Σ+λ)^{−1/2}`.
        let root = &u * &σ.iter().map(|σ| (σ.max(0.0) + λ).sqrt().recip()).collect::<Array1<f64>>();
        let by_panels = leverage(&operator, [&all, &all], (root.view(), λ), Device::Cpu).unwrap();
        assert!(by_panels.iter().zip(&scores).all(|(a, b)| (a - b).abs() < 1e-8));
    }

    /// The definition: the residual matrix `K − K_P (K_PP)⁻¹ K_Pᵀ` updated whole.
    #[test]
    fn pivots_are_those_of_the_dense_residual() {
        let x = Rng::new(5).normals((90, 3));
        let operator = operator("0.5*rbf(1) + linear", &x);
        let mut residual = operator.to_dense(&Silent).unwrap();
        let mut want = vec![];
        for _ in 0..25 {
            let p = (0..90).max_by(|&a, &b| residual[[a, a]].total_cmp(&residual[[b, b]])).unwrap();
            let column = residual.column(p).insert_axis(Axis(1)).to_owned();
            residual = &residual - &(column.dot(&column.t()) / residual[[p, p]]);
            want.push(p);
        }
        assert_eq!(pivoted_cholesky::<f64>(&operator, 25, &Silent).unwrap(), want);
        // By panels, as on a GPU, also of more columns than a block.
        assert_eq!(greedy_pivots(&operator, 25, Device::Cpu, &Silent).unwrap(), want);
        let most = pivoted_cholesky::<f64>(&operator, 80, &Silent).unwrap();
        assert_eq!(greedy_pivots(&operator, 80, Device::Cpu, &Silent).unwrap(), most);
        // By blocks, as for an operator without a formula.
        let stored = DenseOperator::new(operator.to_dense(&Silent).unwrap());
        assert_eq!(pivoted_cholesky::<f64>(&stored, 25, &Silent).unwrap(), want);
    }

    #[test]
    fn weighted_samples_follow_their_weights() {
        let mut rng = Rng::new(3);
        let mut counts = [0.0f64; 3];
        for _ in 0..20_000 {
            counts[weighted_sample(&[1.0, 2.0, 5.0], 1, &mut rng)[0]] += 1.0 / 20_000.0;
        }
        assert!((counts[0] - 0.125).abs() < 0.01 && (counts[1] - 0.25).abs() < 0.015, "{counts:?}");
    }

    /// D² seeding drawn one at a time, from the definition, must have the same distribution as the batches.
    #[test]
    fn batched_seeding_has_the_distribution_of_the_sequential_one() {
        let x: Array2<f64> = ndarray::array![[0.0], [1.0], [3.0], [3.5], [7.0]];
        let operator = operator("linear", &x);
        let d2 = |i: usize, chosen: &[usize]| {
            chosen.iter().map(|&j| (x[[i, 0]] - x[[j, 0]]).powi(2)).fold(f64::INFINITY, f64::min)
        };
        let sequential = |rng: &mut Rng| {
            let mut chosen = vec![rng.below(5)];
            while chosen.len() < 3 {
                let cumulative = running_sums(&(0..5).map(|i| d2(i, &chosen)).collect::<Vec<_>>());
                chosen.push(draw(&cumulative, rng.uniform() * cumulative[4]));
            }
            chosen
        };
        let mut counts = [[0.0f64; 5]; 2];
        let mut rng = Rng::new(4);
        for _ in 0..8000 {
            counts[0][sequential(&mut rng)[2]] += 1.0 / 8000.0;
            counts[1][k_means_plus_plus::<f64>(&operator, 3, &mut rng, &Silent).unwrap()[2]] += 1.0 / 8000.0;
        }
        for (a, b) in counts[0].iter().zip(&counts[1]) {
            // Four standard deviations of the difference of two frequencies.
            assert!((a - b).abs() < 4.0 * (2.0 * 0.25 / 8000.0f64).sqrt(), "{counts:?}");
        }
    }
}
