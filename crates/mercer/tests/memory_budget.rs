//! What does not fit into the memory budget is refused before it is allocated, always in the same words.

mod common;

use common::*;
use flate2::{Compression, write::GzEncoder};
use mercer::apply::{
    Falkon, FeatureLogistic, FeatureMap, FeatureRidge, Fit, GaussianProcessClassifier, Logistic, NadarayaWatson,
    RecursiveFeatureMachine, Ridge, RidgeSolver,
};
use mercer::classifier::Classifier;
use mercer::data::{Dataset, MappedArray, ReadOptions, Target, open, write_npy};
use mercer::kernel::Expression;
use mercer::operator::{Budget, FunctionSamples, LowRankOperator, OnPoints};
use mercer::spectrum::neural::{Neural, NeuralEf, Ritz};
use mercer::spectrum::{Fourier, Positive, Sampling};
use mercer::{Error, Result};
use std::io::Write;
use std::path::Path;

#[track_caller]
fn no_room<T>(result: Result<T>, words: &str) {
    let error = result.err().expect("there is no room for it");
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(words) && text.contains("but the memory budget is"), "{text}");
}

#[test]
fn random_features_and_networks_are_counted_before_they_are_drawn() {
    let x = normal(50, 3, 1);
    let many = 100_000_000_000;
    let refuses = |text: &str, method: &dyn Method, words: &str| {
        no_room(Spectrum::fit(method, &Problem::new(&on(&kernel(text), x.view()), 2), None), words);
    };
    for sampling in [Sampling::Plain, Sampling::Orthogonal, Sampling::QuasiMonteCarlo] {
        for ritz in [false, true] {
            refuses("rbf(1)", &Fourier { features: many, sampling, ritz }, "100000000000 random features");
        }
        refuses("expdot(2)", &Positive { features: many, sampling, exact_norm: false }, "100000000000 random features");
    }
    refuses("rbf(1)", &Fourier { features: usize::MAX - 1, sampling: Sampling::Plain, ritz: true }, "random features");
    let wide = "dense(1048576) relu dense(1048576) relu dense(1)";
    let mut neural = Neural::new(NeuralEf::Joint);
    neural.architecture = Some(wide.into());
    refuses("rbf(1)", &neural, "parameters of 2 networks");
    let mut ritz = Neural::new(Ritz);
    ritz.architecture = Some(wide.into());
    refuses("rbf(1)", &ritz, "parameters of 1 networks");
    let y = Target::Classes { labels: vec![0; 50], names: vec!["a".into()] };
    let data = Dataset::new("points", x.clone(), Some(y)).unwrap();
    no_room(Classifier::new(wide, &data, Device::Cpu, 0), "parameters of 1 networks");
}

/// Networks that any machine has room for, and the budget of the fit has not: those that are given, those by default, and the last layer that is solved.
#[test]
fn networks_keep_to_the_budget_of_the_fit() {
    let x = normal(200, 3, 1);
    let context = FitContext { budget: Budget::of(4 << 20), ..FitContext::default() };
    let classes = Target::Classes { labels: vec![0; 200], names: vec!["a".into()] };
    let data = Dataset::new("points", x.clone(), Some(classes)).unwrap();
    no_room(Classifier::within("dense(200000) relu dense(1)", &data, &context), "parameters of 1 networks");
    let operator = context.kernel_operator(&kernel("rbf(1)"), x.view()).unwrap();
    let problem = Problem { operator: &operator, k: 20, context };
    no_room(Spectrum::fit(&Neural::new(NeuralEf::Joint), &problem, None), "by neuralef");
    let mut ritz = Neural::new(Ritz);
    ritz.architecture = Some("rff(4096) dense(1)".into());
    no_room(Spectrum::fit(&ritz, &problem, None), "by ritz");
    let f = normal(4, 400, 2).into_shape_with_order((2, 400, 2)).unwrap();
    let samples = LowRankOperator::of_samples(&f.view().into(), false).unwrap();
    let points = normal(400, 3, 1);
    let two_outputs = OnPoints::new(&samples, points.view()).unwrap();
    ritz.architecture = Some("rff(400000) dense(1)".into());
    let problem = Problem { operator: &two_outputs, k: 2, context };
    no_room(Spectrum::fit(&ritz, &problem, None), "parameters of 1 networks");
}

/// The columns of classes count, whatever the estimator.
#[test]
fn classes_are_counted_before_they_are_encoded() {
    let x = normal(400, 2, 2);
    let names = (0..200).map(|class| class.to_string()).collect();
    let y = Target::Classes { labels: (0..400).map(|i| i % 200).collect(), names };
    let context = FitContext { budget: Budget::of(1 << 20), ..FitContext::default() };
    let rbf = kernel("rbf(1)");
    let map = FeatureMap::Random { kernel: rbf.clone(), features: 4, sampling: Sampling::Plain };
    let words = "the target of 400 points in 200 classes";
    no_room(Ridge::new(rbf.clone()).fit(x.view(), &y, &context), words);
    no_room(FeatureRidge::new(map.clone()).fit(x.view(), &y, &context), words);
    no_room(FeatureLogistic::new(map).fit(x.view(), &y, &context), words);
    no_room(Logistic::default().fit(x.view(), &y, &context), words);
    no_room(Falkon::new(rbf.clone(), 4).fit(x.view(), &y, &context), words);
    no_room(NadarayaWatson::new(rbf).fit(x.view(), &y, &context), words);
    no_room(RecursiveFeatureMachine::new(Expression::parse("rbf(1)").unwrap()).fit(x.view(), &y, &context), words);
    no_room(GaussianProcessClassifier::new(Expression::parse("rbf(1)").unwrap()).fit(x.view(), &y, &context), words);
}

/// What is in use counts with what is asked for.
#[test]
fn a_refusal_says_all_that_is_needed() {
    let x = normal(400, 2, 2);
    let names = (0..100).map(|class| class.to_string()).collect();
    let y = Target::Classes { labels: (0..400).map(|i| i % 100).collect(), names };
    let context = FitContext { budget: Budget::of(3 << 20), ..FitContext::default() };
    let ridge = Ridge { solver: RidgeSolver::Direct, ..Ridge::new(kernel("rbf(1)")) };
    let refused = ridge.fit(x.view(), &y, &context).err().expect("it does not fit");
    let Error::Memory { needed, budget, .. } = refused else { panic!("{refused}") };
    // Four matrices `[n, n]`, and six arrays `[n, m]`.
    assert_eq!((needed, budget), (8 * (4 * 400 * 400 + 6 * 400 * 100), 3 << 20));
}

fn gzipped(path: &Path, head: &[u8], piece: &[u8], times: usize) {
    let mut file = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
    file.write_all(head).unwrap();
    (0..times).for_each(|_| file.write_all(piece).unwrap());
    file.finish().unwrap();
}

/// Small files that unpack to 80 MB, read with room for 10: refused, all of them, and read where there is room.
#[test]
fn readers_keep_to_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut array = Vec::new();
    {
        let path = at("one.npy");
        write_npy(&path, Array2::<f64>::zeros((1, 100)).view()).unwrap();
        array.extend(std::fs::read(&path).unwrap());
    }
    let header = String::from_utf8_lossy(&array[10..128]).replace("(1, 100), }", "(100000, 100), }");
    let header = [&array[..10], &header.as_bytes()[..117], b"\n"].concat();
    let zeros = vec![0u8; 1 << 20];
    gzipped(&at("a.npy.gz"), &header, &zeros[..800_000], 100);
    gzipped(&at("a.csv.gz"), b"a,b\n", &b"1,2\n".repeat(1000), 2500);
    gzipped(&at("line.csv.gz"), b"a,b\n", &b"1,".repeat(1 << 19), 80);
    let dims: Vec<u8> = [80u32, 1000, 1000].iter().flat_map(|d| d.to_be_bytes()).collect();
    gzipped(&at("a-idx3-ubyte.gz"), &[&[0, 0, 8, 3][..], &dims].concat(), &zeros[..1_000_000], 80);
    gzipped(&at("a.bin.gz"), &[], &zeros[..3073 * 300], 87);
    let read = |name: &str, memory: u64| {
        let options = ReadOptions { memory: Some(Budget::of(memory)), ..ReadOptions::default() };
        open(at(name).to_str().unwrap(), &options)
    };
    for name in ["a.npy.gz", "a.csv.gz", "a-idx3-ubyte.gz", "a.bin.gz"] {
        assert!(std::fs::metadata(at(name)).unwrap().len() < 1 << 20);
        no_room(read(name, 10_000_000), name);
    }
    says(read("line.csv.gz", 10_000_000), &["larger than the memory budget"]);
    assert_eq!(read("a.npy.gz", 200_000_000).unwrap().n(), 100_000);
    assert_eq!(read("a.csv.gz", 200_000_000).unwrap().n(), 2_500_000);
    assert_eq!(read("a-idx3-ubyte.gz", 200_000_000).unwrap().n(), 80);
    assert_eq!(read("a.bin.gz", 300_000_000).unwrap().n(), 26_100);
    let generated = ReadOptions { memory: Some(Budget::of(10_000_000)), ..ReadOptions::default() };
    for name in ["moons", "circles", "swiss-roll", "uniform"] {
        no_room(open(&format!("{name}(n=1000000000000)"), &generated), name);
        assert_eq!(open(&format!("{name}(n=1000)"), &generated).unwrap().n(), 1000);
    }
}

/// Samples in a file are read in strips that fit: the numbers are those of one strip.
#[test]
fn function_samples_keep_to_the_budget() {
    let (_folder, path) = scratch("f.npy");
    let f = Array3::from_shape_fn((200, 300, 2), |(s, n, c)| ((s * n + 7 * c) as f64).sin());
    write_npy(&path, f.view()).unwrap();
    let file = FunctionSamples::in_file(MappedArray::open(&path).unwrap()).unwrap();
    let with = |bytes: u64| FitContext { budget: Budget::of(bytes), ..FitContext::default() };
    for by_output in [false, true] {
        let (little, much) = (with(50_000), with(1 << 30));
        let [few, all] = [&little, &much].map(|context| context.sample_operator(&file, by_output).unwrap());
        let v = normal(few.n(), 3, 2);
        assert!(worst(&few.apply(v.view()).unwrap(), &all.apply(v.view()).unwrap()) < 1e-11);
        assert!(worst(&few.smaller_gram(), &all.smaller_gram()) < 1e-11);
        no_room(with(10_000).sample_operator(&file, by_output), "one of 200 functions at 300 points");
        no_room(with(1_000_000).sample_operator(&f.view().into(), by_output), "200 functions at 300 points");
        assert!(with(2_000_000).sample_operator(&f.view().into(), by_output).is_ok());
    }
}
