//! IDX, the format of MNIST: two zero bytes, a type, the number of dimensions, the dimensions, then the bytes.

use std::path::{Path, PathBuf};

use ndarray::Array2;

use super::bytes::Source;
use super::dataset::{Dataset, Target, generated_columns};
use super::matrix::Matrix;
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

/// Reads images, with values scaled to [0, 1], and their labels where the folder has a file of labels.
pub(super) fn read(path: &Path, name: &str, budget: Budget) -> Result<Dataset> {
    let (dims, pixels) = read_bytes(path, budget)?;
    if dims.len() == 1 {
        return Err(Error::file(path, "holds labels only; open the file of images, and the labels are read with it"));
    }
    let (n, d) = (dims[0], pixels.len() / dims[0]);
    let y = labels_beside(path).map(|labels| read_labels(&labels, n, budget)).transpose()?;
    let shape = match dims[..] {
        [_, h, w] => Some([1, h, w]),
        [_, c, h, w] => Some([c, h, w]),
        _ => None,
    };
    let x = scaled(n, d, pixels);
    Ok(Dataset { name: name.into(), x, y, some_y: None, columns: generated_columns(d), shape })
}

/// `[n, d]` bytes as numbers in [0, 1].
pub(super) fn scaled(n: usize, d: usize, pixels: Vec<u8>) -> Matrix {
    let values = Array2::from_shape_vec((n, d), pixels).expect("counted while reading");
    Matrix::U8 { values, divisor: 255.0 }
}

/// `train-images-idx3-ubyte.gz` to `train-labels-idx1-ubyte.gz`, if it exists, gzipped or not.
fn labels_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let labels = name.contains("images").then(|| name.replace("images", "labels").replace("idx3", "idx1"))?;
    let plain = labels.strip_suffix(".gz").unwrap_or(&labels);
    let files = [&labels, plain, &format!("{plain}.gz")].map(|name| path.with_file_name(name));
    files.into_iter().find(|file| file.is_file())
}

fn read_labels(path: &Path, n: usize, budget: Budget) -> Result<Target> {
    let (dims, labels) = read_bytes(path, budget)?;
    fail_if!(dims != [n]; Error::file(path, format!("has the shape {dims:?}, but there are {n} images to label")));
    let classes = labels.iter().max().map_or(0, |&m| usize::from(m) + 1);
    let labels = labels.into_iter().map(usize::from).collect();
    Ok(Target::Classes { labels, names: (0..classes).map(|c| c.to_string()).collect() })
}

/// The dimensions and the bytes.
fn read_bytes(path: &Path, budget: Budget) -> Result<(Vec<usize>, Vec<u8>)> {
    let mut source = Source::open(path, budget)?;
    let dims = read_dimensions(&mut source)?;
    let count = dims.iter().try_fold(1u64, |p, &k| p.checked_mul(k as u64));
    let count = count.filter(|&c| c < u64::MAX && usize::try_from(c).is_ok());
    let count = count.ok_or_else(|| source.fail(format!("promises an impossible shape, {dims:?}")))?;
    fail_if!(count == 0; source.fail(format!("is empty: its shape is {dims:?}")));
    // A file that is too short is told so below.
    if source.len.is_none_or(|len| len > count) {
        source.require(count)?;
    }
    let content = source.read_up_to(count + 1)?;
    match content.len() as u64 {
        got if got < count => Err(source
            .fail(format!("is truncated: elements of shape {dims:?} take {count} bytes, but only {got} are there"))),
        got if got > count => {
            Err(source.fail(format!("is too long: bytes follow after the {count} bytes of elements of shape {dims:?}")))
        }
        _ => Ok((dims, content)),
    }
}

fn read_dimensions(source: &mut Source) -> Result<Vec<usize>> {
    let magic = source.read_up_to(4)?;
    let wrong = match magic[..] {
        [0, 0, 0x08, ndim @ 1..=4] => {
            let sizes = source.read_header(4 * u64::from(ndim))?;
            return Ok(sizes.as_chunks().0.iter().map(|&size| u32::from_be_bytes(size) as usize).collect());
        }
        [] => "is empty".into(),
        [0, 0, 0x08, ndim] => format!("has {ndim} dimensions; 1 to 4 can be read"),
        [0, 0, kind @ (0x09 | 0x0b..=0x0e), _] => {
            format!("has elements of IDX type {kind:#04x}; only bytes (0x08) can be read")
        }
        _ => format!("is not an IDX file: it starts with {magic:02x?}, not 00 00 08"),
    };
    Err(source.fail(wrong))
}
