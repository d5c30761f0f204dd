//! Eigenfunctions of the kernel of views, by a trained network: a representation in the order of importance, without labels.

use crate::apply::code::fitted_code::{CodeFinish, CodeMap, with_noise};
use crate::apply::traits::finite;
use crate::apply::{FittedCode, PairCertificate, check_points};
use crate::linalg::matmul;
use crate::net::{Description, NAMES, Network, named};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::spectrum::neural::{
    Augmentation, Eigenmap, FunctionOperator, Functions, NetworkFeatures, Ordered, Own, PairObjective, Settings,
    ViewPairs, ordered, pairs_of, partners, train,
};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array2, Axis};
use std::time::Instant;

/// Trains a network on pairs of views of unlabelled rows into eigenfunctions of `κ(x,x') = p(x,x')/(p(x)p(x'))`, and orders them.
///
/// ```
/// use mercer::apply::{Saved, Transform, ViewEigenmap, ViewRows};
/// use mercer::{FitContext, data, spectrum::neural::Augmentation};
/// let digits = data::open("digits", &Default::default())?;
/// let eigenmap = ViewEigenmap { epochs: 2, ..ViewEigenmap::new("dense(32) relu", 8) };
/// let rows = ViewRows { image: digits.shape, ..ViewRows::new(digits.x.to_f64().into_owned()) };
/// let code = eigenmap.fit(&rows, None, &FitContext::default())?;
/// assert!(code.eigenvalues.windows(2).all(|two| two[0] >= two[1]));
/// assert!(code.certificate.held_out && code.certificate.intervals.len() == code.eigenvalues.len());
/// assert_eq!(code.transform(rows.x.slice(ndarray::s![..3, ..]))?.dim(), (3, code.eigenvalues.len()));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ViewEigenmap {
    /// The network before the projector: a name ([`crate::net::NAMES`]), whose last layer is left out, or layers.
    pub net: String,
    /// Units of the hidden layer of the projector `dense(h) bn relu dense(k)` that follows; without it 8k, but 64 at least and 2048 at most,
    /// unless k is more: as few as k would be a bottleneck that the functions share. None at all for 0: the network itself
    /// puts out k numbers.
    pub projector: Option<usize>,
    /// Number of functions.
    pub k: usize,
    /// Whether the code is made of the network's own units, which Rayleigh–Ritz orders, and the projector is dropped after training; otherwise
    /// it is what the projector puts out.
    pub drop_projector: bool,
    /// How views are made; without it the usual one ([`Augmentation::usual`]).
    pub augmentation: Option<Augmentation>,
    /// What trains the network.
    pub objective: PairObjective,
    /// Whether Rayleigh–Ritz on the pairs' operator ends the training; otherwise the functions are those of the objective, in its order.
    pub ritz: bool,
    /// How the functions become a code; without it [`CodeFinish::UNITS`] for units before a projector, else [`CodeFinish::PLAIN`].
    pub finish: Option<CodeFinish>,
    /// Times that every row is seen, as two views each.
    pub epochs: u64,
    /// Batch, optimizer, checkpoints. Steps, seed, patience and what is kept are replaced: all epochs are done, and the last functions kept.
    pub settings: Settings,
    /// Pairs over which the functions are ordered in the end, and over which they are judged; there are no more of them than rows. Without it
    /// 64 for each of the functions that are ordered, and at least 8192: orthonormal functions of fewer are not so on other pairs.
    pub finish_pairs: Option<usize>,
}

/// Rows to make views of, with what is known of them. Example: [`ViewEigenmap`].
#[derive(Clone, Debug)]
pub struct ViewRows {
    /// `[n, d]`
    pub x: Array2<f64>,
    /// Channels, height and width, where rows are images.
    pub image: Option<[usize; 3]>,
    /// Their classes `[n]`, to watch how well neighbours tell them; training does not see them.
    pub labels: Option<Vec<usize>>,
    /// The other views of the same things `[n, d]`, where pairs are given and not made.
    pub partners: Option<Array2<f64>>,
}

impl ViewRows {
    /// Rows of which nothing else is known.
    pub fn new(x: Array2<f64>) -> ViewRows {
        ViewRows { x, image: None, labels: None, partners: None }
    }

    fn select(&self, rows: &[usize]) -> ViewRows {
        ViewRows {
            x: self.x.select(Axis(0), rows),
            image: self.image,
            labels: self.labels.as_ref().map(|labels| rows.iter().map(|i| labels[*i]).collect()),
            partners: self.partners.as_ref().map(|x| x.select(Axis(0), rows)),
        }
    }

    fn pairs(&self, augmentation: &Augmentation) -> Result<ViewPairs<'_>> {
        match &self.partners {
            Some(partners) => ViewPairs::given(self.x.view(), partners.view()),
            None => ViewPairs::augmented(self.x.view(), self.image, augmentation.clone()),
        }
    }

    fn check(&self) -> Result<()> {
        check_points(self.x.view())?;
        self.partners.as_ref().map_or(Ok(()), |x| check_points(x.view()))?;
        let n = self.x.nrows();
        if let Some(labels) = &self.labels {
            fail_if!(labels.len() != n, "there are {n} rows and {} classes of them", labels.len());
        }
        Ok(())
    }
}

/// Share of the rows that is held out where none are given, and the most and fewest that are.
const HELD_OUT: f64 = 0.1;
const MOST_HELD_OUT: usize = 5000;
const FEWEST: usize = 40;
/// Pairs over which functions are ordered: at least, and for each function.
const FEWEST_PAIRS: usize = 8192;
const PAIRS_A_FUNCTION: usize = 64;
/// Eigenvalues below this are noise of single precision.
const ZERO: f64 = 1e-6;

impl ViewEigenmap {
    /// `k` functions by this network, by the usual objective and settings: 100 epochs of Adam at 1e-3 in batches of 256.
    pub fn new(net: impl Into<String>, k: usize) -> ViewEigenmap {
        ViewEigenmap {
            net: net.into(),
            projector: None,
            k,
            drop_projector: false,
            augmentation: None,
            objective: Eigenmap::default().into(),
            ritz: true,
            finish: None,
            epochs: 100,
            settings: Settings::default(),
            finish_pairs: None,
        }
    }

    /// Fits `rows`; the certificate and the accuracy of neighbours are measured on `held_out`, or on a tenth of the rows, which is then
    /// not trained on.
    pub fn fit(&self, rows: &ViewRows, held_out: Option<&ViewRows>, context: &FitContext) -> Result<FittedCode> {
        let start = Instant::now();
        rows.check()?;
        held_out.map_or(Ok(()), ViewRows::check)?;
        fail_if!(self.k == 0, "k must be at least 1");
        let finish = self.finish.unwrap_or(if self.drop_projector { CodeFinish::UNITS } else { CodeFinish::PLAIN });
        finish.check()?;
        fail_if!(
            self.drop_projector && (!self.ritz || self.projector == Some(0)),
            "the units before the projector have no order of their own; keep the projector, or end in Rayleigh–Ritz"
        );
        fail_if!(
            !self.ritz && (finish.by_direction || finish.ridge > 0.0),
            "directions and a ridge are for Rayleigh–Ritz; functions in their own order have neither"
        );
        let augmentation = self.augmentation.clone().unwrap_or_else(|| Augmentation::usual(rows.image));
        let parts = split(rows, held_out, context.seed);
        let (fit, test) = parts.as_ref().map_or((rows, held_out), |(fit, test)| (fit, Some(test)));
        let mut pairs = fit.pairs(&augmentation)?;
        if let Some(test) = test
            && let (Some(wanted), Some(known)) = (&test.labels, &fit.labels)
        {
            pairs = pairs.watched((test.x.view(), wanted), (fit.x.view(), known), context.device)?;
        }
        let functions = self.functions(pairs.inputs(), rows.image, context)?;
        let objective = self.objective.objective(&functions, self.k)?;
        let settings = self.settings(pairs.n(), context.seed);
        let mut trained = train(&pairs, functions, objective, self.k, &settings, context)?;
        trained.record.finished = self.ritz;
        let _keeps = context.keeps_best();
        let seed = Rng::new(context.seed);
        if self.drop_projector {
            trained.functions = trained.functions.first_layers(&self.before_projector(pairs.inputs(), rows.image)?)?;
        }
        let functions = &mut trained.functions;
        let ordered_over = self.finish_pairs.unwrap_or_else(|| FEWEST_PAIRS.max(PAIRS_A_FUNCTION * functions.count()));
        let sample = pairs.sample(context.device, &mut seed.fork(4), ordered_over)?;
        let Ordered { pairs: found, mean, gamma } = match self.ritz {
            true => ordered(&pairs, functions, &sample, self.k, finish.ridge, finish.by_direction)?,
            false => {
                let pairs = pairs_of(&pairs, functions, &sample, self.k, Some(Own::Networks))?;
                // The functions were combined without their means.
                let mean = functions.columns(&sample.x)?.mean_axis(Axis(0)).expect("there are pairs");
                Ordered { pairs, mean, gamma: 0.0 }
            }
        };
        let kept: Vec<usize> = (0..found.eigenvalues.len()).filter(|j| found.eigenvalues[*j] > ZERO).collect();
        fail_if!(kept.is_empty(), "no function tells views of the same row from others; use another augmentation");
        let eigenvalues: Vec<f64> = kept.iter().map(|j| found.eigenvalues[*j]).collect();
        let a = found.coefficients.select(Axis(1), &kept);
        let certificate = {
            let test = test.map(|test| test.pairs(&augmentation).map(|test| test.seen_as(&pairs))).transpose()?;
            let measured = test.as_ref().unwrap_or(&pairs);
            let sample = measured.sample(context.device, &mut seed.fork(5), ordered_over)?;
            let phi = finish.functions(functions.columns(&sample.x)?) - &mean;
            let psi = matmul(with_noise(phi, gamma, seed.fork(7)).view(), a.view());
            PairCertificate::new(psi.view(), partners(psi.view()).view(), &eigenvalues, 2, test.is_some())?
        };
        let map = CodeMap {
            network: Some(NetworkFeatures::new(functions, pairs.standardizer())),
            by_direction: finish.by_direction,
            shift: mean.insert_axis(Axis(0)),
            coefficients: finish.weighted(a, &eigenvalues),
        };
        let dropped = self.k.min(functions.count()) - eigenvalues.len();
        let note = (dropped > 0).then(|| format!("{dropped} functions have no positive eigenvalue and are left out"));
        let method = format!("{}{}", self.objective.name(), if self.ritz { "" } else { " without Rayleigh–Ritz" });
        let kernel = match rows.partners {
            Some(_) => "given pairs".to_owned(),
            None => format!("views by {augmentation}"),
        };
        let notes = trained.record.notes.iter().cloned().chain(note).collect();
        let origin = Origin::new(method, kernel, (pairs.n(), pairs.inputs()), context, start);
        let training = Some(trained.record);
        finite(FittedCode { origin, eigenvalues, certificate, training, notes, map })
    }

    fn settings(&self, n: usize, seed: u64) -> Settings {
        let of_epoch = n.div_ceil(self.settings.batch.clamp(1, n)) as u64;
        Settings {
            steps: of_epoch.saturating_mul(self.epochs),
            seed,
            patience: usize::MAX,
            interval: u64::MAX,
            keep_best: false,
            finish: true,
            ..self.settings.clone()
        }
    }

    fn functions(&self, d: usize, image: Option<[usize; 3]>, context: &FitContext) -> Result<Functions> {
        let description = self.description(d, image)?;
        let norms = [self.objective.normalises(), self.objective.centres()];
        // The numbers, their gradient, two moments and a checkpoint in double precision.
        context.budget.require_network(&Network::new(&description, d, 1)?, 12, 2 * self.settings.batch)?;
        let functions = Functions::units(&description, d, norms, context.device, &Rng::new(context.seed).fork(1))?;
        fail_if!(
            functions.count() != self.k,
            "the network puts out {} numbers, and k is {}; end it with dense({}), or let a projector follow",
            functions.count(),
            self.k,
            self.k
        );
        Ok(functions)
    }

    /// The network with its projector.
    fn description(&self, d: usize, image: Option<[usize; 3]>) -> Result<Description> {
        let mut description = self.before_projector(d, image)?;
        let hidden = match self.projector {
            Some(0) => return Ok(description),
            hidden => hidden.unwrap_or_else(|| (8 * self.k).clamp(FEWEST_UNITS, MOST_UNITS).max(self.k)),
        };
        let projector = Description::parse(&format!("dense({hidden}) bn relu dense({})", self.k))?;
        description.layers.extend(projector.layers);
        Ok(description)
    }

    fn before_projector(&self, d: usize, image: Option<[usize; 3]>) -> Result<Description> {
        let name = self.net.trim();
        let mut description = if NAMES.contains(&name) {
            named(name, image.unwrap_or([1, 1, d]), self.k)?.hidden_units()
        } else {
            Description::parse(name)?
        };
        description.image = description.image.or(image);
        Ok(description)
    }
}

/// Hidden units of the usual projector.
const FEWEST_UNITS: usize = 64;
const MOST_UNITS: usize = 2048;

/// The rows to fit and those that are held out, where none are given and there are enough.
fn split(rows: &ViewRows, held_out: Option<&ViewRows>, seed: u64) -> Option<(ViewRows, ViewRows)> {
    let n = rows.x.nrows();
    if held_out.is_some() || n < FEWEST {
        return None;
    }
    let mut order: Vec<usize> = (0..n).collect();
    Rng::new(seed).fork(6).shuffle(&mut order);
    let (test, fit) = order.split_at(((HELD_OUT * n as f64) as usize).min(MOST_HELD_OUT));
    Some((rows.select(fit), rows.select(test)))
}
