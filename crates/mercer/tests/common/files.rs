//! Small files of every kind that is read, for the suites of the readers.
#![allow(dead_code, reason = "each suite uses a part")]

use mercer::data::{Dataset, ReadOptions, open};
use ndarray::array;
use ndarray_npy::NpzWriter;
use std::io::Write;
use std::path::PathBuf;

/// A folder that goes away with the test.
pub struct Scratch(pub tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn read(&self, name: &str, bytes: impl AsRef<[u8]>) -> mercer::Result<Dataset> {
        self.read_with(name, bytes, &ReadOptions::default())
    }

    pub fn read_with(&self, name: &str, bytes: impl AsRef<[u8]>, options: &ReadOptions) -> mercer::Result<Dataset> {
        open(self.file(name, bytes).to_str().unwrap(), options)
    }

    /// The file is refused with an error that names it and contains `part`.
    #[track_caller]
    pub fn refuses(&self, name: &str, bytes: impl AsRef<[u8]>, part: &str) {
        self.refuses_with(name, bytes, &ReadOptions::default(), part);
    }

    #[track_caller]
    pub fn refuses_with(&self, name: &str, bytes: impl AsRef<[u8]>, options: &ReadOptions, part: &str) {
        let message = self.read_with(name, bytes, options).expect_err(part).to_string();
        assert!(message.contains(name) && message.contains(part), "{name}, {part}: {message}");
    }
}

pub fn target(t: &str) -> ReadOptions {
    ReadOptions { target: Some(t.into()), ..Default::default() }
}

pub fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// An `.npy` file with this header, whatever it says.
pub fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat()
}

/// An `.npy` file as another program writes it.
pub fn written<A: ndarray_npy::WritableElement, D: ndarray::Dimension>(array: &ndarray::Array<A, D>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ndarray_npy::WriteNpyExt::write_npy(array, &mut bytes).unwrap();
    bytes
}

/// An archive of `X` (2×2), `y` (2) and `other` (3).
pub fn npz(compressed: bool) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let mut writer = if compressed { NpzWriter::new_compressed(&mut bytes) } else { NpzWriter::new(&mut bytes) };
    writer.add_array("X", &array![[1.0f32, 2.0], [3.0, 4.0]]).unwrap();
    writer.add_array("y", &array![7u8, 9]).unwrap();
    writer.add_array("other", &array![1.0, 2.0, 3.0]).unwrap();
    writer.finish().unwrap();
    bytes.into_inner()
}

pub fn idx(dims: &[u32], content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
    bytes.extend(content);
    bytes
}

#[cfg(feature = "parquet")]
pub mod tables {
    use parquet::basic::Compression;
    use parquet::data_type::DataType;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

    pub type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

    /// A file of this schema, with one row group per entry of `groups`.
    pub fn file(schema: &str, compression: Compression, groups: &[&dyn Fn(&mut Group)]) -> Vec<u8> {
        let schema = parquet::schema::parser::parse_message_type(&format!("message t {{ {schema} }}")).unwrap();
        let properties = WriterProperties::builder().set_compression(compression).build();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema.into(), properties.into()).unwrap();
        for fill in groups {
            let mut group = writer.next_row_group().unwrap();
            fill(&mut group);
            group.close().unwrap();
        }
        writer.into_inner().unwrap()
    }

    /// The next column of the group; `present` tells which rows have a value, where some may lack one.
    pub fn column<T: DataType>(group: &mut Group, values: &[T::T], present: Option<&[i16]>) {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, present, None).unwrap();
        column.close().unwrap();
    }
}
