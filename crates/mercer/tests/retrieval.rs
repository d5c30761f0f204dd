//! Indexes in files: what is written is read, and what was changed is refused.

use mercer::data::Target;
use mercer::model::stated_checksum;
use mercer::retrieval::{About, ExactSearch, Index, Items, Kept, Metric, ModelFile, Shortlist, Source, recall};
use mercer::rng::Rng;
use ndarray::{Array2, ArrayView1, s};
use std::path::PathBuf;

fn codes(n: usize, k: usize) -> Array2<f32> {
    let mut rng = Rng::new(7);
    // Coordinates of falling importance.
    Array2::from_shape_fn((n, k), |(_, j)| (rng.normal() / (j + 1) as f64) as f32)
}

fn about() -> About {
    let source = Source { data: "digits".into(), first: 3, shape: Some([1, 8, 8]) };
    let model = ModelFile { path: "m.mercer".into(), checksum: "0badcafe".into() };
    About { metric: Metric::Euclidean, source: Some(source), model: Some(model), schema: None, graph: None }
}

fn written(folder: &tempfile::TempDir, labels: Option<&Target>, names: Option<&[String]>) -> PathBuf {
    let path = folder.path().join("a.index");
    Index::write(&path, &about(), &Items { codes: codes(50, 3).view(), centre: None, labels, names }).unwrap();
    path
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let classes = Target::Classes { labels: (0..50).map(|i| i % 2).collect(), names: vec!["a".into(), "b, c".into()] };
    let names: Vec<String> = (0..50).map(|i| format!("é{}", "x".repeat(i % 5))).collect();
    let path = written(&folder, Some(&classes), Some(&names));
    let index = Index::open(&path).unwrap();
    index.verify().unwrap();
    assert_eq!(index.about, about());
    assert_eq!((index.n(), index.k(), index.codes()), (50, 3, codes(50, 3).view()));
    assert_eq!(index.labels().unwrap()[49], 1);
    assert_eq!(index.label(1).as_deref(), Some("b, c"));
    assert!((0..50).all(|i| index.name(i).as_ref() == Some(&names[i])));
    assert_eq!((index.name(50), index.label(50)), (None, None));
    // The same index gives the same bytes, and every layout of the codes.
    let first = std::fs::read(&path).unwrap();
    let turned = codes(50, 3).reversed_axes();
    let items = Items { codes: turned.t(), centre: None, labels: Some(&classes), names: Some(&names) };
    Index::write(&path, &about(), &items).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    let wide = codes(50, 5);
    Index::write(
        &path,
        &About::default(),
        &Items { codes: wide.slice(s![.., ..2]), centre: None, labels: None, names: None },
    )
    .unwrap();
    let index = Index::open(&path).unwrap();
    assert_eq!(index.codes(), wide.slice(s![.., ..2]));
    assert_eq!((index.label(0), index.name(0), index.labels()), (None, None, None));
    let values = Target::Values((0..50).map(|i| i as f64 / 4.0).collect());
    assert_eq!(Index::open(&written(&folder, Some(&values), None)).unwrap().label(3).as_deref(), Some("0.75"));
}

/// Codes without a centre have the format that the first programs read; a centre has another, which they refuse.
#[test]
fn a_centre_is_kept_and_changes_the_version_of_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.index");
    let far = codes(50, 3).mapv(|v| 1e9 + f64::from(v));
    let Kept { codes: near, centre } = Kept::of(far.view(), Metric::Euclidean);
    for (centre, version) in [(None, "1"), (centre.as_deref(), "2")] {
        Index::write(&path, &about(), &Items { codes: near.view(), centre, labels: None, names: None }).unwrap();
        let index = Index::open(&path).unwrap();
        index.verify().unwrap();
        assert_eq!((index.centre(), index.codes()), (centre, near.view()));
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(&format!("\"version\":\"{version}\"")), "{version}");
    }
    let index = Index::open(&path).unwrap();
    let back = index.codes().mapv(f64::from) + ArrayView1::from(index.centre().unwrap());
    assert!((&back - &far).iter().all(|v| v.abs() < 1e-6), "single precision alone is off by up to 32");
    assert_eq!(index.prepared(far.view()), near);
    let short = Items { codes: near.view(), centre: Some(&[0.0; 2]), labels: None, names: None };
    assert!(Index::write(&path, &about(), &short).unwrap_err().to_string().contains("2 coordinates"));
}

#[test]
fn files_that_were_changed_or_cut_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    let path = written(&folder, Some(&Target::Values(vec![0.5; 50])), Some(&names));
    let good = std::fs::read(&path).unwrap();
    let broken = folder.path().join("b.index");
    let message = |bytes: &[u8]| {
        std::fs::write(&broken, bytes).unwrap();
        Index::open(&broken).and_then(|index| index.verify()).err().map(|e| e.to_string())
    };
    assert_eq!(message(&good), None);
    for end in [0, 7, 100, good.len() - 1] {
        assert!(message(&good[..end]).unwrap().contains("index"), "{end}");
    }
    // One changed byte, anywhere: no panic, and whatever the header says is noticed when the file is opened.
    let mut rng = Rng::new(1);
    for _ in 0..400 {
        let mut bytes = good.clone();
        let at = rng.below(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
        let said = message(&bytes);
        // Only the padding of the header says nothing.
        assert!(said.is_some() || good[at] == b' ', "byte {at}");
        if let Ok(index) = Index::open(&broken) {
            (0..51).for_each(|i| drop((index.name(i), index.label(i))));
        }
    }
    std::fs::write(&broken, b"not an index").unwrap();
    assert!(Index::open(&broken).is_err() && stated_checksum(&broken).is_err());
    assert!(Index::open(folder.path()).unwrap_err().to_string().contains("folder"));
}

#[test]
fn lists_of_other_lengths_and_numbers_that_are_not_finite_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.index");
    let mut odd = codes(4, 2);
    let names = vec![String::new(); 3];
    let items = Items { codes: odd.view(), centre: None, labels: None, names: Some(&names) };
    let said = Index::write(&path, &about(), &items).unwrap_err().to_string();
    assert!(said.contains("4 items have 3"), "{said}");
    odd[[1, 1]] = f32::INFINITY;
    assert!(
        Index::write(&path, &about(), &Items { codes: odd.view(), centre: None, labels: None, names: None }).is_err()
    );
    assert!(!path.exists());
}

#[test]
fn recall_grows_with_the_shortlist_and_the_short_code() {
    let (items, queries) = (codes(3000, 16), codes(3100, 16).slice_move(s![3000.., ..]));
    let search = ExactSearch::new(items.view(), Metric::Euclidean).unwrap();
    let exact = search.nearest(queries.view(), 10).unwrap();
    let mean = |dims: usize, items: usize| {
        let hits = search.by_shortlist(queries.view(), Shortlist { dims, items }, 10).unwrap();
        let found = recall(&hits, &exact);
        found.iter().sum::<f64>() / found.len() as f64
    };
    let found = [mean(2, 20), mean(2, 200), mean(8, 200)];
    assert!(found.windows(2).all(|w| w[0] < w[1]), "{found:?}");
    assert_eq!(mean(16, 10), 1.0, "the short code is the whole one");
}
