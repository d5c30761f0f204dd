//! The kernel of pairs of views, in the same loop as kernels with a formula.

use super::function_operator::sample_rows;
use super::probe::Probe;
use super::rows::{Rows, most_ahead};
use super::{Augmentation, Batches, FunctionOperator, Functions, Pairs, Points, Sample, Standardizer};
use crate::compute::{self, Control, Device, Indices, Math, Tensor, View, ViewLayout};
use crate::rng::Rng;
use crate::training::Fingerprint;
use crate::{Result, data, fail_if};
use ndarray::{Array2, ArrayView2, Axis};
use rayon::prelude::*;

/// `κ(x,x') − 1` with `κ(x,x') = p(x,x')/(p(x)p(x'))`, where `p(x,x')` is the law of two views of the same thing: how much more often
/// x and x' occur together than views that have nothing in common.
///
/// Its action is `(Kf)(x) = E[f(x') | x] − E[f]`. Where only pairs can be drawn, `f(x')` at the partner of x stands for the
/// expectation: a batch is B pairs, points `2b` and `2b + 1` each, and `Kψ` takes the values of the partners less the mean. Then
/// `⟨ψ_i,Kψ_j⟩` is `R_ij = E[ψ_i(x)ψ_j(x')]`, symmetrised, less the product of the means, without bias from the partners. The
/// constant function, which belongs to the eigenvalue 1 of κ whatever the pairs are, is left out, because it says nothing.
///
/// `‖Kψ − μψ‖` cannot be measured by single partners. Validation has `1 − μ̄` instead, the mean over the functions of
/// `½ E(ψ(x) − ψ(x'))²` for functions of norm one.
///
/// ```
/// use mercer::spectrum::neural::{Eigenmap, FunctionOperator, Functions, PairObjective, Settings, ViewPairs, rayleigh_ritz, train};
/// use mercer::{Device, FitContext, net::Description, rng::Rng};
/// // Two views of a point lie on the same side of zero: κ − 1 is sign(x) sign(x').
/// let mut rng = Rng::new(1);
/// let sides: Vec<f64> = (0..400).map(|_| rng.sign()).collect();
/// let mut view = || ndarray::Array2::from_shape_fn((400, 1), |(i, _)| sides[i] * (0.5 + rng.uniform()));
/// let pairs = ViewPairs::given(view().view(), view().view())?;
/// let (objective, net) = (PairObjective::from(Eigenmap::default()), Description::parse("dense(16) tanh dense(2)")?);
/// let norms = [objective.normalises(), objective.centres()];
/// let functions = Functions::units(&net, 1, norms, Device::Cpu, &Rng::new(2))?;
/// let settings = Settings { steps: 100, batch: 64, ..Settings::default() };
/// let run = objective.objective(&functions, 2)?;
/// let mut trained = train(&pairs, functions, run, 2, &settings, &FitContext::default())?;
/// let sample = pairs.sample(Device::Cpu, &mut Rng::new(3), 400)?;
/// let found = rayleigh_ritz(&pairs, &mut trained.functions, &sample, 2)?;
/// assert!((found.eigenvalues[0] - 1.0).abs() < 0.05 && found.eigenvalues[1] < 0.2);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct ViewPairs<'a> {
    /// The things that views are made of `[n, d]`; or the pairs that are given, one after the other, `[2n, d]`.
    x: Source<'a>,
    standardizer: Standardizer,
    /// How views are made, where they are not given.
    views: Option<Views>,
    probe: Option<Probe>,
    identity: String,
}

enum Source<'a> {
    Rows(data::Rows<'a>),
    Pairs(Array2<f64>),
}

/// How views are made.
struct Views {
    augmentation: Augmentation,
    image: Option<[usize; 3]>,
    /// The largest value.
    white: f64,
}

impl<'a> ViewPairs<'a> {
    /// Pairs that are given: row i of `first` `[n, d]` and row i of `second` `[n, d]`.
    pub fn given(first: ArrayView2<f64>, second: ArrayView2<f64>) -> Result<ViewPairs<'static>> {
        let (n, d) = first.dim();
        fail_if!(
            second.dim() != (n, d),
            "pairs need two tables of the same size, but one has {n} rows of {d} columns and the other {} of {}",
            second.nrows(),
            second.ncols()
        );
        fail_if!(n < 2, "there must be at least two pairs, got {n}");
        let pairs = Array2::from_shape_fn((2 * n, d), |(i, j)| [first, second][i % 2][[i / 2, j]]);
        let print = Fingerprint::of(pairs.iter().map(|v| v.to_bits()));
        let identity = format!("{n} pairs of {d} columns, {print}");
        Ok(ViewPairs {
            standardizer: Standardizer::of(pairs.view()),
            x: Source::Pairs(pairs),
            views: None,
            probe: None,
            identity,
        })
    }

    /// Pairs of views of the rows of `x` `[n, d]`, which are images where `image` says channels, height and width.
    pub fn augmented(
        x: impl Into<data::Rows<'a>>,
        image: Option<[usize; 3]>,
        augmentation: Augmentation,
    ) -> Result<ViewPairs<'a>> {
        let x = x.into();
        let (n, d) = x.dim();
        augmentation.check(image)?;
        let pixels = image.map_or(d, |image| image.iter().product());
        fail_if!(pixels != d, "rows of {d} columns are no images of {image:?}");
        fail_if!(n < 2, "there must be at least two rows to make views of, got {n}");
        let (print, mut white) = (Fingerprint::of([]), 0.0f64);
        let print = x.chunks(256).fold(print, |print, few| {
            white = few.iter().fold(white, |most, v| most.max(*v));
            print.then(few.iter().map(|v| v.to_bits()))
        });
        let standardizer = match image {
            Some(image) => Standardizer::of_channels(x, image),
            None => Standardizer::of(x),
        };
        let identity = format!("views by {augmentation} of {n} rows of {d} columns, {print}");
        let views = Some(Views { augmentation, image, white });
        Ok(ViewPairs { x: Source::Rows(x), standardizer, views, probe: None, identity })
    }

    /// The same, with points as another operator shows them to networks, and pixels of its range.
    pub fn seen_as(mut self, other: &ViewPairs) -> Self {
        self.standardizer = other.standardizer.clone();
        if let (Some(own), Some(other)) = (&mut self.views, &other.views) {
            own.white = other.white;
        }
        self
    }

    /// The same; training shows how well neighbours tell the classes `[·]` of rows that it does not see, among rows of known classes.
    pub fn watched(
        mut self,
        queries: (ArrayView2<f64>, &[usize]),
        bank: (ArrayView2<f64>, &[usize]),
        device: Device,
    ) -> Result<Self> {
        self.probe = Some(Probe::new(queries, bank, &self.standardizer, device)?);
        Ok(self)
    }

    fn rows(&self) -> data::Rows<'_> {
        match &self.x {
            Source::Rows(x) => *x,
            Source::Pairs(pairs) => pairs.view().into(),
        }
    }

    /// Rows that views are made of, or pairs that are given.
    pub fn n(&self) -> usize {
        match &self.x {
            Source::Rows(x) => x.n(),
            Source::Pairs(pairs) => pairs.nrows() / 2,
        }
    }

    /// Where the points of the pairs `pairs` are in [`Self::rows`], where they are given: two each.
    fn both(pairs: &[usize]) -> Vec<usize> {
        pairs.iter().flat_map(|pair| [2 * pair, 2 * pair + 1]).collect()
    }

    fn layout(&self, views: &Views, device: Device) -> Result<ViewLayout> {
        let centre: Vec<f32> = self.standardizer.centre().iter().map(|v| *v as f32).collect();
        Ok(ViewLayout {
            image: views.image,
            white: views.white as f32,
            centre: Tensor::from_host(device, &[centre.len()], &centre)?,
            scale: self.standardizer.scale() as f32,
        })
    }
}

impl Views {
    /// How two views of each of `count` rows are made, `[2·count, View::NUMBERS]`. A view is drawn by a generator of its own, so that threads
    /// share the work.
    fn draw(&self, count: usize, rng: &mut Rng) -> Vec<f32> {
        let columns = [0, 1].map(|_| Augmentation::draw_columns(rng));
        let each = Rng::new(rng.next_u64());
        let mut numbers = vec![0.0; 2 * count * View::NUMBERS];
        numbers.par_chunks_exact_mut(View::NUMBERS).with_min_len(64).enumerate().for_each(|(view, numbers)| {
            let drawn = self.augmentation.draw(self.image, columns[view % 2], &mut each.fork(view as u64));
            numbers.copy_from_slice(&drawn.numbers());
        });
        numbers
    }
}

impl FunctionOperator for ViewPairs<'_> {
    fn inputs(&self) -> usize {
        self.rows().d()
    }

    fn standardizer(&self) -> Standardizer {
        self.standardizer.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn batches<'a>(&'a self, functions: &Functions, batch: usize, _: Math) -> Result<Box<dyn Batches + 'a>> {
        let (device, batch) = (functions.device(), batch.min(self.n()));
        let mean = Tensor::zeros(device, &[functions.count(), 1])?;
        let identity = Standardizer::identity(self.inputs());
        Ok(Box::new(match &self.views {
            None => PairBatches {
                rows: Rows::new(self.rows(), self.standardizer.clone(), functions, 2 * batch)?,
                made: None,
                mean,
                n: self.n(),
                batch,
            },
            Some(views) => PairBatches {
                rows: Rows::new(self.rows(), identity, functions, batch)?,
                made: Some(Made::new(views, self.layout(views, device)?, functions, batch)?),
                mean,
                n: self.n(),
                batch,
            },
        }))
    }

    /// `points` pairs.
    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> Result<Sample> {
        let pairs = sample_rows(rng, self.n(), points);
        let x = match &self.views {
            None => self.standardizer.gather(device, self.rows(), Self::both(&pairs).into_iter())?,
            Some(views) => {
                let numbers = views.draw(pairs.len(), rng);
                let numbers = Tensor::from_host(device, &[2 * pairs.len(), View::NUMBERS], &numbers)?;
                let clean = Standardizer::identity(self.inputs()).gather(device, self.rows(), pairs.iter().copied())?;
                let [mut work, mut out] = [Tensor::zeros(device, &[0])?, Tensor::zeros(device, &[0])?];
                compute::views(&clean, &numbers, &self.layout(views, device)?, &mut work, &mut out)?;
                out
            }
        };
        Ok(Sample { x, rows: pairs, kernel: None })
    }

    fn image(&self, _: &Sample, q: ArrayView2<f64>, _: ArrayView2<f64>, _: &mut Functions) -> Result<Array2<f64>> {
        Ok(partners(q))
    }

    fn without_constants(&self) -> bool {
        true
    }

    fn watch(&self, functions: &mut Functions, pairs: &Pairs) -> Result<Option<f64>> {
        self.probe.as_ref().map(|probe| probe.accuracy(functions, pairs)).transpose()
    }

    /// `1 − μ̄`; a missing pair counts as `μ = 0`.
    fn shortfall(&self, pairs: &Pairs, k: usize) -> f64 {
        1.0 - pairs.eigenvalues.iter().take(k).sum::<f64>() / k as f64
    }
}

/// The values of the partners less the mean: `Kψ` `[2B, k]` on pairs that lie one after the other.
pub(crate) fn partners(psi: ArrayView2<f64>) -> Array2<f64> {
    let mean = psi.mean_axis(Axis(0)).expect("there are points");
    let mut image = Array2::zeros(psi.dim());
    for (i, mut row) in image.rows_mut().into_iter().enumerate() {
        row.assign(&(&psi.row(i ^ 1) - &mean));
    }
    image
}

/// Batches of pairs.
struct PairBatches<'a> {
    rows: Rows<'a>,
    /// Where views are made.
    made: Option<Made<'a>>,
    /// `[k, 1]`
    mean: Tensor,
    n: usize,
    batch: usize,
}

/// Views that are made of the rows of a batch.
struct Made<'a> {
    views: &'a Views,
    layout: ViewLayout,
    /// The rows of a batch.
    clean: Points,
    /// How views are made, drawn and not yet brought.
    drawn: Vec<f32>,
    /// `[most·2B, View::NUMBERS]`, and `0, 1, …` `[most, 2B]`, by which a step finds its own.
    table: Tensor,
    places: Indices,
    /// Those of the batch.
    now: Tensor,
    here: Indices,
    work: Tensor,
}

impl<'a> Made<'a> {
    fn new(views: &'a Views, layout: ViewLayout, functions: &Functions, batch: usize) -> Result<Made<'a>> {
        let device = functions.device();
        let all = most_ahead(device) * 2 * batch;
        let places: Vec<u32> = (0..all as u32).collect();
        let empty = || Tensor::zeros(device, &[0]);
        Ok(Made {
            views,
            layout,
            clean: Points::empty(functions)?,
            drawn: vec![],
            table: Tensor::zeros(device, &[all, View::NUMBERS])?,
            places: Indices::from_host(device, &[all], &places)?,
            now: empty()?,
            here: Indices::zeros(device, &[2 * batch])?,
            work: empty()?,
        })
    }
}

impl Batches for PairBatches<'_> {
    fn size(&self) -> usize {
        self.batch
    }

    fn most(&self) -> usize {
        self.rows.most()
    }

    fn draw(&mut self, rng: &mut Rng) {
        let pairs = sample_rows(rng, self.n, self.batch);
        match &mut self.made {
            None => self.rows.push(ViewPairs::both(&pairs)),
            Some(made) => {
                made.drawn.extend(made.views.draw(pairs.len(), rng));
                self.rows.push(pairs);
            }
        }
    }

    fn bring(&mut self) -> Result<()> {
        self.rows.bring();
        if let Some(made) = &mut self.made {
            made.table.write(0, &made.drawn);
            made.drawn.clear();
        }
        Ok(())
    }

    fn begin(&mut self, control: &Control, points: &mut Points) -> Result<()> {
        let Some(made) = &mut self.made else { return self.rows.begin(control, points) };
        self.rows.begin(control, &mut made.clean)?;
        control.begin_step(&made.places, &made.table, &mut made.here, &mut made.now)?;
        compute::views(&made.clean.x, &made.now, &made.layout, &mut made.work, &mut points.x)
    }

    fn apply(&mut self, _: &Control, _: &Points, _: &Functions, psi: &Tensor, out: &mut Tensor) -> Result<()> {
        compute::swap_pairs(psi, out)?;
        compute::centre(out, &mut self.mean);
        Ok(())
    }

    fn recordable(&self) -> bool {
        true
    }
}
