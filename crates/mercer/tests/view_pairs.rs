//! Pairs of views: the operator against one whose spectrum is known, every objective's gradient, and training to the spectrum.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use mercer::apply::{
    CodeFinish, EmbeddingCode, Fitted, FittedCode, Saved, Together, Transform, ViewEigenmap, ViewRows, Weighting,
};
use mercer::data::Target;
use mercer::linalg::eigh;
use mercer::net::Description;
use mercer::spectrum::neural::{
    Augmentation, BarlowTwins, Eigenmap, FunctionOperator, Functions, Nested, NeuralEf, Objective, Own, PairObjective,
    Settings, SimClr, SpectralContrastive, Trained, VicReg, ViewPairs, neighbour_accuracy, rayleigh_ritz, train,
};
use mercer::{Interrupt, Progress};
use neural::{Batch, moved, resumes_with_the_same_bits};

/// A few points with a known law of pairs: `p(i,j) = counts_ij/Σ`, each pair listed as often as it counts.
struct Discrete {
    counts: Array2<f64>,
    x: Array2<f64>,
}

impl Discrete {
    /// Points on an arc whose pairs are near each other, with unequal frequencies: no eigenvalue is repeated.
    fn new(points: usize) -> Discrete {
        let angle = |i: usize| 0.55 * i as f64;
        let counts = Array2::from_shape_fn((points, points), |(i, j)| {
            let near = (3.0 * ((angle(i) - angle(j)).cos() - 1.0)).exp();
            let often = |i: usize| 1.0 + 0.4 * [0.0, 1.0, -0.5][i % 3];
            (12.0 * near * often(i) * often(j)).round()
        });
        let x = Array2::from_shape_fn((points, 2), |(i, c)| if c == 0 { angle(i).cos() } else { angle(i).sin() });
        Discrete { counts, x }
    }

    fn pairs(&self) -> ViewPairs<'static> {
        let list: Vec<[usize; 2]> =
            self.counts.indexed_iter().flat_map(|((i, j), n)| vec![[i, j]; *n as usize]).collect();
        let side = |s: usize| Array2::from_shape_fn((list.len(), 2), |(row, c)| self.x[[list[row][s], c]]);
        ViewPairs::given(side(0).view(), side(1).view()).unwrap()
    }

    /// Eigenvalues of `κ − 1` and its eigenfunctions at the points, of norm one under p: those of `p(i,j)/√(p_i p_j) − √(p_i p_j)`
    /// divided by `√p_i`.
    fn spectrum(&self) -> (Vec<f64>, Array2<f64>) {
        let joint = (&self.counts + &self.counts.t()) / (2.0 * self.counts.sum());
        let p = joint.sum_axis(Axis(1));
        let n = p.len();
        let operator = Array2::from_shape_fn((n, n), |(i, j)| {
            let root = (p[i] * p[j]).sqrt();
            joint[[i, j]] / root - root
        });
        let (values, vectors) = eigh(Device::Cpu, operator.view()).unwrap();
        (values.to_vec(), Array2::from_shape_fn((n, n), |(i, j)| vectors[[i, j]] / p[i].sqrt()))
    }
}

fn functions(objective: PairObjective, net: &str, d: usize, seed: u64) -> Functions {
    let norms = [objective.normalises(), objective.centres()];
    Functions::units(&Description::parse(net).unwrap(), d, norms, Device::Cpu, &Rng::new(seed)).unwrap()
}

fn trained(pairs: &ViewPairs, objective: PairObjective, net: &str, k: usize, settings: &Settings) -> Trained {
    let functions = functions(objective, net, pairs.inputs(), 2);
    let run = objective.objective(&functions, k).unwrap();
    train(pairs, functions, run, k, settings, &FitContext::default()).unwrap()
}

/// Rayleigh–Ritz on all pairs, over a network that can be any function of the points, is the exact spectrum: no training is needed.
#[test]
fn the_operator_of_listed_pairs_has_the_spectrum_of_their_law() {
    let discrete = Discrete::new(9);
    let pairs = discrete.pairs();
    let (values, vectors) = discrete.spectrum();
    let sample = pairs.sample(Device::Cpu, &mut Rng::new(1), usize::MAX).unwrap();
    let mut functions = functions(Eigenmap::default().into(), "dense(64, w=2, b=1) sincos dense(40)", 2, 3);
    let found = rayleigh_ritz(&pairs, &mut functions, &sample, 8).unwrap();
    close_to(&found.eigenvalues, &values[..8], 1e-5);
    assert!((pairs.shortfall(&found, 8) - (1.0 - values[..8].iter().sum::<f64>() / 8.0)).abs() < 1e-5);
    // The functions, at one point of the sample for each of the nine.
    let place = |i: usize| {
        let standard = |row: usize| sample.x.to_host().unwrap()[2 * row..2 * row + 2].to_vec();
        let own = pairs.standardizer().gather(Device::Cpu, discrete.x.view(), i..i + 1).unwrap().to_host().unwrap();
        (0..found.values.nrows()).find(|row| standard(*row) == own).unwrap()
    };
    for j in 0..4 {
        let got: Vec<f64> = (0..9).map(|i| found.values[[place(i), j]]).collect();
        let sign = got.iter().zip(vectors.column(j)).map(|(a, b)| a * b).sum::<f64>().signum();
        close_to(&got, &vectors.column(j).mapv(|v| sign * v).to_vec(), 2e-3);
    }
}

/// Every objective, trained on batches and ended by Rayleigh–Ritz, finds the first eigenvalues; those that order functions by
/// themselves have them in their own.
#[test]
fn every_objective_finds_the_spectrum() {
    let discrete = Discrete::new(9);
    let pairs = discrete.pairs();
    let (values, _) = discrete.spectrum();
    let (k, net) = (4, "dense(24, b=1) tanh dense(24, b=1) tanh dense(4, b=1)");
    let sample = pairs.sample(Device::Cpu, &mut Rng::new(1), usize::MAX).unwrap();
    for objective in PairObjective::all() {
        // Every view is compared with every other by SimCLR.
        let [steps, batch] = if matches!(objective, PairObjective::SimClr(_)) { [200, 64] } else { [600, 200] };
        let settings = Settings {
            steps: steps as u64,
            batch,
            learning_rate: 1e-2,
            keep_best: false,
            patience: 1000,
            ..Settings::default()
        };
        let mut trained = trained(&pairs, objective, net, k, &settings);
        let found = rayleigh_ritz(&pairs, &mut trained.functions, &sample, k).unwrap();
        // The others follow the logarithm of the kernel, or weigh functions against each other by constants that are meant for many
        // more of them: of theirs the first two.
        let (compared, tolerance) = match objective {
            PairObjective::SimClr(_) | PairObjective::BarlowTwins(_) | PairObjective::VicReg(_) => (2, 0.1),
            _ => (k, 0.02),
        };
        let off = |got: &[f64]| got.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let top = &found.eigenvalues[..compared];
        assert!(off(top) < tolerance, "{}: {top:?} for {values:?}", objective.name());
        let (first, last) = (trained.record.validation[0][1], trained.record.validation.last().unwrap()[1]);
        assert!(compared < k || last < first, "{}: {first} {last}", objective.name());
        if matches!(objective, PairObjective::Eigenmap(_) | PairObjective::NeuralEf(_)) {
            let raw = &trained.record.raw_eigenvalues;
            assert!(off(raw) < 0.1, "{}: {raw:?} for {values:?}", objective.name());
        }
    }
}

const BATCH: usize = 12;
const NET: &str = "dense(6, b=1) tanh dense(3, b=1)";

/// One batch of pairs and functions on it.
struct Setting {
    pairs: ViewPairs<'static>,
    functions: Functions,
}

impl Setting {
    fn new(objective: PairObjective) -> Setting {
        let mut rng = Rng::new(4);
        let x = rng.normals((BATCH, 2));
        let near = x.mapv(|v| v + 0.3 * rng.normal());
        Setting { pairs: ViewPairs::given(x.view(), near.view()).unwrap(), functions: functions(objective, NET, 2, 5) }
    }

    /// ψ `[k, 2B]` at `θ + h d`.
    fn psi(&mut self, d: &[f32], h: f32) -> Array2<f64> {
        let pairs = &self.pairs;
        moved(&mut self.functions, d, h, |functions| Batch::draw(pairs, functions, &mut Rng::new(6), BATCH).values())
    }

    fn gradient(&mut self, objective: &mut dyn Objective) -> (f64, Vec<f32>) {
        let batch = Batch::draw(&self.pairs, &mut self.functions, &mut Rng::new(6), BATCH);
        batch.gradient(objective, &mut self.functions)
    }
}

/// `R_ij` with `a` for the first and `b` for the second function, less the product of means.
fn r(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    let m = a.ncols();
    let swapped = Array2::from_shape_fn(b.dim(), |(j, p)| b[[j, p ^ 1]]);
    let [ma, mb] = [a, b].map(|f| f.sum_axis(Axis(1)) / m as f64);
    a.dot(&swapped.t()) / m as f64 - ma.insert_axis(Axis(1)).dot(&mb.insert_axis(Axis(0)))
}

/// The objective's loss and its gradient are those of `loss(ψ, ψ₀)`, where `ψ₀` is what is held fixed.
fn follows(objective: PairObjective, loss: impl Fn(&Array2<f64>, &Array2<f64>) -> f64) {
    let mut setting = Setting::new(objective);
    let mut run = objective.objective(&setting.functions, 3).unwrap();
    let (total, gradient) = setting.gradient(run.as_mut());
    let fixed = setting.psi(&vec![0.0; gradient.len()], 0.0);
    let name = run.describe();
    assert!((total - loss(&fixed, &fixed)).abs() < 1e-5 * (1.0 + total.abs()), "{name}: {total}");
    let size = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
    for seed in 0..4 {
        let mut rng = Rng::new(50 + seed);
        let d: Vec<f32> = gradient.iter().map(|_| rng.normal() as f32).collect();
        let length = d.iter().map(|d| d * d).sum::<f32>().sqrt();
        let d: Vec<f32> = d.iter().map(|d| d / length).collect();
        let h = 0.01;
        let mut at = |h: f32| loss(&setting.psi(&d, h), &fixed);
        let difference = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * f64::from(h));
        let along: f64 = gradient.iter().zip(&d).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
        assert!((along - difference).abs() < 2e-3 * size, "{name}: {along} for {difference}, gradient of {size}");
    }
}

#[test]
fn an_ordered_eigenmap_holds_earlier_functions_fixed() {
    let eigenmap = Eigenmap { penalty: Some(1.7), ordered: true };
    follows(eigenmap.into(), |psi, fixed| {
        let (own, before) = (r(psi, psi), r(fixed, psi));
        (0..3).map(|j| -own[[j, j]] + (0..j).map(|i| 1.7 * before[[i, j]].powi(2)).sum::<f64>()).sum()
    });
    let usual = PairObjective::from(Eigenmap::default()).objective(&functions(eigenmap.into(), NET, 2, 1), 3).unwrap();
    assert!(usual.describe().contains("penalty 2,") && usual.own() == Own::Networks, "{}", usual.describe());
}

#[test]
fn an_unordered_eigenmap_holds_nothing_fixed() {
    follows(Eigenmap { penalty: Some(0.6), ordered: false }.into(), |psi, _| {
        let r = r(psi, psi);
        (0..3).map(|j| -r[[j, j]] + (0..j).map(|i| 0.6 * r[[i, j]].powi(2)).sum::<f64>()).sum()
    });
}

#[test]
fn barlow_twins_brings_the_correlation_to_the_identity() {
    follows(BarlowTwins { redundancy: 0.4 }.into(), |psi, _| {
        let r = r(psi, psi);
        r.indexed_iter().map(|((i, j), r)| if i == j { (1.0 - r).powi(2) } else { 0.4 * r * r }).sum()
    });
}

#[test]
fn vicreg_weighs_views_deviations_and_covariances() {
    follows(VicReg { invariance: 3.0, variance: 5.0, covariance: 2.0 }.into(), |psi, _| {
        let c = psi.dot(&psi.t()) / psi.ncols() as f64;
        // The mean over pairs and functions of the squared difference, as published.
        let apart: f64 =
            (0..psi.ncols()).step_by(2).map(|p| (&psi.column(p) - &psi.column(p + 1)).mapv(|d| d * d).sum()).sum();
        let hinge: f64 = c.diag().iter().map(|v| (1.0 - (v + 1e-4).sqrt()).max(0.0)).sum();
        let off: f64 = c.indexed_iter().filter(|((i, j), _)| i != j).map(|(_, c)| c * c).sum();
        3.0 * apart / (psi.ncols() / 2 * 3) as f64 + (5.0 * hinge + 2.0 * 2.0 * off) / 3.0
    });
}

#[test]
fn simclr_is_the_cross_entropy_of_partners() {
    follows(SimClr { temperature: 0.3 }.into(), |psi, _| {
        let z = Array2::from_shape_fn(psi.dim(), |(j, p)| psi[[j, p]] / psi.column(p).dot(&psi.column(p)).sqrt());
        let s = z.t().dot(&z) / 0.3;
        let m = s.nrows();
        let one = |b: usize| -> f64 {
            let others: f64 = (0..m).filter(|c| *c != b).map(|c| s[[b, c]].exp()).sum();
            others.ln() - s[[b, b ^ 1]]
        };
        (0..m).map(one).sum::<f64>() / m as f64
    });
}

#[test]
fn the_spectral_contrastive_loss_has_negatives_from_the_other_half() {
    follows(SpectralContrastive.into(), |psi, _| {
        let half = psi.ncols() / 2;
        let lambda = |part: ndarray::ArrayView2<f64>| part.dot(&part.t()) / part.ncols() as f64;
        let (near, far) = (psi.slice(s![.., ..half]), psi.slice(s![.., half..]));
        -2.0 * r(psi, psi).diag().sum() + (lambda(near) * lambda(far)).sum()
    });
}

#[test]
fn neuralef_and_nested_take_pairs_too() {
    follows(Nested::default().into(), |psi, _| {
        let (half, weight) = (psi.ncols() / 2, |l: usize| (3 - l) as f64 / 3.0);
        let lambda = |part: ndarray::ArrayView2<f64>| part.dot(&part.t()) / part.ncols() as f64;
        let product = lambda(psi.slice(s![.., ..half])) * lambda(psi.slice(s![.., half..]));
        let r = r(psi, psi);
        (0..3).map(|l| -2.0 * weight(l) * r[[l, l]]).sum::<f64>()
            + product.indexed_iter().map(|((l, o), v)| weight(l.max(o)) * v).sum::<f64>()
    });
    follows(NeuralEf::Published.into(), |psi, fixed| {
        let (own, before, held) = (r(psi, psi), r(fixed, psi), r(fixed, fixed));
        (0..3).map(|j| -own[[j, j]] + (0..j).map(|i| before[[i, j]].powi(2) / held[[i, i]]).sum::<f64>()).sum()
    });
}

/// Views of digits: the same batches after an interrupt, whatever the augmentation draws.
#[test]
fn a_resumed_run_on_views_has_the_same_bits() {
    let digits = mercer::data::open("digits", &Default::default()).unwrap();
    let augmentation: Augmentation = "crops(0.5)+noise(0.1)+columns(0.1)".parse().unwrap();
    let settings = Settings { steps: 40, batch: 32, validation_points: 64, patience: 1000, ..Settings::default() };
    resumes_with_the_same_bits(
        settings,
        "views",
        |settings, progress: &dyn Progress, interrupt: Option<&Interrupt>| {
            let pairs = ViewPairs::augmented(digits.x.rows(), digits.shape, augmentation.clone()).unwrap();
            let objective = PairObjective::from(BarlowTwins::default());
            let functions = functions(objective, "conv(4, 3) relu maxpool(2) flatten dense(8) bn relu dense(6)", 64, 2);
            let run = objective.objective(&functions, 6).unwrap();
            let context = FitContext { progress, interrupt, ..FitContext::default() };
            train(&pairs, functions, run, 6, settings, &context).unwrap()
        },
    );
}

#[test]
fn pairs_that_cannot_be_are_refused() {
    let (x, y) = (Array2::<f64>::zeros((5, 3)), Array2::<f64>::zeros((4, 3)));
    let refused = |pairs: mercer::Result<ViewPairs>| pairs.map(drop).unwrap_err().to_string();
    assert!(refused(ViewPairs::given(x.view(), y.view())).contains("same size"));
    assert!(refused(ViewPairs::given(x.slice(s![..1, ..]), y.slice(s![..1, ..]))).contains("two pairs"));
    let crops: Augmentation = "crops".parse().unwrap();
    assert!(refused(ViewPairs::augmented(x.view(), None, crops.clone())).contains("no images"));
    assert!(refused(ViewPairs::augmented(x.view(), Some([1, 2, 2]), crops)).contains("no images of"));
}

fn close_to(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < tolerance), "{got:?} for {want:?}");
}

/// Digits without labels: better than the pixels' first components, in order, and the same after a file.
#[test]
fn an_eigenmap_of_digits_is_a_code_in_order() {
    let digits = mercer::data::open("digits", &Default::default()).unwrap();
    let Some(Target::Classes { labels, .. }) = &digits.y else { panic!("digits have classes") };
    let x = digits.x.to_f64().into_owned();
    let rows = ViewRows { image: digits.shape, labels: Some(labels.clone()), ..ViewRows::new(x.clone()) };
    let eigenmap = ViewEigenmap {
        epochs: 15,
        objective: BarlowTwins::default().into(),
        settings: Settings { batch: 128, learning_rate: 3e-3, validation_points: 256, ..Settings::default() },
        ..ViewEigenmap::new("dense(64) relu", 8)
    };
    let code = eigenmap.fit(&rows, None, &FitContext::default()).unwrap();
    let accuracy = &code.training.as_ref().unwrap().accuracy;
    let (first, last) = (accuracy[0][1], accuracy.last().unwrap()[1]);
    assert!(last > 0.6 && last > first + 0.05, "{first} {last}");
    assert!(code.eigenvalues.windows(2).all(|two| two[0] >= two[1]) && code.eigenvalues[0] < 1.0);
    let certificate = &code.certificate;
    assert!(certificate.held_out && certificate.pairs == 179 && certificate.orthonormality < 0.8, "{certificate:?}");
    // The first eigenvalues hold for rows that were not seen.
    let [low, high] = certificate.intervals[0];
    assert!(low - 0.1 < code.eigenvalues[0] && code.eigenvalues[0] < high + 0.1, "{certificate:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mercer");
    code.save(&path).unwrap();
    let Fitted::Transform(again) = Fitted::load(&path, Device::Cpu).unwrap() else { panic!("it gives coordinates") };
    let new = x.slice(s![..50, ..]);
    assert_eq!(again.transform(new).unwrap(), code.transform(new).unwrap());
    assert_eq!((again.certificate(), again.eigenvalues()), (Some(certificate), &code.eigenvalues[..]));
    // Without Rayleigh–Ritz the functions are the objective's, which have no order.
    let own = ViewEigenmap { ritz: false, ..eigenmap }.fit(&rows, None, &FitContext::default()).unwrap();
    assert!(own.origin.method.contains("without") && own.eigenvalues.len() <= 8);
}

/// Without its projector, the code is linear in the units of the trained network: training does not depend on what is kept of it, and one
/// that is not trained has the units of the network alone.
#[test]
fn a_code_without_its_projector_is_made_of_the_networks_units() {
    let digits = mercer::data::open("digits", &Default::default()).unwrap();
    let x = digits.x.to_f64().into_owned();
    let rows = ViewRows { image: digits.shape, ..ViewRows::new(x.clone()) };
    let settings = Settings { batch: 128, validation_points: 256, ..Settings::default() };
    let kept = ViewEigenmap { epochs: 2, settings, ..ViewEigenmap::new("conv(4, 3) bn relu gap dense(12) relu", 8) };
    let dropped = ViewEigenmap { drop_projector: true, k: 20, projector: Some(16), ..kept.clone() };
    let code = dropped.fit(&rows, None, &FitContext::default()).unwrap();
    // Twelve units, less those that are constant or of no positive eigenvalue.
    assert!((4..=12).contains(&code.eigenvalues.len()), "{:?}", code.eigenvalues);
    assert!(code.eigenvalues.windows(2).all(|two| two[0] >= two[1]));
    let training = code.training.as_ref().unwrap();
    assert!(training.architecture.contains("dense(16) bn relu dense(20)"), "{}", training.architecture);
    // The same numbers as a network of these layers alone, where nothing is trained.
    let untrained = |eigenmap: &ViewEigenmap| {
        let eigenmap = ViewEigenmap { epochs: 0, ..eigenmap.clone() };
        eigenmap.fit(&rows, None, &FitContext::default()).unwrap().eigenvalues
    };
    let finish = Some(CodeFinish::UNITS);
    let alone = ViewEigenmap { k: 12, projector: Some(0), drop_projector: false, finish, ..kept.clone() };
    let (whole, first) = (untrained(&alone), untrained(&dropped));
    assert!(whole.iter().zip(&first).all(|(a, b)| (a - b).abs() < 1e-9), "{whole:?} {first:?}");
    let refused =
        |eigenmap: ViewEigenmap| eigenmap.fit(&rows, None, &FitContext::default()).map(drop).unwrap_err().to_string();
    assert!(refused(ViewEigenmap { drop_projector: true, ritz: false, ..kept.clone() }).contains("no order"));
    assert!(refused(ViewEigenmap { finish, ritz: false, ..kept.clone() }).contains("for Rayleigh–Ritz"));
    let odd = Some(CodeFinish { ridge: -1.0, ..CodeFinish::PLAIN });
    assert!(refused(ViewEigenmap { finish: odd, ..kept }).contains("at least 0, got -1"));
}

/// Embeddings under each operator: components, discriminants and pairs against their definitions.
#[test]
fn embeddings_are_ordered_by_what_belongs_together() {
    let mut rng = Rng::new(8);
    let classes: Vec<usize> = (0..600).map(|i| i % 3).collect();
    let centres = normal(3, 6, 9) * 1.5;
    let mut drawn =
        || Array2::from_shape_fn((600, 6), |(i, c)| centres[[classes[i], c]] + (1 + c) as f64 * 0.3 * rng.normal());
    let (x, other) = (drawn(), drawn());
    let fit =
        |together: Together, k: usize| EmbeddingCode::new(k, together).fit(x.view(), &FitContext::default()).unwrap();
    // Components: shares of the variance; their codes are uncorrelated, with these variances.
    let pca = fit(Together::Linear, 6);
    assert!((pca.eigenvalues.iter().sum::<f64>() - 1.0).abs() < 1e-10);
    let z = pca.transform(x.view()).unwrap();
    let c = z.t().dot(&z) / 600.0;
    assert!((c[[0, 0]] - pca.eigenvalues[0]).abs() < 0.05 && c[[0, 1]].abs() < 0.05, "{c}");
    // Discriminants: one less than there are classes; pairs of views that share the class alone have the same operator.
    let classes_code = fit(Together::Classes(classes.clone()), 6);
    assert_eq!((classes_code.eigenvalues.len(), classes_code.notes.len()), (2, 1));
    let pairs = fit(Together::Pairs(other), 6);
    close_to(&pairs.eigenvalues[..2], &classes_code.eigenvalues, 0.08);
    assert!(pairs.eigenvalues[2] < 0.3);
    for code in [&classes_code, &pairs] {
        assert!(code.certificate.residuals[0] < 0.2 && code.certificate.held_out, "{:?}", code.certificate);
    }
    let near = fit(Together::Neighbours(5), 2);
    assert!(near.eigenvalues[0] > 0.7, "{:?}", near.eigenvalues);
    // Two coordinates tell the classes better than two components.
    let accuracy = |code: &FittedCode| {
        let z = code.transform(x.view()).unwrap();
        neighbour_accuracy((z.slice(s![..200, ..2]), &classes[..200]), (z.slice(s![200.., ..2]), &classes[200..]))
    };
    assert!(accuracy(&classes_code) >= accuracy(&pca) && accuracy(&classes_code) > 0.9);
    let refused = |together: Together, k: usize| {
        let code = EmbeddingCode::new(k, together);
        code.fit(x.view(), &FitContext::default()).map(drop).unwrap_err().to_string()
    };
    assert!(refused(Together::Linear, 7).contains("between 1 and 6"));
    assert!(refused(Together::Classes(vec![0]), 2).contains("1 classes"));
    assert!(refused(Together::Pairs(Array2::zeros((2, 6))), 2).contains("2 partners"));
    assert!(refused(Together::Neighbours(300), 2).contains("half of 600"));
}

/// Directions do not see the length of a row; weights are those of the eigenvalues; a ridge moves the order towards the variance that is shared.
#[test]
fn a_finish_says_what_a_code_is_made_of() {
    let (shared, mut rng) = (normal(2000, 2, 1), Rng::new(2));
    // The first column agrees less and varies more than the second.
    let mut view = || {
        Array2::from_shape_fn((2000, 3), |(i, c)| match c {
            0 => 10.0 * (shared[[i, 0]] + 0.5 * rng.normal()),
            1 => 0.1 * (shared[[i, 1]] + 0.1 * rng.normal()),
            _ => rng.normal(),
        })
    };
    let (x, other) = (view(), view());
    let fit = |finish: CodeFinish| {
        let code = EmbeddingCode { k: 2, together: Together::Pairs(other.clone()), finish };
        code.fit(x.view(), &FitContext::default()).unwrap()
    };
    // How much of a coordinate is the first column.
    let along = |code: &FittedCode| {
        let z = code.transform(x.view()).unwrap();
        let (z, c) = (&z.column(0) - z.column(0).mean().unwrap(), &x.column(0) - x.column(0).mean().unwrap());
        (z.dot(&c) / (z.dot(&z) * c.dot(&c)).sqrt()).abs()
    };
    let (plain, ridged) = (fit(CodeFinish::PLAIN), fit(CodeFinish { ridge: 0.1, ..CodeFinish::PLAIN }));
    assert!(along(&plain) < 0.3 && along(&ridged) > 0.9, "{} {}", along(&plain), along(&ridged));
    let certificate = &ridged.certificate;
    assert!(certificate.orthonormality < 0.4 && certificate.residuals[0] < 0.3, "{certificate:?}");
    let units = fit(CodeFinish::UNITS);
    let (z, longer) = (units.transform(x.view()).unwrap(), units.transform((&x * 7.0).view()).unwrap());
    assert!((&z - &longer).iter().all(|d| d.abs() < 1e-9 * z[[0, 0]].abs().max(1.0)));
    let kernel = fit(CodeFinish { weighting: Weighting::Kernel, ..CodeFinish::UNITS }).transform(x.view()).unwrap();
    for (j, mu) in units.eigenvalues.iter().enumerate() {
        let (ratio, want) = (z[[3, j]] / kernel[[3, j]], 1.0 / (1.0 - mu));
        assert!((ratio - want).abs() < 1e-6 * want, "{ratio} {want}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mercer");
    units.save(&path).unwrap();
    let Fitted::Transform(again) = Fitted::load(&path, Device::Cpu).unwrap() else { panic!("it gives coordinates") };
    assert_eq!(again.transform(x.view()).unwrap(), z);
}

/// Pairs of normal numbers with correlation ρ have the eigenvalues ρ, ρ², ρ³, … (Mehler). Of the fourth, a projector with as many hidden units as
/// functions loses more than twice what the usual one loses.
#[test]
fn the_usual_projector_is_no_bottleneck() {
    const RHO: f64 = 0.9;
    let (n, mut rng) = (6000, Rng::new(3));
    let x = normal(n, 1, 4);
    let partners = x.mapv(|x| RHO * x + (1.0 - RHO * RHO).sqrt() * rng.normal());
    let rows = ViewRows { partners: Some(partners), ..ViewRows::new(x) };
    let fitted = |projector: Option<usize>| {
        let eigenmap = ViewEigenmap { epochs: 100, projector, ..ViewEigenmap::new("dense(64) tanh", 4) };
        eigenmap.fit(&rows, None, &FitContext::default()).unwrap()
    };
    let [usual, narrow] = [None, Some(4)].map(fitted);
    let error = |μ: &[f64], j: usize| (μ[j] - RHO.powi(j as i32 + 1)).abs();
    let (found, bottleneck) = (&usual.eigenvalues, &narrow.eigenvalues);
    assert!((0..3).all(|j| error(found, j) < 0.03), "{found:?}");
    assert!(2.0 * error(found, 3) < error(bottleneck, 3), "{found:?} {bottleneck:?}");
    assert!(usual.training.unwrap().architecture.contains("dense(64) bn relu dense(4)"));
}
