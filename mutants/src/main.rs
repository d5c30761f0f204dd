//! `mercer-mutants ROOT < MUTANTS`: rewrites the files under ROOT so that each of the mutants, a JSON object of numbers and
//! what `cargo mutants --list --json` says of them, can be switched on at run time. Prints the numbers that found their place.
//! `.ci/mutants` calls it, builds once and runs the tests.

mod switch;

use std::collections::BTreeMap;
use std::path::Path;
use switch::{Mutant, with_switches};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args().nth(1).ok_or("usage: mercer-mutants ROOT < MUTANTS")?;
    let mutants: BTreeMap<usize, Mutant> = serde_json::from_reader(std::io::stdin())?;
    let mut files: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in &mutants {
        files.entry(&mutant.file).or_default().push((*number, mutant));
    }
    let mut found = vec![];
    for (file, mutants) in files {
        let path = Path::new(&root).join(file);
        let (text, placed) = with_switches(&std::fs::read_to_string(&path)?, &mutants)?;
        std::fs::write(&path, text)?;
        found.extend(placed);
    }
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}
