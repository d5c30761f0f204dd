//! `mercer transform --dims`, `index`, `search` and `probe`: codes of rows, files of them, and what they are worth.

mod common;

use common::Folder;
use mercer::data::write_npy;
use ndarray::{Array2, s};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A folder with a model of digits, `m.mercer`.
fn with_model() -> Folder {
    let folder = Folder::new();
    folder.object("embed digits --rows 900 --k 12 --model m.mercer");
    folder
}

#[test]
fn the_first_coordinates_are_written_indexed_and_found() {
    let folder = with_model();
    folder.object("transform m.mercer digits --rows 901-1000 --out all.npy");
    assert_eq!(folder.object("transform m.mercer digits --rows 901-1000 --dims 5 --out five.npy")["k"], 5);
    let (all, five) = (folder.read("all.npy"), folder.read("five.npy"));
    assert_eq!(five, all.slice(s![.., ..5]));
    folder.refuses("transform m.mercer digits --dims 13 --out x.npy", "codes have 12 coordinates; use 1 to 12");

    let made = folder.object("index m.mercer digits --rows 900 --dims 8 --out d.index");
    assert_eq!((made["n"].as_u64(), made["dims"].as_u64(), made["classes"].as_u64()), (Some(900), Some(8), Some(10)));
    let line = "search d.index digits --rows 901-1000 --top 5";
    let found = folder.object(&format!("{line} --out hits.csv --report hits.html"));
    assert!(number(&found["precision"]["value"]) > 0.8, "{found}");
    assert_eq!(found["items"].as_array().unwrap().len(), 100);
    let table = std::fs::read_to_string(folder.join("hits.csv")).unwrap();
    assert!(table.starts_with("query,rank,item,score,label\n1,1,"), "{}", &table[..80]);
    assert_eq!(table.lines().count(), 501);
    let page = std::fs::read_to_string(folder.join("hits.html")).unwrap();
    assert!(page.contains("data:image/png") && page.contains("mercer search") && page.contains("query · "));
    // A row of the index finds itself first; fewer coordinates are another code.
    let own = folder.object("search d.index digits --rows 7-7 --top 1");
    assert_eq!((&own["items"][0][0], (number(&own["scores"][0][0]) - 1.0).abs() < 1e-6), (&Value::from(7), true));
    assert_ne!(folder.object(&format!("{line} --dims 2"))["items"], found["items"]);
    // A shortlist of all items is the exact search; a short one is measured.
    assert_eq!(folder.object(&format!("{line} --shortlist 900"))["items"], found["items"]);
    let short = folder.object(&format!("{line} --shortlist 50 --short-dims 3 --recall"));
    let recall = number(&short["recall"]["value"]);
    assert!(recall > 0.3 && recall <= 1.0, "{short}");
    folder.refuses(&format!("{line} --shortlist 3"), "use at least 5");
    if !cfg!(feature = "usearch") {
        folder.refuses(&format!("{line} --approximate"), "--features usearch");
    }
}

#[test]
fn the_model_of_an_index_is_known_by_its_checksum() {
    let folder = with_model();
    folder.object("index m.mercer digits --rows 300 --out d.index");
    let line = "search d.index digits --rows 301-310 --top 2";
    let found = folder.object(line);
    // Moved, the model must be named; another one is refused.
    std::fs::rename(folder.join("m.mercer"), folder.join("moved.mercer")).unwrap();
    folder.refuses(line, "is missing; name its file by --model");
    assert_eq!(folder.object(&format!("{line} --model moved.mercer"))["items"], found["items"]);
    folder.object("embed digits --rows 800 --k 12 --model m.mercer");
    folder.refuses(line, "is another model");
    folder.object("regress digits --rows 200 --model p.mercer --holdout 0");
    folder.refuses("index p.mercer digits --out p.index", "predicts and has no coordinates");
}

#[test]
fn embeddings_are_indexed_without_a_model_with_names_and_a_table_as_page() {
    let folder = Folder::new();
    let codes = Array2::from_shape_fn((30, 4), |(i, j)| ((i * (2 * j + 3)) % 13) as f32);
    write_npy(folder.join("e.npy"), codes.view()).unwrap();
    let names: String = (1..=30).map(|i| format!("photo {i}, \"x\"\n")).collect();
    std::fs::write(folder.join("names.txt"), &names).unwrap();
    folder.object("index e.npy --metric euclidean --names names.txt --out e.index");
    let found = folder.object("search e.index e.npy --rows 5-6 --top 3 --out h.csv --report h.html");
    assert_eq!((&found["items"][0][0], &found["scores"][1][0]), (&Value::from(5), &Value::from(0.0)));
    assert!(found["precision"].is_null());
    let table = std::fs::read_to_string(folder.join("h.csv")).unwrap();
    assert!(table.lines().nth(1).unwrap().ends_with("\"photo 5, \"\"x\"\"\""), "{table}");
    let page = std::fs::read_to_string(folder.join("h.html")).unwrap();
    assert!(page.contains("photo 6, &quot;x&quot;") && !page.contains("data:image/png"));
    assert!(folder.said("search e.index e.npy").contains("… and 280 more; --out writes all"));
    folder.refuses("search e.index e.npy --model e.npy", "leave out --model");
    std::fs::write(folder.join("names.txt"), "one\n").unwrap();
    folder.refuses("index e.npy --names names.txt --out f.index", "has 1 lines, but there are 30 rows");
    write_npy(folder.join("short.npy"), codes.slice(s![.., ..2])).unwrap();
    folder.refuses("search e.index short.npy", "have 2 coordinates, those of the index 4");
    folder.refuses("search e.npy e.npy", "not a readable index");
}

#[test]
fn a_probe_measures_codes_of_each_length() {
    let folder = with_model();
    let line = "probe m.mercer digits --lengths 2,12 --neighbours 5 --ranked 50";
    let found = folder.object(&format!("{line} --plot p.svg --report p.html"));
    let codes = found["codes"].as_array().unwrap();
    assert_eq!(codes.len(), 4, "{found}");
    let value = |i: usize, measure: &str| number(&codes[i][measure]["value"]);
    assert_eq!((codes[0]["choice"].as_str(), codes[3]["length"].as_u64()), (Some("first"), Some(12)));
    for measure in ["neighbours", "linear", "map", "precision"] {
        assert!(value(3, measure) > value(0, measure), "{measure}: {found}");
        let interval = &codes[0][measure]["interval"];
        assert!(number(&interval[0]) < value(0, measure) && value(0, measure) < number(&interval[1]));
    }
    assert!(value(3, "neighbours") > 0.9 && value(3, "linear") > 0.8, "{found}");
    let page = std::fs::read_to_string(folder.join("p.html")).unwrap();
    assert!(page.contains("PCA of the code") && page.contains("precision@10") && page.contains("<svg"));
    assert!(folder.said(line).contains("random coordinates"));
    assert_eq!((found["n"].as_u64(), found["test_rows"].as_u64()), (Some(1438), Some(359)));
    // --rows are those to learn from.
    let other = folder.object("probe m.mercer digits --rows 900 --test digits --lengths 12 --ranked 20");
    assert_eq!((other["n"].as_u64(), other["test_rows"].as_u64()), (Some(900), Some(1797)));
    folder.refuses("probe m.mercer digits --lengths 13", "between 1 and 12");
}
