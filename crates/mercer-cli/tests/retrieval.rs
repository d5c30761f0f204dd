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
    assert_eq!(found["item_rows"].as_array().unwrap().len(), 100);
    assert_eq!((&found["query_rows"][0], &found["query_rows"][99]), (&Value::from(901), &Value::from(1000)));
    let table = std::fs::read_to_string(folder.join("hits.csv")).unwrap();
    assert!(table.starts_with("query_row,rank,item_row,score,label\n901,1,"), "{}", &table[..80]);
    assert_eq!(table.lines().count(), 501);
    let page = std::fs::read_to_string(folder.join("hits.html")).unwrap();
    assert!(page.contains("data:image/png") && page.contains("mercer search") && page.contains("query · "));
    // A row of the index finds itself first; fewer coordinates are another code.
    let own = folder.object("search d.index digits --rows 7-7 --top 1");
    assert_eq!((&own["item_rows"][0][0], (number(&own["scores"][0][0]) - 1.0).abs() < 1e-6), (&Value::from(7), true));
    assert_ne!(folder.object(&format!("{line} --dims 2"))["item_rows"], found["item_rows"]);
    // A shortlist of all items is the exact search; a short one is measured.
    assert_eq!(folder.object(&format!("{line} --shortlist 900"))["item_rows"], found["item_rows"]);
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
    assert_eq!(folder.object(&format!("{line} --model moved.mercer"))["item_rows"], found["item_rows"]);
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
    assert_eq!((&found["item_rows"][0][0], &found["scores"][1][0]), (&Value::from(5), &Value::from(0.0)));
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

/// Rows are those of the files, whatever part of them was indexed or searched; arrays count them from 0.
#[test]
fn hits_are_rows_of_the_files() {
    let folder = Folder::new();
    let codes = Array2::from_shape_fn((40, 3), |(i, j)| ((7 * i + 5 * j * i) % 41) as f64 + 0.25 * j as f64);
    write_npy(folder.join("e.npy"), codes.view()).unwrap();
    folder.object("index e.npy --rows 11-30 --metric euclidean --out e.index");
    let line = "search e.index e.npy --rows 15-16 --top 2";
    let found = folder.object(&format!("{line} --out h.csv --report h.html"));
    assert_eq!((&found["query_rows"], &found["item_rows"][0][0]), (&serde_json::json!([15, 16]), &Value::from(15)));
    let nearest = |query: usize| {
        let distance = |i: &usize| (0..3).map(|j| (codes[[*i, j]] - codes[[query, j]]).powi(2)).sum::<f64>();
        (10..30).filter(|i| *i != query).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap()
    };
    let table = std::fs::read_to_string(folder.join("h.csv")).unwrap();
    let second: Vec<&str> = table.lines().nth(4).unwrap().split(',').collect();
    assert_eq!(second[..3], ["16", "2", &(nearest(15) + 1).to_string()]);
    let page = std::fs::read_to_string(folder.join("h.html")).unwrap();
    assert!(page.contains("query row") && page.contains(&format!("row {}", nearest(15) + 1)));
    folder.object(&format!("{line} --out h.npy"));
    let rows = folder.read("h.npy");
    assert_eq!((rows[[0, 0]], rows[[1, 0]], rows[[1, 1]]), (14.0, 15.0, nearest(15) as f64));
}

/// Codes far from the origin: distances are exact about their mean, and cosines, which are not, come with a warning.
#[test]
fn codes_far_from_the_origin_are_found_or_warned_of() {
    let folder = Folder::new();
    let mut rng = mercer::rng::Rng::new(3);
    let codes = Array2::from_shape_simple_fn((300, 8), || 1e6 + rng.normal());
    write_npy(folder.join("e.npy"), codes.view()).unwrap();
    let said = |line: &str| {
        let output = folder.mercer(line).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let made = said("index e.npy --metric euclidean --out e.index");
    let line = "search e.index e.npy --rows 101-140 --top 10";
    assert!(!made.contains("warning") && !said(line).contains("warning"), "{made}");
    let found = folder.object(line);
    for q in 0..40 {
        let distance = |i: &usize| (0..8).map(|j| (codes[[*i, j]] - codes[[100 + q, j]]).powi(2)).sum::<f64>();
        let mut order: Vec<usize> = (0..300).collect();
        order.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        for j in 0..10 {
            assert_eq!(found["item_rows"][q][j], order[j] + 1, "query {q}");
            assert!((number(&found["scores"][q][j]) - distance(&order[j]).sqrt()).abs() < 1e-5);
        }
    }
    let made = said("index e.npy --out c.index");
    assert!(made.contains("64 of 64 codes") && made.contains("--metric euclidean"), "{made}");
    // Two of them are almost one.
    let mut close = codes.mapv(|v| v - 1e6);
    for i in (0..300).step_by(2) {
        let near = close.row(i).mapv(|v| v + 1e-9);
        close.row_mut(i + 1).assign(&near);
    }
    write_npy(folder.join("close.npy"), close.view()).unwrap();
    let made = said("index close.npy --metric euclidean --out d.index");
    assert!(made.contains("64 of 64 codes"), "{made}");
    // Queries between whole numbers that the index holds exactly.
    write_npy(folder.join("whole.npy"), codes.mapv(f64::round).view()).unwrap();
    said("index whole.npy --metric euclidean --out w.index");
    assert!(said("search w.index e.npy --top 1").contains("hits may come in another order"));
}

#[test]
fn a_probe_takes_the_codes_and_classes_of_an_index() {
    let folder = with_model();
    folder.object("index m.mercer digits --dims 12 --out d.index");
    let line = "--lengths 3,12 --neighbours 5 --ranked 30";
    let [own, model] = ["d.index", "m.mercer digits"].map(|of| folder.object(&format!("probe {of} {line}")));
    assert_eq!((own["n"].as_u64(), own["k"].as_u64()), (model["n"].as_u64(), Some(12)));
    let of = |found: &Value| number(&found["codes"][0]["neighbours"]["value"]);
    assert!((of(&own) - of(&model)).abs() < 0.01, "{own} {model}");
    for rest in ["digits", "--rows 100", "--test digits", "--target 3"] {
        folder.refuses(&format!("probe d.index {rest}"), "is an index and measured by its own items");
    }
    folder.refuses("transform d.index digits --out x.npy", "is an index, which is searched");
    write_npy(folder.join("e.npy"), Array2::<f32>::eye(30).view()).unwrap();
    folder.object("index e.npy --out e.index");
    folder.refuses("probe e.index", "have no classes");
}
