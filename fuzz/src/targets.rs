//! What is fuzzed: how an input is read, and what must hold of it if it is accepted.

use crate::edit::Model;
use crate::models;
use crate::mutate::mutated;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use mercer::compute::{Device, Tensor};
use mercer::data::{Dataset, MappedArray, Missing, ReadOptions, Scaling, Schema, Table, Target as Labels, open};
use mercer::kernel::{Expression, Kernel};
use mercer::net::{Description, Mode, Network};
use mercer::retrieval::{ExactSearch, Index};
use mercer::rng::Rng;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Reads an input that is in this file: accepted, or refused with a sentence. Panics at a defect.
type Check = fn(&Path) -> Result<(), String>;

/// An input: the name of the file that it is read from, which tells its format, and its bytes.
#[derive(Clone, Debug)]
pub struct Input {
    /// Such as `commas.csv.gz`.
    pub name: String,
    /// The content of the file.
    pub bytes: Vec<u8>,
}

/// Something that reads what others have written.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    pub(crate) seeds: Vec<Input>,
    /// Models that are edited and written again; none where inputs are changed byte by byte only.
    models: Vec<Model>,
    /// Makes well-formed headers that promise anything at all.
    promise: Option<fn(&mut Rng) -> Input>,
    tokens: &'static [&'static str],
    pub(crate) check: Check,
}

impl Target {
    fn new(name: &'static str, tokens: &'static [&'static str], check: Check) -> Target {
        Target { name, seeds: corpus(name), models: vec![], promise: None, tokens, check }
    }

    /// With the files in `folder` as seeds, which are edited too.
    fn of_models(name: &'static str, folder: &Path, check: Check) -> Target {
        let files = files_in(folder);
        let models = files.iter().map(|(path, _)| Model::read(path)).collect();
        let seeds = files.into_iter().map(|(_, input)| input).chain(corpus(name)).collect();
        Target { name, seeds, models, promise: None, tokens: &[], check }
    }

    fn with_promises(self, promise: fn(&mut Rng) -> Input) -> Target {
        Target { promise: Some(promise), ..self }
    }

    /// The next input, made of one of `pool`; `scratch` is a file to write to.
    pub(crate) fn input(&self, rng: &mut Rng, pool: &[Input], scratch: &Path) -> Input {
        // Half of the inputs are near to valid ones; the others explore what was answered in a new way.
        let near = if rng.below(2) == 0 { &self.seeds[..] } else { pool };
        let seed = &near[rng.below(near.len())];
        if !self.models.is_empty() && rng.below(4) > 0 {
            self.models[rng.below(self.models.len())].write_edited(rng, scratch);
            let bytes = std::fs::read(scratch).expect("the file was just written");
            return Input { name: "edited.mercer".into(), bytes };
        }
        if let Some(promise) = self.promise.filter(|_| rng.below(8) == 0) {
            return promise(rng);
        }
        let others: Vec<Vec<u8>> = (0..2).map(|_| pool[rng.below(pool.len())].bytes.clone()).collect();
        // Most changes of a compressed file are found by its own checksum: change what it holds.
        let unpacked = if seed.name.ends_with(".gz") && rng.below(4) > 0 { unpack(&seed.bytes) } else { None };
        let bytes = match unpacked {
            Some(plain) => pack(&mutated(rng, &plain, &others, self.tokens)),
            None => mutated(rng, &seed.bytes, &others, self.tokens),
        };
        Input { name: seed.name.clone(), bytes }
    }
}

pub(crate) fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plain = vec![];
    GzDecoder::new(bytes).take(1 << 20).read_to_end(&mut plain).ok().map(|_| plain)
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
}

/// Up to four extents of any size, and up to 200 bytes.
fn extents(rng: &mut Rng) -> (Vec<u64>, Vec<u8>) {
    let extent = |rng: &mut Rng| match rng.below(3) {
        0 => rng.below(20) as u64,
        1 => u64::from(rng.next_u64() as u32),
        _ => rng.next_u64(),
    };
    ((0..1 + rng.below(4)).map(|_| extent(rng)).collect(), vec![0; rng.below(200)])
}

/// Plain or packed.
fn named(rng: &mut Rng, name: &str, bytes: Vec<u8>) -> Input {
    let packed = rng.below(2) == 0;
    let name = format!("promise.{name}{}", if packed { ".gz" } else { "" });
    Input { name, bytes: if packed { pack(&bytes) } else { bytes } }
}

fn npy_promise(rng: &mut Rng) -> Input {
    let (extents, content) = extents(rng);
    let shape: String = extents.iter().map(|extent| format!("{extent}, ")).collect();
    let (kind, fortran) = (["<f8", "<f4", "|u1", ">i8"][rng.below(4)], ["True", "False"][rng.below(2)]);
    let header = format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': ({shape})}}");
    let length = (header.len() as u16).to_le_bytes();
    named(rng, "npy", [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &content].concat())
}

fn idx_promise(rng: &mut Rng) -> Input {
    let (extents, content) = extents(rng);
    let mut bytes = vec![0, 0, 8, extents.len() as u8];
    bytes.extend(extents.iter().flat_map(|&extent| (extent as u32).to_be_bytes()));
    bytes.extend(content);
    named(rng, "idx", bytes)
}

/// The folder of a target's seeds, and of inputs that once failed.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

fn files_in(folder: &Path) -> Vec<(PathBuf, Input)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    let input = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).expect("a readable file");
        (path, Input { name, bytes })
    };
    paths.into_iter().map(input).collect()
}

/// The corpus of a target: its files; each line of a `words.txt` is one.
pub fn corpus(name: &str) -> Vec<Input> {
    let lines = |input: Input| -> Vec<Input> {
        if input.name != "words.txt" {
            return vec![input];
        }
        let lines = input.bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| Input { name: input.name.clone(), bytes: line.to_vec() }).collect()
    };
    files_in(&folder(name)).into_iter().flat_map(|(_, input)| lines(input)).collect()
}

/// All targets; seeds that follow the present format of models are written to `scratch`.
pub fn targets(scratch: &Path) -> mercer::Result<Vec<Target>> {
    const TABLE: &[&str] =
        &[",", ";", "\n", "\"", "a", "nan", "inf", "NA", "1e999", "\r", "\t", "#", "?", "yes", "2024-02-29", "T12:00"];
    const NPY: &[&str] = &["'shape': ", "(", ")", "True", "'<f8'", "'|u1'", "'>f4'", "{", "}", ", ", "L"];
    let [models, checkpoints, classifiers] = models::write_seeds(scratch)?;
    let mut all = vec![
        Target::new("npy", NPY, data).with_promises(npy_promise),
        Target::new("npz", NPY, data),
        Target::new("csv", TABLE, data),
        Target::new("table", TABLE, table),
        Target::new("encodings", TABLE, encodings),
        Target::new("idx", &[], data).with_promises(idx_promise),
        Target::new("cifar", &[], data),
        Target::new("parquet", &[], data),
        Target::new("samples", NPY, samples).with_promises(npy_promise),
    ];
    all.push(Target::new(
        "kernel",
        &[
            "(",
            ")",
            "*",
            "+",
            ",",
            "=",
            "'",
            "rbf(1)",
            "linear",
            "nngp('",
            "ntk('",
            "dense ",
            "relu ",
            "res(",
            ";",
            "conv(3) ",
            "gap ",
            "median",
            "lengthscale=",
            "depth=",
            "degree=",
            "act=",
            "1e9",
            "-",
        ],
        kernel,
    ));
    all.push(Target::new(
        "architecture",
        &[
            "(",
            ")",
            ";",
            "|",
            ",",
            "=",
            "res(",
            "dense(3) ",
            "conv(2, 3) ",
            "image(1, 4, 4) ",
            "bn ",
            "maxpool(2) ",
            "gap ",
            "flatten ",
            "relu ",
            "sincos ",
            "l2norm ",
            "rff(4) ",
            "radial ",
            "stride=",
            "pad=same",
        ],
        architecture,
    ));
    all.push(Target::of_models("model", &models, models::model));
    all.push(Target::of_models("checkpoint", &checkpoints, models::checkpoint));
    all.push(Target::new("index", &["\"", "{", "}", "[", "]", "F32", "codes"], index));
    let mut classifier = Target::new("classifier", &["\"", "{", "}", "[", "]", "dense(3)"], models::classifier);
    classifier.seeds.extend(files_in(&classifiers).into_iter().map(|(_, input)| input));
    all.push(classifier);
    Ok(all)
}

/// A refusal is one sentence.
pub(crate) fn refused(error: &mercer::Error) -> String {
    let message = error.to_string();
    assert!(!message.trim().is_empty(), "a refusal without a word");
    message
}

/// A number that is the same for the same bytes, to choose options by.
fn choice(path: &Path, choices: usize) -> usize {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.iter().fold(0usize, |sum, b| sum.wrapping_mul(31).wrapping_add(usize::from(*b))) % choices
}

fn data(path: &Path) -> Result<(), String> {
    let target = |t: &str| ReadOptions { target: Some(t.into()), ..Default::default() };
    let options = [ReadOptions::default(), target("-1"), target("a")];
    let set = open(&path.display().to_string(), &options[choice(path, 3)]).map_err(|e| refused(&e))?;
    assert_sound(&set);
    Ok(())
}

/// An index that is opened is read from end to end without a panic; one that is also whole is searched.
fn index(path: &Path) -> Result<(), String> {
    let index = Index::open(path).map_err(|e| refused(&e))?;
    (0..=index.n().min(100)).for_each(|i| drop((index.label(i), index.name(i))));
    index.verify().map_err(|e| refused(&e))?;
    let codes = index.codes();
    let search = ExactSearch::new(codes, index.about.metric).map_err(|e| refused(&e))?;
    search.nearest(codes.slice(ndarray::s![..1, ..]), 3).map(drop).map_err(|e| refused(&e))
}

/// A table that is accepted has a schema, unless that says why not, and the schema makes features of its own table.
fn table(path: &Path) -> Result<(), String> {
    let target = |t: &str| ReadOptions { target: Some(t.into()), ..Default::default() };
    let second =
        ReadOptions { categories: vec!["2".into()], drop: vec!["1".into()], rows: Some(1..4), ..Default::default() };
    let options = [ReadOptions::default(), target("-1"), target("a"), second];
    let source = path.display().to_string();
    let table =
        Table::open(&source, &options[choice(path, 4)]).and_then(|t| t.with_task(None)).map_err(|e| refused(&e))?;
    assert!(table.n() > 0 && !table.columns.is_empty() && table.columns.len() == table.x.d(), "an empty table");
    let scaling = [Scaling::None, Scaling::Standard, Scaling::MinMax][choice(path, 3)];
    let schema = Schema::fit(&table, Missing::Impute, scaling).map_err(|e| refused(&e))?;
    let (set, notes) = schema.encode(table).map_err(|e| refused(&e))?;
    assert!(notes.is_empty(), "an own level is not known: {notes:?}");
    assert_eq!(set.columns, schema.features());
    assert_sound(&set);
    Ok(())
}

/// A table of text holds the same in UTF-8 and in UTF-16 of both orders, or is refused in all of them.
fn encodings(path: &Path) -> Result<(), String> {
    let text = text(path);
    let text = text.trim_start_matches('\u{feff}');
    if text.contains('\0') {
        return Err("no text".into());
    }
    let read = |bytes: Vec<u8>| -> Result<String, String> {
        let copy = path.with_file_name("encoded.csv");
        std::fs::write(&copy, bytes).expect("the scratch folder can be written to");
        let table = Table::open(&copy.display().to_string(), &ReadOptions::default()).map_err(|e| refused(&e))?;
        Ok(format!("{:?} {:?} {:?}", table.columns, table.named, table.x))
    };
    let marked = || std::iter::once(0xfeff).chain(text.encode_utf16());
    let plain = read(text.as_bytes().to_vec());
    for other in
        [read(marked().flat_map(u16::to_le_bytes).collect()), read(marked().flat_map(u16::to_be_bytes).collect())]
    {
        assert_eq!(plain.is_ok(), other.is_ok(), "{plain:?} {other:?}");
        assert!(plain.is_err() || plain == other, "{plain:?} {other:?}");
    }
    plain.map(drop)
}

/// What every accepted set must be.
fn assert_sound(set: &Dataset) {
    assert!(set.n() > 0 && set.d() > 0, "an empty set");
    let x = set.x.to_f64();
    assert!(x.is_standard_layout() && x.iter().all(|v| v.is_finite()), "a value is not finite");
    assert_eq!(set.columns.len(), set.d(), "names of columns");
    assert!(set.shape.is_none_or(|[c, h, w]| c * h * w == set.d()), "the shape of images");
    match &set.y {
        None => {}
        Some(Labels::Values(values)) => {
            assert!(values.len() == set.n() && values.iter().all(|v| v.is_finite()), "a target is not finite")
        }
        Some(Labels::Classes { labels, names }) => {
            assert!(labels.len() == set.n() && labels.iter().all(|&l| l < names.len()), "labels and their names")
        }
    }
}

fn samples(path: &Path) -> Result<(), String> {
    let array = MappedArray::open(path).map_err(|e| refused(&e))?;
    let len: usize = array.dims().iter().product();
    let mut all = vec![0.0; len];
    array.read(0, &mut all);
    array.read_in_parallel(0, &mut all);
    Ok(())
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// An expression that is accepted can be shown and read again, and has values.
fn kernel(path: &Path) -> Result<(), String> {
    let expression = Expression::parse(&text(path)).map_err(|e| refused(&e))?;
    let x = ndarray::array![[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [0.5, -1.0, 2.0], [-3.0, 1.0, 0.25]];
    let kernel = expression.resolve(x.view(), 0).map_err(|e| refused(&e))?;
    let shown = kernel.to_string();
    let again = Kernel::parse(&shown).unwrap_or_else(|e| panic!("\"{shown}\" is not read again: {e}"));
    assert_eq!(again.to_string(), shown, "shown twice");
    if !kernel.sees_images() {
        let [p, q] = [0, 3].map(|i| x.row(i).to_vec());
        let (here, there) = (kernel.value(&p, &q), kernel.value(&q, &p));
        assert!(
            here == there || (here - there).abs() <= 1e-9 * here.abs() || here.is_nan(),
            "not symmetric: {here}, {there}"
        );
    }
    Ok(())
}

/// Parameters of networks that are tried out.
const FEW: usize = 100_000;

/// An architecture that is accepted can be shown and read again, and has a network with outputs.
fn architecture(path: &Path) -> Result<(), String> {
    let description = Description::parse(&text(path)).map_err(|e| refused(&e))?;
    let shown = description.to_string();
    let again = Description::parse(&shown).unwrap_or_else(|e| panic!("\"{shown}\" is not read again: {e}"));
    assert_eq!(again.to_string(), shown, "shown twice");
    let inputs = match description.image {
        Some(image) => image.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent)).filter(|&n| n <= 4096),
        None => Some(48),
    };
    let Some(inputs) = inputs else { return Ok(()) };
    let network = Network::new(&description, inputs, 2).map_err(|e| refused(&e))?;
    if network.parameters() > FEW || network.bytes_per_point() > 1 << 20 {
        return Ok(());
    }
    let theta = network.init(Device::Cpu, &Rng::new(0)).map_err(|e| refused(&e))?;
    let values: Vec<f32> = (0..2 * inputs).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::from_host(Device::Cpu, &[2, inputs], &values).map_err(|e| refused(&e))?;
    let mut workspace = network.workspace(Device::Cpu).map_err(|e| refused(&e))?;
    let y = network.forward(&theta, &x, Mode::Train, &mut workspace).map_err(|e| refused(&e))?;
    assert_eq!(y.len(), 2 * 2 * network.outputs(), "the shape of the outputs");
    Ok(())
}
