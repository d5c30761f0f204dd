//! Every reader: what it accepts, and each way in which a file can be wrong.

#[path = "common/files.rs"]
mod files;

use files::{Scratch, gzip, idx, npy, npz, target, written};
use mercer::data::{ReadOptions, Target, open, write_npy};
use ndarray::{Array1, Array2, Array3, Array4, ArrayD, IxDyn, ShapeBuilder, array};
use std::io::Write;

fn key(k: &str) -> ReadOptions {
    ReadOptions { key: Some(k.into()), ..Default::default() }
}

fn header(h: bool) -> ReadOptions {
    ReadOptions { header: Some(h), ..Default::default() }
}

fn npy_of(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), elements)
}

#[test]
fn npy_reads_every_type_as_another_writer_wrote_it() {
    let s = Scratch::new();
    let expected = array![[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]];
    let signed = expected.mapv(|v| v - 3.0);
    for (name, bytes, want) in [
        ("f8.npy", written(&expected), &expected),
        ("f4.npy", written(&expected.mapv(|v| v as f32)), &expected),
        ("u1.npy", written(&expected.mapv(|v| v as u8)), &expected),
        ("u2.npy", written(&expected.mapv(|v| v as u16)), &expected),
        ("u4.npy", written(&expected.mapv(|v| v as u32)), &expected),
        ("u8.npy", written(&expected.mapv(|v| v as u64)), &expected),
        ("i1.npy", written(&signed.mapv(|v| v as i8)), &signed),
        ("i2.npy", written(&signed.mapv(|v| v as i16)), &signed),
        ("i4.npy", written(&signed.mapv(|v| v as i32)), &signed),
        ("i8.npy", written(&signed.mapv(|v| v as i64)), &signed),
        ("b1.npy", written(&expected.mapv(|v| v > 2.0)), &expected.mapv(|v| f64::from(u8::from(v > 2.0)))),
        ("zipped.npy.gz", gzip(written(&expected)), &expected),
    ] {
        assert_eq!(s.read(name, bytes).unwrap().x.to_f64(), want, "{name}");
    }
    let big: Vec<u8> = [1.5f64, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    assert_eq!(s.read("be.npy", npy_of(">f8", "(2, 1)", &big)).unwrap().x.to_f64(), array![[1.5], [-2.0]]);
}

#[test]
fn npy_reads_any_order_and_one_to_four_dimensions() {
    let s = Scratch::new();
    let line = s.read("line.npy", written(&Array1::from(vec![1.0, 2.0, 3.0]))).unwrap();
    assert_eq!((line.x.into_f64(), line.shape), (array![[1.0], [2.0], [3.0]], None));

    let rows = Array2::from_shape_fn((3, 4), |(i, j)| (10 * i + j) as f64);
    let mut fortran = Array2::zeros((3, 4).f());
    fortran.assign(&rows);
    let bytes = written(&fortran);
    assert!(String::from_utf8_lossy(&bytes).contains("'fortran_order': True"), "the file tests what it should");
    let set = s.read("fortran.npy", bytes).unwrap();
    assert_eq!(set.x.to_f64(), rows);
    assert!(set.x.to_f64().is_standard_layout());
    assert_eq!(set.columns, ["x0", "x1", "x2", "x3"]);

    let images = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as f64);
    let flat = images.to_shape((2, 12)).unwrap();
    let set = s.read("images.npy", written(&images)).unwrap();
    assert_eq!((set.x.into_f64(), set.shape), (flat.to_owned(), Some([1, 3, 4])));
    let mut fortran = Array3::zeros((2, 3, 4).f());
    fortran.assign(&images);
    assert_eq!(s.read("images-f.npy", written(&fortran)).unwrap().x.to_f64(), flat);

    let colour = Array4::<f32>::ones((2, 3, 5, 4));
    assert_eq!(s.read("colour.npy", written(&colour)).unwrap().shape, Some([3, 5, 4]));
    let not_channels = Array4::<f32>::ones((2, 7, 5, 4));
    assert_eq!(s.read("other.npy", written(&not_channels)).unwrap().shape, None);
}

#[test]
fn npy_target_is_a_column() {
    let s = Scratch::new();
    let bytes = written(&array![[1.0, 2.0], [3.0, 4.0]]);
    let set = s.read_with("t.npy", &bytes, &target("-1")).unwrap();
    assert_eq!((set.x.into_f64(), set.y), (array![[1.0], [3.0]], Some(Target::Values(vec![2.0, 4.0]))));
    s.refuses_with("t.npy", &bytes, &target("3"), "no column 3");
    s.refuses_with("t.npy", &bytes, &key("X"), "option `key`");
    s.refuses_with("t.npy", &bytes, &header(true), "option `header`");
}

#[test]
fn npy_refuses_what_is_broken() {
    let s = Scratch::new();
    let good = written(&array![[1.0, 2.0], [3.0, 4.0]]);
    let zipped = gzip(&good);
    let nan: Vec<u8> = [1.0, 2.0, 3.0, f64::NAN].iter().flat_map(|v: &f64| v.to_le_bytes()).collect();
    let infinite: Vec<u8> = [1.0f32, f32::NEG_INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
    let fortran = "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 2), }";
    for (name, bytes, part) in [
        ("a.npy", vec![], "is empty"),
        ("b.npy", b"PK\x03\x04 and more".to_vec(), "magic bytes"),
        ("c.npy", b"\x93NUM".to_vec(), "magic bytes"),
        ("d.npy", b"\x93NUMPY\x09\x00\x10\x00".to_vec(), "version 9"),
        ("e.npy", b"\x93NUMPY\x01\x00\x10".to_vec(), "truncated within its header"),
        ("f.npy", good[..60].to_vec(), "truncated within its header"),
        ("g.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}".to_vec(), "header of 4294967295 bytes"),
        ("h.npy", good[..good.len() - 1].to_vec(), "is truncated: the header states 32 bytes"),
        ("i.npy", [&good[..], b"x"].concat(), "is too long"),
        ("j.npy", npy_of("<f8", "(2, 2)", &nan), "row 2, column 2 (counted from 1) is NaN"),
        ("k.npy", npy(fortran, &[&nan[8..], &nan[..8]].concat()), "row 1, column 2 (counted from 1) is NaN"),
        ("l.npy", npy_of("<f4", "(2,)", &infinite), "row 2, column 1 (counted from 1) is -inf"),
        ("m.npy", npy_of("<f2", "(2,)", b"abcd"), "type `<f2`"),
        ("n.npy", npy_of("<c16", "(1,)", &[0; 16]), "type `<c16`"),
        ("o.npy", npy_of("|O", "(1,)", &[0; 16]), "type `|O`"),
        ("p.npy", npy_of("é8", "(1,)", &[0; 16]), "type `é8`"),
        ("q.npy", npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", &[0; 8]), "records"),
        ("r.npy", npy_of("<f8", "()", &[0; 8]), "0 dimensions"),
        ("s.npy", npy_of("<f8", "(1, 1, 1, 1, 1)", &[0; 8]), "5 dimensions"),
        ("t.npy", npy_of("<f8", "(0, 3)", &[]), "is empty: its shape is [0, 3]"),
        ("u.npy", npy_of("<f8", "(1000000, 1000000)", &[0; 8]), "states 8000000000000 bytes"),
        ("v.npy", npy_of("<f8", "(9999999999999999, 9999999999999999)", &[0; 8]), "impossible shape"),
        ("w.npy", npy_of("<f8", "(4, 4294967296, 4294967296)", &[0; 8]), "impossible shape"),
        ("x.npy", npy_of("<f8", "(2, -1)", &[0; 8]), "tuple of whole numbers"),
        ("y.npy", npy_of("<f8", "(2305843009213693952, 1)", &[0; 8]), "impossible shape"),
        ("z.npy", npy("{'descr': '<f8', 'shape': (1,), }", &[0; 8]), "without `fortran_order`"),
        ("A.npy", npy("{'descr': '<f8', 'fortran_order': 0, 'shape': (1,), }", &[0; 8]), "neither True nor False"),
        ("B.npy", npy("{'fortran_order': False, 'shape': (1,), }", &[0; 8]), "without `descr`"),
        ("C.npy.gz", gzip(npy_of("<f8", "(1000000, 1000000)", &[0; 8])), "needs 7.3 TiB but the memory budget is"),
        ("D.npy.gz", gzip([&good[..], b"x"].concat()), "is too long"),
        ("E.npy.gz", zipped[..zipped.len() - 9].to_vec(), "truncated or corrupt"),
        ("F.npy.gz", good.clone(), "not gzipped"),
    ] {
        s.refuses(name, bytes, part);
    }
}

#[test]
fn npy_is_written_as_another_reader_reads_it() {
    let s = Scratch::new();
    let path = s.0.path().join("out.npy");
    let x = Array2::from_shape_fn((300, 70), |(i, j)| i as f64 / (j + 1) as f64);
    let ones = [vec![2, 3, 4], vec![1], vec![2, 1, 1, 1]].map(|shape| ArrayD::ones(IxDyn(&shape)));
    for array in [x.clone().into_dyn()].into_iter().chain(ones) {
        write_npy(&path, array.view()).unwrap();
        assert_eq!(ndarray_npy::read_npy::<_, ArrayD<f64>>(&path).unwrap(), array);
        assert_eq!(std::fs::metadata(&path).unwrap().len() % 64, (8 * array.len() % 64) as u64);
    }
    write_npy(&path, x.t()).unwrap();
    assert_eq!(ndarray_npy::read_npy::<_, Array2<f64>>(&path).unwrap(), x.t());
    let line = Array1::from_iter((0..5).map(|v| v as f32));
    write_npy(&path, line.view()).unwrap();
    assert_eq!(ndarray_npy::read_npy::<_, Array1<f32>>(&path).unwrap(), line);
    let labels = array![1i64, -2];
    write_npy(&path, labels.view()).unwrap();
    assert_eq!(ndarray_npy::read_npy::<_, Array1<i64>>(&path).unwrap(), labels);
    assert_eq!(std::fs::read_dir(s.0.path()).unwrap().count(), 1, "no temporary file is left");
    assert!(write_npy(s.0.path().join("no/folder.npy"), line.view()).is_err());
}

#[test]
fn npz_finds_its_arrays() {
    let s = Scratch::new();
    for compressed in [false, true] {
        let set = s.read("a.npz", npz(compressed)).unwrap();
        assert_eq!((set.x.into_f64(), set.name), (array![[1.0, 2.0], [3.0, 4.0]], "a".to_string()));
        assert_eq!(set.y, Some(Target::Values(vec![7.0, 9.0])));
    }
    let set = s.read_with("a.npz", npz(true), &key("other")).unwrap();
    assert_eq!((set.x.into_f64(), set.y), (array![[1.0], [2.0], [3.0]], None));
    let column = s.read_with("a.npz", npz(true), &target("1")).unwrap();
    assert_eq!((column.x.into_f64(), column.y), (array![[2.0], [4.0]], Some(Target::Values(vec![1.0, 3.0]))));
    let named = ReadOptions { target: Some("y".into()), key: Some("X".into()), ..Default::default() };
    assert_eq!(s.read_with("a.npz", npz(true), &named).unwrap().y, Some(Target::Values(vec![7.0, 9.0])));
}

#[test]
fn npz_refuses_what_is_broken() {
    let s = Scratch::new();
    let archive = |arrays: &[(&str, Vec<u8>)]| {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, bytes) in arrays {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    let nan: Vec<u8> = [1.0, f64::NAN].iter().flat_map(|v: &f64| v.to_le_bytes()).collect();
    s.refuses("a.npz", [], "is empty");
    s.refuses("b.npz", b"\x93NUMPY, not a zip", "not an .npz archive");
    s.refuses("c.npz", &npz(true)[..200], "truncated");
    s.refuses_with("d.npz", npz(true), &key("oter"), "did you mean 'other'?");
    s.refuses_with("e.npz", npz(true), &key("zzzz"), "(known: ");
    s.refuses_with("f.npz", npz(true), &target("othr"), "did you mean 'other'?");
    s.refuses_with("g.npz", npz(true), &target("other"), "target `other` has shape [3], but `X` has 2 rows");
    s.refuses("h.npz", archive(&[("readme.txt", b"hello".to_vec())]), "holds no .npy array");
    s.refuses("i.npz", archive(&[("a.npy", npy_of("<f8", "(1,)", &[0; 8])), ("b.npy", vec![])]), "several arrays");
    s.refuses("j.npz", archive(&[("X.npy", npy_of("<f8", "(2,)", &nan))]), "array `X`: row 2, column 1");
    s.refuses("k.npz", archive(&[("X.npy", npy_of("<f8", "(1000000, 1000000)", &nan))]), "is truncated");
    s.refuses("l.npz", archive(&[("X.npy", b"hello hello".to_vec())]), "magic bytes");
}

const HOUSES: &str = "rooms,age,price\n3,10.5,100\n4,2,150\n2,-1e1,80\n";

#[test]
fn csv_headers_are_found() {
    let s = Scratch::new();
    let set = s.read("houses.csv", HOUSES).unwrap();
    assert_eq!(set.columns, ["rooms", "age", "price"]);
    assert_eq!(set.x.to_f64(), array![[3.0, 10.5, 100.0], [4.0, 2.0, 150.0], [2.0, -10.0, 80.0]]);
    assert_eq!((set.y, set.name), (None, "houses".to_string()));
    assert_eq!(s.read("bare.csv", "1,2\n3,4\n").unwrap().columns, ["x0", "x1"]);
    assert_eq!(s.read("one.csv", "1,2").unwrap().x.to_f64(), array![[1.0, 2.0]]);
    let numeric_names = s.read_with("n.csv", "1,2\n3,4\n", &header(true)).unwrap();
    assert_eq!(
        (numeric_names.columns, numeric_names.x.into_f64()),
        (vec!["1".to_string(), "2".into()], array![[3.0, 4.0]])
    );
    let blank_name = s.read("blank.csv", ",a\n0,5\n").unwrap();
    assert_eq!(blank_name.columns, ["x0", "a"]);
}

#[test]
fn csv_separators_quotes_spaces_and_line_ends() {
    let s = Scratch::new();
    let expected = array![[1.0, 2.5], [3.0, 4.0]];
    for (name, text) in [
        ("comma.csv", "1,2.5\n3,4\n"),
        ("semicolon.csv", "a;b\n1;2.5\n3;4"),
        ("tab.tsv", "1\t2.5\n3\t4\n"),
        ("windows.csv", "a,b\r\n1,2.5\r\n3,4\r\n"),
        ("spaces.txt", " 1 , 2.5\n\n 3,\t4 \n"),
        ("quotes.data", "\"1\",\"2.5\"\n\"3\",4\n"),
        ("mark.csv", "\u{feff}a,b\n1,2.5\n3,4\n"),
        ("mark2.csv", "\u{feff}1,2.5\n3,4\n"),
    ] {
        assert_eq!(s.read(name, text).unwrap().x.to_f64(), expected, "{name}");
    }
    assert_eq!(s.read("packed.csv.gz", gzip("1,2.5\n3,4\n")).unwrap().x.to_f64(), expected);
    let twice = [gzip("1,2.5\n"), gzip("3,4\n")].concat();
    assert_eq!(s.read("members.csv.gz", twice).unwrap().x.to_f64(), expected);
}

#[test]
fn csv_targets_are_values_or_classes() {
    let s = Scratch::new();
    for name in ["price", "3", "-1"] {
        let set = s.read_with("houses.csv", HOUSES, &target(name)).unwrap();
        assert_eq!(set.y, Some(Target::Values(vec![100.0, 150.0, 80.0])));
        assert_eq!(set.columns, ["rooms", "age"]);
        assert_eq!((set.n(), set.d()), (3, 2));
    }
    let flowers = "5.1,setosa\n4.9,virginica\n5.0, setosa\n6.1,versicolor\n";
    let set = s.read_with("iris.csv", flowers, &target("-1")).unwrap();
    let names = ["setosa", "versicolor", "virginica"].map(String::from).to_vec();
    assert_eq!(set.y, Some(Target::Classes { labels: vec![0, 2, 0, 1], names }));
    let named = s.read_with("iris.csv", "kind,x\nb,1\na,2\n", &target("kind")).unwrap();
    assert_eq!(named.y, Some(Target::Classes { labels: vec![1, 0], names: vec!["a".into(), "b".into()] }));
    assert_eq!(named.columns, ["x"]);
}

#[test]
fn csv_refuses_what_is_broken() {
    let s = Scratch::new();
    s.refuses("a.csv", "", "is empty");
    s.refuses("b.csv", "\n\n", "is empty");
    s.refuses("c.csv", "a,b\n", "header but no rows");
    s.refuses_with("c2.csv", "1,2\n", &header(true), "header but no rows");
    s.refuses("d.csv", "1,2\n3\n", "row 2 (counted from 1) has 1 columns, where 2 are expected");
    s.refuses("e.csv", "a,b\n1,2\n3,4,5\n", "row 2 (counted from 1) has 3 columns");
    s.refuses("f.csv", "a,b\n1,2\n3,x y\n", "row 2, column 2 (counted from 1), `b`, is `x y`, not a number");
    s.refuses("g.csv", "1,2\n3,NaN\n", "row 2, column 2 (counted from 1) is NaN");
    s.refuses("h.csv", "1,2\n-inf,2\n", "row 2, column 1 (counted from 1) is -inf");
    s.refuses("i.csv", "1,2\n1e999,2\n", "row 2, column 1 (counted from 1) is inf");
    s.refuses("j.csv", "1,2\n, 3\n", "row 2, column 1 (counted from 1) is empty");
    s.refuses("k.csv", "1,a\n2,b\n", "row 1, column 2 (counted from 1) is `a`, not a number; if");
    s.refuses_with("l.csv", HOUSES, &target("prise"), "did you mean 'price'?");
    s.refuses_with("m.csv", HOUSES, &target("4"), "no column 4");
    s.refuses_with("n.csv", "1\n2\n", &target("1"), "leaves no feature");
    s.refuses_with("o.csv", "1,2\n1,b\n", &target("2"), "is `b`, text, but the target of row 1 is a number");
    s.refuses_with("p.csv", "1,b\n1,2\n", &target("2"), "is `2`, a number, but the target of row 1 is text");
    s.refuses_with("q.csv", "1,b\n1,\n", &target("2"), "row 2, column 2 (counted from 1) is empty");
    s.refuses_with("r.csv", "1,2\n1,nan\n", &target("2"), "row 2, column 2 (counted from 1) is NaN");
    s.refuses("s.csv", b"1,2\n3,\xff\xfe\n", "row 2, column 2");
    s.refuses_with("t.csv", HOUSES, &key("X"), "option `key`");
    let long = format!("1,{}\n", "z".repeat(100_000));
    let message = s.read("u.csv", long).unwrap_err().to_string();
    assert!(message.len() < 400, "a long cell is cut: {}", message.len());
    let packed = gzip(HOUSES.repeat(50));
    s.refuses("v.csv.gz", &packed[..packed.len() - 10], "truncated or corrupt");
}

#[test]
fn idx_reads_images_and_the_labels_beside_them() {
    let s = Scratch::new();
    let images = idx(&[2, 1, 3], &[0, 51, 255, 255, 102, 0]);
    let alone = s.read("train-images-idx3-ubyte", &images).unwrap();
    assert_eq!(alone.x.to_f64(), array![[0.0, 0.2, 1.0], [1.0, 0.4, 0.0]]);
    assert_eq!((alone.shape, alone.y), (Some([1, 1, 3]), None));
    s.file("train-labels-idx1-ubyte.gz", gzip(idx(&[2], &[3, 1])));
    let names: Vec<String> = (0..4).map(|c| c.to_string()).collect();
    for (name, bytes) in [("train-images-idx3-ubyte", images.clone()), ("train-images-idx3-ubyte.gz", gzip(&images))] {
        let y = s.read(name, bytes).unwrap().y;
        assert_eq!(y, Some(Target::Classes { labels: vec![3, 1], names: names.clone() }));
    }
    assert_eq!(s.read("flat.idx", idx(&[3, 2], &[0; 6])).unwrap().shape, None);
    assert_eq!(s.read("colour.idx", idx(&[1, 3, 2, 1], &[0; 6])).unwrap().shape, Some([3, 2, 1]));
}

#[test]
fn idx_refuses_what_is_broken() {
    let s = Scratch::new();
    s.refuses("a.idx", [], "is empty");
    s.refuses("b.idx", b"\x93NUMPY", "not an IDX file");
    s.refuses("c.idx", [0, 0, 8], "not an IDX file");
    s.refuses("d.idx", [0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0], "type 0x0d");
    s.refuses("e.idx", [0, 0, 8, 9], "9 dimensions");
    s.refuses("f.idx", [0, 0, 8, 3, 0, 0], "truncated within its header");
    s.refuses("g.idx", idx(&[2, 2, 2], &[0; 7]), "is truncated: elements of shape [2, 2, 2] take 8 bytes, but only 7");
    s.refuses("h.idx", idx(&[2, 2, 2], &[0; 9]), "is too long");
    s.refuses("i.idx", idx(&[0, 2, 2], &[]), "is empty");
    s.refuses("j.idx", idx(&[u32::MAX, u32::MAX, 2], &[0; 9]), "impossible shape");
    s.refuses("k.idx", idx(&[10_000, 10_000, 10_000], &[0; 9]), "is truncated");
    s.refuses("l.idx", idx(&[2], &[1, 2]), "holds labels only");
    s.refuses_with("m.idx", idx(&[2, 1], &[1, 2]), &target("1"), "option `target`");
    s.file("n-labels-idx1-ubyte", idx(&[3], &[1, 2, 3]));
    let path = s.file("n-images-idx3-ubyte", idx(&[2, 1, 1], &[1, 2]));
    let message = open(path.to_str().unwrap(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(message.contains("n-labels-idx1-ubyte") && message.contains("2 images"), "{message}");
    let packed = gzip(idx(&[40, 20, 20], &[7; 16_000]));
    s.refuses("o-ubyte.gz", &packed[..packed.len() - 12], "truncated or corrupt");
}

fn cifar(labels: &[u8]) -> Vec<u8> {
    labels.iter().flat_map(|&l| std::iter::once(l).chain(std::iter::repeat_n(51 * l.min(5), 3072))).collect()
}

#[test]
fn cifar_reads_a_file_and_a_folder() {
    let s = Scratch::new();
    let set = s.read("test_batch.bin", cifar(&[1, 5])).unwrap();
    assert_eq!((set.n(), set.d(), set.shape), (2, 3072, Some([3, 32, 32])));
    assert_eq!((set.x.rows().get(0, 0), set.x.rows().get(1, 3071)), (0.2, 1.0));
    s.file("data_batch_2.bin", cifar(&[2]));
    s.file("data_batch_1.bin", cifar(&[9, 0]));
    s.file("readme.html", "not data");
    let folder = open(s.0.path().to_str().unwrap(), &ReadOptions::default()).unwrap();
    let Some(Target::Classes { labels, names }) = folder.y else { panic!("no classes") };
    assert_eq!((labels, names[9].as_str()), (vec![9, 0, 2], "truck"));
}

#[test]
fn cifar_refuses_what_is_broken() {
    let s = Scratch::new();
    s.refuses("a.bin", [], "is empty");
    s.refuses("b.bin", &cifar(&[1, 2])[..6000], "row 2 (counted from 1) has 2927 of 3073 bytes");
    s.refuses("c.bin", cifar(&[1, 10]), "row 2 (counted from 1) has the label 10");
    s.refuses_with("d.bin", cifar(&[1]), &target("1"), "option `target`");
    let empty = Scratch::new();
    let message = open(empty.0.path().to_str().unwrap(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(message.contains("without CIFAR-10 files"), "{message}");
}

#[test]
fn sources_that_are_not_there_are_named() {
    let message = |source: &str| open(source, &ReadOptions::default()).unwrap_err().to_string();
    for (source, part) in [
        ("no/such/file.csv", "no/such/file.csv"),
        ("nowhere.npy", "nowhere.npy"),
        ("no/such/thing", "no/such/thing"),
        ("digts", "did you mean 'digits'?"),
        ("fasion-mnist", "did you mean 'fashion-mnist'?"),
        ("somethingelse", "known: digits, circles"),
        ("moons(n)", "write its parameters by name, such as n="),
        ("moons(m=5)", "did you mean 'n'?"),
        ("moons(n=many)", "whole number, not 'many'"),
        ("", "data set ''"),
    ] {
        assert!(message(source).contains(part), "{}", message(source));
    }
    let s = Scratch::new();
    let path = s.file("data.xyz", "1,2");
    assert!(message(path.to_str().unwrap()).contains("has an unknown extension"));
    assert!(open("digits", &target("1")).unwrap_err().to_string().contains("has no options"));
    assert!(open("moons", &key("X")).unwrap_err().to_string().contains("has no options"));
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_without_the_feature_says_so() {
    Scratch::new().refuses("a.parquet", "PAR1", "lacks the feature `parquet`");
}

#[test]
fn columns_of_one_name_are_numbered() {
    let s = Scratch::new();
    let text = "a,b,a,a,\n1,2,3,4,5\n";
    let columns = |target: Option<&str>| {
        let options = ReadOptions { target: target.map(String::from), ..Default::default() };
        s.read_with("equal.csv", text, &options).map(|set| set.columns.join(" "))
    };
    assert_eq!(columns(None).unwrap(), "a b a.2 a.3 x4");
    // The target is left out first, so that a table with it and one without it have the same names.
    assert_eq!(columns(Some("b")).unwrap(), "a a.2 a.3 x4");
    assert_eq!(columns(Some("1")).unwrap(), "b a a.2 x4");
    assert!(columns(Some("a")).unwrap_err().to_string().contains("columns 1 and 3"));
    // A column without a name is called by its place, which another column may be called too.
    assert_eq!(s.read("place.csv", "x1,\n1,2\n").unwrap().columns, ["x1", "x1.2"]);
}
