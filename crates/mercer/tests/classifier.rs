//! Classifiers: what they reach, that a run can be interrupted and continued, that files hold them.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::{of_classes, says, scratch};
use mercer::FitContext;
use mercer::Interrupt;
use mercer::classifier::{Classifier, Quality, Settings, Stop, Trained, Unnamed, train};
use mercer::compute::{Device, Rule};
use mercer::data::{self, Dataset, Target};
use ndarray::Array2;
use neural::Stopper;

/// 1437 digits to learn and 360 to be asked about.
fn digits() -> (Dataset, Dataset) {
    data::digits().with_classes().unwrap().split(0.2, 0).unwrap()
}

fn few(data: &Dataset, n: usize) -> Dataset {
    data.select(&(0..n).collect::<Vec<_>>())
}

fn bits(trained: &Trained) -> Vec<u32> {
    let theta = &trained.classifier.parameters;
    let numbers = [theta.trained.to_host().unwrap(), theta.constants.to_host().unwrap()].concat();
    numbers.iter().map(|v| v.to_bits()).collect()
}

/// [`train`] without interruption.
fn trained(start: Classifier, fit: &Dataset, test: Option<&Dataset>, settings: &Settings) -> mercer::Result<Trained> {
    train(start, fit, test, settings, &FitContext::default(), &|_| ())
}

#[test]
fn networks_learn_the_digits() {
    let (fit, held_out) = digits();
    // PyTorch reaches 96.7 to 97.2 % on these rows with this network and recipe.
    let start = Classifier::new("lenet", &fit, Device::Cpu, 0).unwrap();
    let settings = Settings { epochs: 20, batch: 32, learning_rate: 0.05, ..Settings::default() };
    let lenet = trained(start, &fit, Some(&held_out), &settings).unwrap();
    let last = lenet.history.last().unwrap();
    let test = last.test.unwrap().classes().unwrap();
    assert!(test.accuracy > 0.96, "{test:?}");
    assert!(test.nll < 0.25 && test.ece < 0.05 && last.accuracy.unwrap() > 0.99, "{last:?}");
    assert_eq!((lenet.history.len(), lenet.stop, lenet.steps), (20, Stop::Budget, 20 * 45));

    let net = "conv(8, 3) bn relu res(conv(8, 3) bn relu conv(8, 3) bn) relu \
               res(conv(16, 3, stride=2) bn relu conv(16, 3) bn; conv(16, 1, stride=2) bn) relu gap flatten dense(10)";
    let start = Classifier::new(net, &fit, Device::Cpu, 0).unwrap();
    let settings = Settings { epochs: 12, batch: 64, ..Settings::default() };
    let test = trained(start, &fit, Some(&held_out), &settings).unwrap().history.last().unwrap().test.unwrap();
    let test = test.classes().unwrap();
    assert!(test.accuracy > 0.96, "a residual network: {test:?}");
}

/// The outputs of a linearised network are linear in its displacement, with the derivative of the network's own.
#[test]
fn a_linearised_network_is_linear_and_tangent() {
    let (fit, _) = digits();
    let rows = fit.x.rows().slice(0..5);
    let start = || Classifier::new("dense(12) tanh ln dense(10)", &fit, Device::Cpu, 3).unwrap();
    let (network, mut linear) = (start(), start().linearised().unwrap());
    let count = network.network.parameters();
    let mut rng = mercer::rng::Rng::new(1);
    let direction: Vec<f32> = (0..count).map(|_| rng.normal() as f32).collect();
    let mut at = |step: f32| {
        let moved: Vec<f32> = direction.iter().map(|v| step * v).collect();
        linear.displacement.as_mut().unwrap().copy_from_host(&moved).unwrap();
        linear.logits(rows).unwrap()
    };
    let (zero, one, three) = (at(0.0), at(1.0), at(3.0));
    assert_eq!(zero, network.logits(rows).unwrap());
    let step = 1e-3;
    let mut nearby = start();
    let theta = nearby.parameters.trained.to_host().unwrap();
    let moved: Vec<f32> = theta.iter().zip(&direction).map(|(t, v)| t + step * v).collect();
    nearby.parameters.trained.copy_from_host(&moved).unwrap();
    let slope = (nearby.logits(rows).unwrap() - &zero) / step;
    let scale = one.iter().fold(1f32, |m, v| m.max(v.abs()));
    for ((z, a), (b, s)) in zero.iter().zip(&one).zip(three.iter().zip(&slope)) {
        assert!((b - z - 3.0 * (a - z)).abs() < 1e-4 * scale, "{z} {a} {b}");
        assert!((a - z - s).abs() < 2e-2 * scale, "{a} {z} {s}");
    }
}

#[test]
fn a_linearised_network_learns_is_saved_and_continues() {
    let (fit, held_out) = digits();
    let start = || Classifier::new("dense(64) relu dense(10)", &fit, Device::Cpu, 0).unwrap().linearised().unwrap();
    let (_folder, file) = scratch("checkpoint");
    let settings = Settings { epochs: 4, batch: 64, learning_rate: 0.02, ..Settings::default() };
    let whole = trained(start(), &fit, Some(&held_out), &settings).unwrap();
    let accuracy = whole.history.last().unwrap().test.unwrap().classes().unwrap().accuracy;
    assert!(accuracy > 0.9, "{accuracy}");
    let moved = |t: &Trained| t.classifier.displacement.as_ref().unwrap().to_host().unwrap();
    // The weights around which it is linear do not move.
    assert_eq!(whole.classifier.parameters.trained.to_host().unwrap(), start().parameters.trained.to_host().unwrap());
    let kept = Settings { checkpoint: Some(file), ..settings.clone() };
    let flag = Interrupt::new();
    let epoch = |_: &mercer::classifier::Epoch| {
        flag.request();
    };
    let context = FitContext { interrupt: Some(&flag), ..Default::default() };
    let part = train(start(), &fit, Some(&held_out), &kept, &context, &epoch).unwrap();
    assert_eq!(part.stop, Stop::Interrupted);
    let again = trained(start(), &fit, Some(&held_out), &Settings { resume: true, ..kept }).unwrap();
    assert_eq!(moved(&again), moved(&whole));
    let (_folder, file) = scratch("linear.safetensors");
    whole.classifier.save(&file).unwrap();
    let loaded = Classifier::load(&file, Device::Cpu, None).unwrap();
    assert_eq!(
        loaded.logits(held_out.x.to_f64().view()).unwrap(),
        whole.classifier.logits(held_out.x.to_f64().view()).unwrap()
    );
    let normed = Classifier::new("dense(8) bn relu dense(10)", &fit, Device::Cpu, 0).unwrap();
    says(normed.linearised().map(|_| ()), &["bn"]);
}

#[test]
fn an_interrupted_run_continues_with_the_same_bits() {
    let (fit, held_out) = digits();
    let (fit, held_out) = (few(&fit, 100), few(&held_out, 50));
    let net = "conv(4, 3) bn relu res(conv(4, 3) bn) relu maxpool(2) flatten dense(10)";
    let folder = tempfile::tempdir().unwrap();
    for (name, rule) in [("sgd", Rule::Sgd { momentum: 0.9, weight_decay: 1e-3 }), ("adam", Rule::ADAM)] {
        let checkpoint = folder.path().join(name);
        let start = || Classifier::new(net, &fit, Device::Cpu, 3).unwrap();
        let settings =
            Settings { epochs: 3, batch: 32, rule, learning_rate: 0.01, augment: true, ..Settings::default() };
        let whole = trained(start(), &fit, Some(&held_out), &settings).unwrap();
        // Interrupted after every step: at the next one the flag is up again.
        let settings = Settings { checkpoint: Some(checkpoint.clone()), resume: true, ..settings };
        let mut steps = Vec::new();
        let last = loop {
            let flag = Interrupt::new();
            let epoch = |_: &mercer::classifier::Epoch| {
                flag.request();
            };
            let context = FitContext { progress: &Stopper(&flag), interrupt: Some(&flag), ..FitContext::default() };
            let part = train(start(), &fit, Some(&held_out), &settings, &context, &epoch).unwrap();
            steps.push(part.steps);
            if part.stop == Stop::Budget {
                break part;
            }
        };
        assert!(steps.len() >= 3, "{steps:?}");
        assert_eq!(bits(&last), bits(&whole), "{name}");
        let told = |t: &Trained| t.history.iter().map(|e| (e.epoch, e.loss, e.accuracy, e.test)).collect::<Vec<_>>();
        assert_eq!(told(&last), told(&whole));
        // Another run does not continue this one.
        let other = Settings { seed: 1, ..settings };
        says(trained(start(), &fit, None, &other), &["checkpoint of another run"]);
    }
}

#[test]
fn a_flag_raised_within_an_epoch_saves_the_step() {
    let (fit, _) = digits();
    let fit = few(&fit, 64);
    let folder = tempfile::tempdir().unwrap();
    let start = || Classifier::new("dense(8) bn relu dense(10)", &fit, Device::Cpu, 3).unwrap();
    let settings = Settings { epochs: 4, batch: 16, learning_rate: 0.05, ..Settings::default() };
    let whole = trained(start(), &fit, None, &settings).unwrap();
    let settings =
        Settings { checkpoint: Some(folder.path().join("state")), resume: true, checkpoint_seconds: 0.0, ..settings };
    // Raised from the start: nothing is done, and the state of step 0 is saved.
    let flag = Interrupt::new();
    flag.request();
    let context = FitContext { interrupt: Some(&flag), ..FitContext::default() };
    assert_eq!(train(start(), &fit, None, &settings, &context, &|_| ()).unwrap().steps, 0);
    // A thread raises it while steps are made; wherever it lands, what follows is the same.
    let part = std::thread::scope(|scope| {
        let flag = Interrupt::new();
        let flag: &'static Interrupt = Box::leak(Box::new(flag));
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            flag.request();
        });
        let context = FitContext { interrupt: Some(flag), ..FitContext::default() };
        train(start(), &fit, None, &settings, &context, &|_| ()).unwrap()
    });
    assert!(part.steps <= 16);
    let rest = trained(start(), &fit, None, &settings).unwrap();
    assert_eq!(bits(&rest), bits(&whole));
}

#[test]
fn files_hold_classifiers() {
    let (fit, held_out) = digits();
    let (fit, held_out) = (few(&fit, 200), few(&held_out, 40));
    let start = Classifier::new("conv(4, 3) bn relu gap dense(10)", &fit, Device::Cpu, 5).unwrap();
    let settings = Settings { epochs: 1, batch: 50, ..Settings::default() };
    let trained = trained(start, &fit, None, &settings).unwrap().classifier;
    let (_folder, path) = scratch("model.safetensors");
    trained.save(&path).unwrap();
    let back = Classifier::load(&path, Device::Cpu, None).unwrap();
    assert_eq!(back.logits(held_out.x.to_f64().view()).unwrap(), trained.logits(held_out.x.to_f64().view()).unwrap());
    assert_eq!((&back.classes, &back.standardizer), (&trained.classes, &trained.standardizer));
    let refused = |unnamed, part| says(Classifier::load(&path, Device::Cpu, unnamed), &[part]);
    // Numbers of another network, truncated files, files without names.
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    refused(None, "truncated");
    std::fs::write(&path, b"no").unwrap();
    refused(None, "not safetensors");
    let mut anonymous = whole.clone();
    let at = whole.windows(8).position(|w| w == b"\"mercer\"").unwrap();
    anonymous[at..at + 8].copy_from_slice(b"\"mercex\"");
    std::fs::write(&path, &anonymous).unwrap();
    refused(None, "does not name its network");
    let standard = &trained.standardizer;
    let unnamed = |net| Some(Unnamed { mean: &standard.mean, spread: &standard.spread, ..Unnamed::new(net, &fit) });
    refused(unnamed("lenet"), "conv1.weight");
    let again = Classifier::load(&path, Device::Cpu, unnamed("conv(4, 3) bn relu gap dense(10)")).unwrap();
    assert_eq!(again.logits(held_out.x.to_f64().view()).unwrap(), trained.logits(held_out.x.to_f64().view()).unwrap());
    assert!(again.foreign && !trained.foreign);
    // A header whose length is the two bytes that a pickle starts with.
    let length = u64::from_le_bytes(anonymous[..8].try_into().unwrap()) as usize;
    let longer = [0x280, 0x380, 0x480, 0x580].into_iter().find(|longer| *longer >= length).expect("a small network");
    let (header, rest) = (&anonymous[8..8 + length], &anonymous[8 + length..]);
    let padded = [&(longer as u64).to_le_bytes()[..], header, &vec![b' '; longer - length], rest].concat();
    assert!(padded.starts_with(&[0x80]));
    std::fs::write(&path, &padded).unwrap();
    assert!(Classifier::load(&path, Device::Cpu, unnamed("conv(4, 3) bn relu gap dense(10)")).is_ok());
    // One that mercer wrote keeps its scaling.
    std::fs::write(&path, &whole).unwrap();
    refused(unnamed("conv(4, 3) bn relu gap dense(10)"), "its own scaling");
    for start in [&b"PK\x03\x04 zip"[..], b"\x80\x02 pickle"] {
        std::fs::write(&path, start).unwrap();
        refused(None, "save_file(model.state_dict(), \"net.safetensors\")");
    }
}

/// What a network of another program puts out for a row is its own affair: not of the other rows, nor of their mean and spread.
#[test]
fn a_foreign_network_sees_a_row_as_it_is() {
    let (fit, _) = digits();
    let start = Classifier::new("dense(6) tanh dense(10)", &fit, Device::Cpu, 5).unwrap();
    let (_folder, path) = scratch("net.safetensors");
    start.save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|w| w == b"\"mercer\"").unwrap();
    std::fs::write(&path, [&bytes[..at], b"\"mercex\"", &bytes[at + 8..]].concat()).unwrap();
    let x = fit.x.to_f64();
    let direct = |rows: ndarray::ArrayView2<f64>, mean: f64, spread: f64| {
        let seen: Vec<f32> = rows.iter().map(|v| ((v - mean) / spread) as f32).collect();
        let seen = mercer::compute::Tensor::from_host(Device::Cpu, &[rows.nrows(), 64], &seen).unwrap();
        let mut workspace = start.network.workspace(Device::Cpu).unwrap();
        let mode = mercer::net::Mode::Eval;
        start.network.forward(&start.parameters, &seen, mode, &mut workspace).unwrap().to_host().unwrap()
    };
    for (mean, spread) in [(0.0, 1.0), (4.0, 6.5)] {
        let few = few(&fit, 20);
        let given = if mean == 0.0 { (vec![], vec![]) } else { (vec![mean], vec![spread]) };
        let net = "dense(6) tanh dense(10)";
        let unnamed = Unnamed { mean: &given.0, spread: &given.1, ..Unnamed::new(net, &few) };
        let loaded = Classifier::load(&path, Device::Cpu, Some(unnamed)).unwrap();
        let alone = loaded.logits(x.slice(ndarray::s![..1, ..])).unwrap();
        let among = loaded.logits(x.slice(ndarray::s![..20, ..])).unwrap();
        assert_eq!(alone.row(0), among.row(0));
        assert_eq!(alone.into_raw_vec_and_offset().0, direct(x.slice(ndarray::s![..1, ..]), mean, spread));
    }
    let wrong = Unnamed { mean: &[1.0, 2.0], ..Unnamed::new("dense(6) tanh dense(10)", &fit) };
    says(Classifier::load(&path, Device::Cpu, Some(wrong)), &["one for each of the 1 channels"]);
    let wrong = Unnamed { spread: &[0.0], ..Unnamed::new("dense(6) tanh dense(10)", &fit) };
    says(Classifier::load(&path, Device::Cpu, Some(wrong)), &["above 0"]);
}

#[test]
fn what_cannot_be_trained_is_said_in_a_sentence() {
    let (fit, _) = digits();
    for (net, part) in [
        ("lenett", "did you mean 'lenet'"),
        ("conv(4, 3) gap dense(3)", "10 classes"),
        ("conv(4, 9, pad=valid) gap dense(10)", "does not fit into an image of 8×8"),
        ("maxpool(9) gap dense(10)", "larger than the image"),
    ] {
        says(Classifier::new(net, &fit, Device::Cpu, 0), &[part]);
    }
    let start = || Classifier::new("dense(10)", &fit, Device::Cpu, 0).unwrap();
    for (settings, part) in [
        (Settings { batch: 0, ..Settings::default() }, "at least one row"),
        (Settings { learning_rate: f64::NAN, ..Settings::default() }, "above 0"),
        (Settings { learning_rate: 1e30, epochs: 2, ..Settings::default() }, "diverged in epoch 1"),
    ] {
        says(trained(start(), &fit, None, &settings), &[part]);
    }
    let other = of_classes(fit.x.clone().into_f64(), vec![0; fit.n()], vec!["cat".into()]);
    says(start().score(&other), &["`cat` is not one of those"]);
}

/// `y = 300 + 50 sin(2a) + 20 b` of columns of different units: what least squares leaves, and a constant.
#[test]
fn networks_learn_numbers() {
    let mut rng = mercer::rng::Rng::new(4);
    let rows: Vec<[f64; 2]> = (0..500).map(|_| [rng.uniform() * 3.0, 1e4 * rng.uniform()]).collect();
    let y: Vec<f64> = rows.iter().map(|[a, b]| 300.0 + 50.0 * (2.0 * a).sin() + 0.002 * b).collect();
    let x = ndarray::Array2::from(rows);
    let all = Dataset::new("waves", x, Some(Target::Values(y))).unwrap();
    let (fit, held_out) = all.split(0.2, 0).unwrap();
    let (fit, held_out) = (fit.with_numbers().unwrap(), held_out.with_numbers().unwrap());
    let start = || Classifier::new("dense(32) tanh dense(1)", &fit, Device::Cpu, 0).unwrap();
    let settings = Settings { epochs: 150, batch: 32, rule: Rule::ADAM, learning_rate: 1e-2, ..Settings::default() };
    let run = trained(start(), &fit, Some(&held_out), &settings).unwrap();
    let errors = |quality: &Quality| match quality {
        Quality::Numbers(errors) => *errors,
        Quality::Classes(_) => panic!("{quality:?}"),
    };
    // The numbers have a standard deviation of 33; what the network misses is less than a tenth of that.
    let last = run.history.last().unwrap();
    assert!(errors(&last.test.unwrap()).rmse < 3.0 && last.accuracy.is_none(), "{last:?}");
    // The loss that is reported is the squared error in units of the variance: that of the untrained network, seen once.
    let frozen = Settings { epochs: 1, learning_rate: 1e-20, ..settings.clone() };
    let first = trained(start(), &fit, Some(&fit), &frozen).unwrap().history[0].clone();
    let rmse = errors(&first.test.unwrap()).rmse / run.classifier.number.unwrap().spread;
    assert!((first.loss - rmse * rmse).abs() < 1e-4 * first.loss, "{first:?} {rmse}");
    // The file keeps what its output means.
    let (_folder, path) = scratch("waves.safetensors");
    run.classifier.save(&path).unwrap();
    let back = Classifier::load(&path, Device::Cpu, None).unwrap();
    assert_eq!(
        back.predict(held_out.x.to_f64().view()).unwrap(),
        run.classifier.predict(held_out.x.to_f64().view()).unwrap()
    );
    says(Classifier::new("dense(2)", &fit, Device::Cpu, 0), &["one number is to be predicted", "dense(1)"]);
    let (digits, _) = digits();
    says(back.score(&of_classes(fit.x.clone().into_f64(), vec![0; fit.n()], vec!["0".into()])), &["predicts a number"]);
    says(
        trained(
            Classifier::new("dense(4) dropout dense(10)", &digits, Device::Cpu, 0).unwrap(),
            &digits,
            None,
            &settings,
        ),
        &["dropout"],
    );
}

/// JSON has no infinity: a header with one is not written, and numbers that would make one are refused.
#[test]
fn numbers_too_large_to_compute_with_are_refused_and_never_written() {
    let x = Array2::from_shape_fn((6, 2), |(i, j)| (i + j) as f64);
    let of = |x: &Array2<f64>, y: Vec<f64>| {
        Dataset::new("points", x.clone(), Some(Target::Values(y))).unwrap().with_numbers()
    };
    let usual = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let large: Vec<f64> = usual.iter().enumerate().map(|(i, y)| if i == 4 { -1e200 } else { *y }).collect();
    says(of(&x, large), &["the target of row 5", "-1e200", "too large to compute with"]);
    says(of(&(&x * 1e160), usual.clone()), &["too large to compute with"]);
    says(of(&x, usual.iter().map(|y| y * 1e-165).collect()), &["the targets are", "multiply them"]);
    let mut network = Classifier::new("dense(1)", &of(&x, usual).unwrap(), Device::Cpu, 0).unwrap();
    let (_folder, path) = scratch("n.safetensors");
    for (mean, spread) in [(f64::INFINITY, 1.0), (0.0, f64::NAN)] {
        network.number = Some(mercer::classifier::Number { mean, spread });
        says(network.save(&path), &["is not written", "not finite"]);
        assert!(!path.exists());
    }
}
