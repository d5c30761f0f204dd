//! `mercer eigenmap`: a code from views, from given pairs and from embeddings, and what reads it.

mod common;

use common::Folder;
use mercer::data::write_npy;
use mercer::rng::Rng;
use ndarray::{Array1, Array2};

#[test]
fn a_code_is_fitted_read_and_resumed() {
    let folder = Folder::new();
    let line = "eigenmap digits --rows 600 --net dense(24) --k 4 --epochs 2 --batch 64 --objective vicreg";
    let found = folder.object(&format!("{line} --out m.mercer"));
    let eigenvalues = found["eigenvalues"].as_array().unwrap();
    assert!(eigenvalues.len() <= 4 && !eigenvalues.is_empty());
    assert_eq!(found["certificate"]["held_out"], true);
    assert!(found["training"]["accuracy"].as_array().unwrap().len() > 2);
    let said = folder.said("inspect m.mercer");
    assert!(said.contains("vicreg") && said.contains("held-out pairs"), "{said}");
    folder.said("transform m.mercer digits --out z.npy");
    let whole = std::fs::read(folder.join("z.npy")).unwrap();
    // The same in two parts.
    folder.object(&format!("{line} --checkpoint c --out again.mercer"));
    folder.object(&format!("{line} --checkpoint c --resume --out again.mercer"));
    folder.said("transform again.mercer digits --out again.npy");
    assert_eq!(std::fs::read(folder.join("again.npy")).unwrap(), whole);
    folder.refuses(&format!("{line} --augment crop"), "crops");
    folder.refuses("eigenmap moons(n=60) --net dense(4) --k 2 --augment crops", "no images");
    folder.refuses("eigenmap digits --net dense(4) --k 2 --projector 0", "puts out 4 numbers");
}

#[test]
fn pairs_and_embeddings_are_ordered() {
    let (folder, mut rng) = (Folder::new(), Rng::new(1));
    let classes: Vec<usize> = (0..400).map(|i| i % 4).collect();
    let centres = Array2::from_shape_simple_fn((4, 8), || 2.0 * rng.normal());
    let mut view = || Array2::from_shape_fn((400, 8), |(i, c)| centres[[classes[i], c]] + rng.normal());
    for name in ["a.npy", "b.npy"] {
        write_npy(&folder.join(name), view().view()).unwrap();
    }
    write_npy(
        &folder.join("y.npy"),
        Array1::from_iter(classes.iter().map(|c| *c as f64)).insert_axis(ndarray::Axis(1)).view(),
    )
    .unwrap();
    let trained = folder.object("eigenmap a.npy --pairs b.npy --net dense(16) --k 3 --epochs 3 --batch 64");
    assert_eq!(trained["origin"]["kernel"], "given pairs");
    for (options, operator, most) in [
        ("--pairs b.npy", "given pairs of embeddings", 8),
        ("--labels y.npy", "pairs of embeddings of the same class", 3),
        ("", "pairs of embeddings among the 10 nearest of each other", 8),
    ] {
        let found = folder.object(&format!("eigenmap --embeddings a.npy {options} --k 8 --out e.mercer"));
        assert_eq!(found["origin"]["kernel"], operator);
        assert!(found["eigenvalues"].as_array().unwrap().len() <= most);
        assert_eq!(found["pca"]["eigenvalues"].as_array().unwrap().len(), 8);
        let trained =
            |row: &serde_json::Value| row["matryoshka"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share));
        match found["accuracy"].as_array() {
            Some(rows) => assert!(rows.len() == 3 && rows.iter().all(trained), "{rows:?}"),
            None => assert!(options.is_empty()),
        }
        folder.said("transform e.mercer b.npy --out z.npy");
    }
    let said = folder.said("eigenmap --embeddings a.npy --labels y.npy --k 3");
    assert!(
        ["random coordinates", "principal components", "matryoshka"].iter().all(|word| said.contains(word)),
        "{said}"
    );
    // A ridge lowers eigenvalues; neighbours have one of 0.1 unless it is given.
    let first = |options: &str| {
        let found = folder.object(&format!("eigenmap --embeddings a.npy {options} --k 8"));
        found["eigenvalues"][0].as_f64().unwrap()
    };
    let usual = first("");
    assert_eq!(usual, first("--finish units --ridge 0.1 --weighting commute"));
    assert!(first("--ridge 0") > usual && first("--ridge 1") < usual);
    folder.refuses("eigenmap --embeddings a.npy --ridge -1", "--ridge");
    folder.refuses("eigenmap --embeddings a.npy --weighting far", "biharmonic");
    folder.refuses("eigenmap --embeddings a.npy --labels b.npy", "one class for each of 400");
    folder.refuses("eigenmap digits --embeddings a.npy --net dense(4)", "cannot be given together");
}
