//! The binary form of CIFAR-10: records of one label byte and 3×32×32 bytes, channel by channel.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use super::bytes::Source;
use super::dataset::{Dataset, Target, generated_columns};
use super::idx::scaled;
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

const PIXELS: usize = 3 * 32 * 32;
const RECORD: usize = 1 + PIXELS;
const NAMES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Reads one file, or the files `data_batch_*.bin` of a folder one after the other; bytes are scaled to [0, 1].
pub(super) fn read(path: &Path, name: &str, budget: Budget) -> Result<Dataset> {
    let files = if path.is_dir() { batches(path)? } else { vec![path.to_owned()] };
    let (mut x, mut labels) = (Vec::new(), Vec::new());
    for file in &files {
        read_file(file, &mut x, &mut labels, budget)?;
    }
    let x = scaled(labels.len(), PIXELS, x);
    let y = Target::Classes { labels, names: NAMES.map(String::from).to_vec() };
    Ok(Dataset {
        name: name.into(),
        x,
        y: Some(y),
        some_y: None,
        columns: generated_columns(PIXELS),
        shape: Some([3, 32, 32]),
    })
}

/// The files `data_batch_*.bin` of a folder, in the order of their names.
fn batches(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let mut files: Vec<PathBuf> = entries.map_err(|e| Error::io(folder, e))?.iter().map(DirEntry::path).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("data_batch_") && (name.ends_with(".bin") || name.ends_with(".bin.gz"))
    });
    if files.is_empty() {
        return Err(Error::file(folder, "is a folder without CIFAR-10 files (data_batch_*.bin); name a file instead"));
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, x: &mut Vec<u8>, labels: &mut Vec<usize>, budget: Budget) -> Result<()> {
    let mut source = Source::open(path, budget)?;
    let content = source.read_up_to(u64::MAX)?;
    source.require((x.len() + 2 * content.len()) as u64)?;
    fail_if!(content.is_empty(); source.fail("is empty"));
    let (records, rest) = content.as_chunks::<RECORD>();
    fail_if!(!rest.is_empty(); source.fail(format!(
        "is truncated or not CIFAR-10: row {} (counted from 1) has {} of {RECORD} bytes (one label, 3×32×32 pixels)",
        records.len() + 1,
        rest.len()
    )));
    x.reserve_exact(records.len() * PIXELS);
    for (i, [label, pixels @ ..]) in records.iter().enumerate() {
        if usize::from(*label) >= NAMES.len() {
            let row = i + 1;
            let what = format!("row {row} (counted from 1) has the label {label}; CIFAR-10 has the classes 0 to 9");
            return Err(source.fail(what));
        }
        labels.push(usize::from(*label));
        x.extend_from_slice(pixels);
    }
    Ok(())
}
