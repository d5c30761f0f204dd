//! What does not fit into the memory budget is refused before it is allocated, always in the same words.

mod common;

use common::*;
use flate2::{Compression, write::GzEncoder};
use mercer::classifier::{Classifier, Labelled};
use mercer::data::{Dataset, MappedArray, ReadOptions, Target, open, write_npy};
use mercer::operator::{Budget, FunctionSamples};
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
        refuses("expdot(2)", &Positive { features: many, sampling }, "100000000000 random features");
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
    let data = Labelled::of(&Dataset::new("points", x.clone(), Some(y)).unwrap()).unwrap();
    no_room(Classifier::new(wide, &data, Device::Cpu, 0), "parameters of 1 networks");
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
    says(read("line.csv.gz", 10_000_000), &["longer than the memory budget"]);
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
