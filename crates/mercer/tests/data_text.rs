//! Tables of text: encodings, quotes, headers, and words that look like numbers. The oracles are the constructed tables themselves, encoded here
//! by tables written out by hand, not by the library's decoder.

use mercer::data::{Kind, Missing, ReadOptions, Scaling, Schema, Table, Target, open};
use proptest::prelude::*;
use std::path::PathBuf;

/// The characters of Windows-1252 from 0x80 to 0x9f; `\0` where it has none.
const MIDDLE: &str = "€\0‚ƒ„…†‡ˆ‰Š‹Œ\0Ž\0\0‘’“”•–—˜™š›œ\0žŸ";

fn western(text: &str) -> Vec<u8> {
    let byte = |c: char| match c as u32 {
        low @ (0..0x80 | 0xa0..0x100) => low as u8,
        _ => 0x80 + MIDDLE.chars().position(|m| m == c).unwrap() as u8,
    };
    text.chars().map(byte).collect()
}

fn wide(text: &str, big: bool, mark: bool) -> Vec<u8> {
    let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
    units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
}

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn file(bytes: impl AsRef<[u8]>) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, bytes).unwrap();
    File { _folder: folder, path }
}

impl File {
    fn table(&self, target: Option<&str>) -> mercer::Result<Table> {
        let options = ReadOptions { target: target.map(String::from), ..Default::default() };
        Table::open(self.path.to_str().unwrap(), &options)
    }

    fn refused(&self) -> String {
        self.table(None).unwrap_err().to_string()
    }
}

fn levels(table: &Table, j: usize) -> Vec<String> {
    match &table.columns[j].kind {
        Kind::Category(levels) => levels.clone(),
        other => panic!("{other:?}"),
    }
}

/// The word of each row.
fn words(table: &Table, j: usize) -> Vec<String> {
    let levels = levels(table, j);
    (0..table.n()).map(|i| levels[table.x.rows().get(i, j) as usize].clone()).collect()
}

#[test]
fn western_words_stay_different_and_the_encoding_is_said() {
    let text: String = (0..60).map(|i| format!("{i}.5,{}\n", ["café", "cafè"][i % 2])).collect();
    let text = format!("größe,k\n{text}");
    for (bytes, said) in [
        (western(&text), Some("Windows-1252")),
        (wide(&text, false, true), Some("UTF-16LE")),
        (wide(&text, true, true), Some("UTF-16BE")),
        (wide(&text, false, false), Some("UTF-16LE")),
        (wide(&text, true, false), Some("UTF-16BE")),
        (text.clone().into_bytes(), None),
        ([b"\xef\xbb\xbf", text.as_bytes()].concat(), None),
    ] {
        let table = file(bytes).table(Some("k")).unwrap();
        let Some(Target::Classes { names, labels }) = table.target.map(|t| t.values) else { panic!("not classes") };
        assert_eq!(names, ["cafè", "café"]);
        assert_eq!(labels[..2], [1, 0]);
        assert_eq!(table.columns[0].name, "größe");
        match said {
            None => assert!(table.notes.is_empty(), "{:?}", table.notes),
            Some(name) => assert!(table.notes[0].contains(name), "{:?}", table.notes),
        }
    }
}

/// Characters whose zero byte is where that of the others is not.
#[test]
fn short_chinese_tables_are_utf_16() {
    let words = ["一一".to_string(), "一丁".into(), "a".into()];
    let text = "n,w\n".to_string() + &words.iter().map(|w| format!("1.5,q{w}\n")).collect::<String>();
    for big in [false, true] {
        let table = file(wide(&text, big, false)).table(None).unwrap();
        assert_eq!(self::words(&table, 1), ["q一一", "q一丁", "qa"]);
    }
}

/// The decision is one for the whole file, wherever the first byte stands that tells it.
#[test]
fn an_encoding_holds_for_the_whole_file() {
    let ascii = "a,b\n".to_string() + &"1,x\n".repeat(400_000);
    let late = [ascii.as_bytes(), b"2,caf\xe9\n2,caf\xe8\n"].concat();
    let table = file(&late).table(None).unwrap();
    assert_eq!(levels(&table, 1), ["cafè", "café", "x"]);
    let changes = [ascii.as_bytes(), "2,é\n".as_bytes(), &b"2,x\n".repeat(30_000), b"2,caf\xe9\n"].concat();
    let refused = file(&changes).refused();
    assert!(refused.contains("line 430003 holds bytes that are not UTF-8"), "{refused}");
    let changes = [ascii.as_bytes(), b"2,caf\xe9\n", &b"2,x\n".repeat(30_000), "2,é\n".as_bytes()].concat();
    let refused = file(&changes).refused();
    assert!(refused.contains("line 430003 holds UTF-8"), "{refused}");
}

#[test]
fn what_is_no_text_is_refused() {
    for (bytes, part) in [
        (b"a,b\n1,x\n2,\x81\n".to_vec(), "line 3 holds bytes that are neither UTF-8 nor Windows-1252"),
        (b"a,b\n1,x\n2,x\0y\n".to_vec(), "line 3 holds a zero byte"),
        (vec![0; 1000], "line 1 holds a zero byte"),
        (b"\xff\xfe\x00\xd8a\x00,\x00".to_vec(), "line 1 holds bytes that are not UTF-16LE"),
        ([wide("a,b\n1,x\n", false, true), vec![b'2']].concat(), "not UTF-16LE"),
    ] {
        let refused = file(&bytes).refused();
        assert!(refused.contains(part), "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any words, in any of the encodings that can write them, are the same words again.
    #[test]
    fn words_survive_every_encoding(
        words in prop::collection::vec("[a-zA-Zéèäöüßñç€“”šžœ]{1,8}", 2..30),
        other in prop::collection::vec("[a-zд-я一-三🦀]{1,8}", 2..30),
    ) {
        let table = |words: &[String]| -> String {
            "n,w\n".to_string() + &words.iter().enumerate().map(|(i, w)| format!("{i}.5,q{w}\n")).collect::<String>()
        };
        let check = |bytes: Vec<u8>, words: &[String]| {
            let want: Vec<String> = words.iter().map(|w| format!("q{w}")).collect();
            assert_eq!(self::words(&file(bytes).table(None).unwrap(), 1), want);
        };
        let text = table(&words);
        // Where every byte pair of the Western form is UTF-8 by chance, nothing can tell.
        if std::str::from_utf8(&western(&text)).is_err() || text.is_ascii() {
            check(western(&text), &words);
        }
        for words in [&words, &other] {
            let text = table(words);
            check(text.clone().into_bytes(), words);
            for big in [false, true] {
                check(wide(&text, big, true), words);
                check(wide(&text, big, false), words);
            }
        }
    }
}

#[test]
fn a_quote_that_swallows_rows_is_refused() {
    let table = |row: &str| -> String {
        let rows = |range: std::ops::Range<usize>| range.map(|i| format!("{i},{}.5,{}\n", i % 7, ["x", "y"][i % 2]));
        "a,y,name\n".to_string() + &rows(0..10).collect::<String>() + row + &rows(10..1500).collect::<String>()
    };
    for (row, part) in [
        ("0.5,1.0,\"oops\n", "line 12 opens a quote that is not closed within 1000 lines"),
        ("\"0.5,1.0,oops\n1,2,\"ok\"\n", "line 12 opens a quote that swallows rows up to line 13"),
        ("0.5,1.0,\"o\n1,2,a\n1,2,a\n1,2,a\n1,2,a\"\n", "line 12 opens a quote that swallows rows up to line 16"),
    ] {
        let refused = file(table(row)).refused();
        assert!(refused.contains(part), "{refused}");
    }
    let refused = file("a,b\n1,x\n2,\"y\n3,x\n").refused();
    assert!(refused.contains("line 3 opens a quote that is never closed"), "{refused}");
    // What a quoted cell may hold.
    let sound = "1,2,\"two\nlines, with \"\"quotes\"\"\r\nand three\"\n1,2,5\" pipe\n1,2,\"\"\n";
    let table = file(table(sound)).table(None).unwrap();
    assert_eq!(table.n(), 1503);
    assert!(levels(&table, 2).contains(&"two\nlines, with \"quotes\"\r\nand three".to_string()));
}

#[test]
fn headers_are_recognised() {
    let names = |text: &str| -> Vec<String> {
        file(text).table(None).unwrap().columns.iter().map(|c| c.name.clone()).collect()
    };
    assert_eq!(names("target,2,3,4\n1,0,5,6\n0,1,7,8\n"), ["target", "2", "3", "4"]);
    assert_eq!(names("0,1,2,target\n1,0,5,6\n0,1,7,8\n"), ["0", "1", "2", "target"]);
    assert_eq!(names("no,size\n1,0.5\n2,0.7\n"), ["no", "size"]);
    assert_eq!(names(",size\n0,0.5\n1,0.7\n"), ["x0", "size"]);
    // Numbers with decimal commas.
    assert_eq!(names("Länge;Preis\n1,5;2,70\n1,7;3,20\n1,5;2,70\n"), ["Länge", "Preis"]);
    // Words throughout, which repeat, but for the first row.
    let body: String = (0..40).map(|i| format!("{},{}\n", ["red", "blue"][i % 2], ["s", "m", "l"][i % 3])).collect();
    assert_eq!(names(&format!("colour,size\n{body}")), ["colour", "size"]);
    assert_eq!(names(&body), ["x0", "x1"]);
    // A first row of data.
    assert_eq!(names("1,2,x\n3,4,y\n"), ["x0", "x1", "x2"]);
    assert_eq!(names("?,red\n5,red\n6,blue\n"), ["x0", "x1"]);
    assert_eq!(names("ada,red\nbob,blue\neve,red\n"), ["x0", "x1"]);
    // A custom mark for a missing value is no name beside numbers that do not count.
    assert!(file("unknown,5,7\n3,4,5\n6,7,8\n").refused().contains("set the header option"));
    // A name that was asked for.
    let words = file("name,size\nada,big\nbob,small\neve,tiny\n");
    assert_eq!(words.table(Some("size")).unwrap().n(), 3);
    assert_eq!(words.table(None).unwrap().n(), 4);
    let counted = file("0,1,2\n5,6,7\n8,9,1\n").table(None).unwrap();
    assert!(counted.notes[0].contains("set the header option"), "{:?}", counted.notes);
}

#[test]
fn separators_that_are_not_known_are_refused() {
    let table = file("a|b\n1|x\n2|y\n").table(None).unwrap();
    assert_eq!((table.columns.len(), table.n()), (2, 2));
    for text in ["a b\n1 2\n3 4\n", "1.5   2.5\n3 4\n"] {
        assert!(file(text).refused().contains("blanks between the values"));
    }
    assert_eq!(file("city\nNew York\nSan Jose\nNew York\n").table(None).unwrap().columns.len(), 1);
}

#[test]
fn words_that_look_like_numbers_or_dates_are_warned_of() {
    let warned = |word: &dyn Fn(usize) -> String| -> Vec<String> {
        let rows: String = (0..60).map(|i| format!("{}.5;{};{}\n", i, word(i % 9), ["a", "b"][i % 2])).collect();
        let table = file(format!("n;w;z\n{rows}")).table(None).unwrap();
        Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap().warnings()
    };
    for word in [
        (&|i| format!("{i},5")) as &dyn Fn(usize) -> String,
        &|i| format!("1.{i}34,5"),
        &|i| format!("{i} %"),
        &|i| format!("${i}"),
        &|i| format!("−{i}"),
        &|i| format!("{i}\u{a0}"),
        &|i| format!("0{}.01.2020", i + 1),
        &|i| format!("Jan {} 2000", i + 1),
    ] {
        let warnings = warned(word);
        assert!(warnings.len() == 1 && warnings[0].contains("`w`") && warnings[0].contains(&word(0)), "{warnings:?}");
    }
    assert!(warned(&|i| format!("{i} kg")).is_empty());
    // Classes are words as well.
    let rows: String = (0..30).map(|i| format!("{i}.5;{},5\n", i % 3)).collect();
    let table = file(format!("n;y\n{rows}")).table(Some("y")).unwrap();
    let warnings = Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap().warnings();
    assert!(warnings[0].contains("`y`") && warnings[0].contains("`0,5`"), "{warnings:?}");
    // Many of them are refused, with the remedy.
    let rows: String = (0..60).map(|i| format!("{i},25;a\n")).collect();
    let table = file(format!("n;y\n{rows}")).table(None).unwrap();
    let refused = Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap_err().to_string();
    assert!(refused.contains("look like numbers") && refused.contains("1234.5"), "{refused}");
}

/// The count of levels is that of the rows that are fitted.
#[test]
fn levels_are_counted_over_the_rows_that_are_there() {
    let rows: String = (0..178).map(|i| format!("{i}.5,w{i}\n")).collect();
    let table = file(format!("n,w\n{rows}")).table(None).unwrap().select(&(0..142).collect::<Vec<_>>());
    let refused = Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap_err().to_string();
    assert!(refused.contains("142 different words in 142 rows"), "{refused}");
}

#[test]
fn numbers_of_rows_are_warned_of() {
    let table = |name: &str, id: &dyn Fn(usize) -> usize| {
        let rows: String = (0..40).map(|i| format!("{},{}.5,{}.25\n", id(i), i % 5, i * i % 11)).collect();
        file(format!("{name},a,b\n{rows}")).table(None).unwrap()
    };
    let scattered = |i: usize| 1_000_000 + i * 7919 % 104_729;
    for (name, id) in [
        ("", (&|i| i) as &dyn Fn(usize) -> usize),
        ("", &|i| i + 1),
        ("Unnamed: 0", &|i| i),
        ("n", &|i| 1 + i),
        ("customer_id", &scattered),
        ("customerId", &scattered),
        ("", &scattered),
    ] {
        let warnings = table(name, id).warnings();
        assert!(warnings.len() == 1 && warnings[0].contains("leave the column out"), "{name}: {warnings:?}");
        // Also where some of the rows are held out.
        let (rest, _) = table(name, id).held_out(0.3, 1).unwrap();
        assert_eq!(rest.warnings().len(), 1, "{name}");
    }
    assert!(table("weight", &scattered).warnings().is_empty());
    assert!(table("id", &|i| i % 7).warnings().is_empty());
}

#[test]
fn names_that_occur_twice_are_noted() {
    let table = file("a,b,a\n1,2,3\n4,5,6\n").table(None).unwrap();
    assert!(table.notes[0].contains("columns 1 and 3") && table.notes[0].contains("`a`"), "{:?}", table.notes);
}

/// Columns count against the budget before there is room for them.
#[test]
fn columns_count_against_the_budget() {
    let file = file(",".repeat(2_000_000) + "\n");
    let memory = mercer::operator::Budget::parse("100MB").ok();
    let options = ReadOptions { memory, ..Default::default() };
    let refused = Table::open(file.path.to_str().unwrap(), &options).unwrap_err().to_string();
    assert!(refused.contains("larger than the memory budget"), "{refused}");
}

/// Named columns are found by a map: comparing all with all takes minutes for so many. A run that is slow for other reasons passes.
#[test]
fn many_columns_are_read_and_found_again() {
    let d = 300_000;
    let row = |value: &dyn Fn(usize) -> String| (0..d).map(value).collect::<Vec<_>>().join(",") + "\n";
    let text = row(&|j| format!("c{j}")) + &row(&|j| format!("{j}.5")) + &row(&|j| format!("{j}.25"));
    let file = file(text);
    let start = std::time::Instant::now();
    let table = file.table(None).unwrap();
    let schema = Schema::fit(&table, Missing::Refuse, Scaling::MinMax).unwrap();
    let again = Table::open_like(file.path.to_str().unwrap(), &ReadOptions::default(), &schema).unwrap();
    let (data, _) = schema.encode(again).unwrap();
    assert_eq!(data.d(), d);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_as_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.csv");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writer = path.clone();
    let thread = std::thread::spawn(move || std::fs::write(writer, "a,b\n1,2\n3,4\n"));
    let data = open(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
    thread.join().unwrap().unwrap();
    assert_eq!((data.n(), data.columns[1].as_str()), (2, "b"));
}

/// Every table of PMLB has a header; its first line is the oracle.
#[test]
#[ignore = "needs the data sets"]
fn headers_of_public_tables_are_recognised() {
    use std::io::Read;
    let folder = PathBuf::from(std::env::var("MERCER_DATA").expect("MERCER_DATA is the folder of the data sets"));
    let mut wrong = vec![];
    for part in ["regression", "classification"] {
        for entry in std::fs::read_dir(folder.join("pmlb").join(part)).unwrap() {
            let path = entry.unwrap().path();
            let mut text = String::new();
            flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
            let names: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
            let rows = text.lines().count() - 1;
            let table = Table::open(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
            let read: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            if (read, table.n()) != (names, rows) {
                wrong.push(path);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
