//! The quick form of the nightly run: two thousand inputs of each target, the same ones every time.

use mercer::data::{ReadOptions, open};
use mercer_fuzz::{Target, corpus, fuzz, targets};
use std::path::Path;

/// Inputs of each target.
const INPUTS: u64 = 2000;

/// The target `name` on its corpus and on damaged inputs.
#[track_caller]
fn survives(name: &str, inputs: u64) {
    let (scratch, failures) = (tempfile::tempdir().unwrap(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("failures"));
    let all = targets(scratch.path()).unwrap();
    let target: &Target = all.iter().find(|target| target.name == name).expect(name);
    let report = fuzz(target, 1, 0..inputs, [scratch.path(), &failures], |_, _| ());
    assert!(report.failures.is_empty(), "{name}: {:#?}", report.failures);
    assert!(report.accepted > 0 && report.accepted < report.inputs, "{name}: {report:?}");
}

macro_rules! targets {
    ($($(#[$mark:meta])* $name:ident: $inputs:expr;)*) => {
        $(#[test]
        $(#[$mark])*
        fn $name() {
            survives(stringify!($name), $inputs);
        })*
    };
}

targets! {
    npy: INPUTS;
    npz: INPUTS;
    csv: INPUTS;
    table: INPUTS;
    encodings: INPUTS;
    idx: INPUTS;
    cifar: INPUTS;
    parquet: INPUTS;
    samples: INPUTS;
    kernel: INPUTS;
    architecture: INPUTS;
    model: INPUTS;
    checkpoint: INPUTS;
    index: INPUTS;
    classifier: INPUTS;
}

/// Formats that say how long they are: a file that ends earlier is refused, wherever it was cut.
#[test]
fn cut_files_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let inputs = ["npy", "npz", "idx", "csv", "cifar", "parquet"].into_iter().flat_map(corpus);
    let whole = |name: &str| !name.ends_with(".bin") && !name.ends_with("sv") && !name.ends_with(".data");
    for input in inputs.filter(|input| whole(&input.name)) {
        let path = scratch.path().join(&input.name);
        for length in 0..input.bytes.len() {
            std::fs::write(&path, &input.bytes[..length]).unwrap();
            let read = open(path.to_str().unwrap(), &ReadOptions::default());
            assert!(read.is_err(), "{} cut to {length} of {} bytes is accepted", input.name, input.bytes.len());
        }
        std::fs::write(&path, &input.bytes).unwrap();
        open(path.to_str().unwrap(), &ReadOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", input.name));
    }
}
