//! Reports, long tables, matrices that are streamed, progress in logs, and files of options.

mod common;

use common::Folder;
use mercer::compute::Device;
use mercer::data::digits;
use mercer::kernel::Kernel;
use mercer::operator::gram;
use ndarray::Array2;

fn text(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// How many figures of a page have this title.
fn figures(page: &str, title: &str) -> usize {
    page.matches(&format!("aria-label=\"{title}")).count()
}

#[test]
fn a_report_shows_spectrum_certificate_functions_embedding_and_how_it_was_made() {
    let folder = Folder::new();
    let fit = "fit digits --k 4 --out m.mercer --report fitted.html --seed 3";
    let eigenvalues = folder.object(fit)["eigenvalues"].clone();
    folder.said("report m.mercer --out again.html");
    let (fitted, again) = (text(&folder, "fitted.html"), text(&folder, "again.html"));
    for page in [&fitted, &again] {
        for section in ["Spectrum", "Certificate", "Eigenfunctions", "Embedding", "How it was made"] {
            assert!(page.contains(&format!(">{section}</h2>")), "{section}");
        }
        // The largest eigenvalue in the certificate's table, to its digits.
        let first = format!("{:.6}", eigenvalues[0].as_f64().unwrap());
        assert!(page.contains(&format!("<td class=\"number\">{first}</td>")), "{first}");
        assert_eq!([figures(page, "Eigenvalues"), figures(page, "The images"), figures(page, "Training")], [1, 1, 0]);
        assert!(page.contains(&format!("mercer {fit} --json")), "the command of the fit");
    }
    // The same functions at the same points.
    let embedding =
        |page: &str| page.split("aria-label=\"Embedding\"").nth(1).unwrap().split("</svg>").next().unwrap().len();
    assert_eq!(embedding(&fitted), embedding(&again));
    folder.refuses("report m.mercer --out page.txt", "must end in .html");
}

#[test]
fn a_report_follows_the_dimension_of_the_data_and_shows_training() {
    let folder = Folder::new();
    let line: String = (0..120).map(|i| format!("{}\n", f64::from(i) / 60.0)).collect();
    std::fs::write(folder.join("line.csv"), format!("t\n{line}")).unwrap();
    folder.said("fit line.csv --kernel rbf(0.3) --k 3 --report line.html");
    let page = text(&folder, "line.html");
    assert!(page.contains("The functions at 120 points.") && !page.contains("colours of the ends"));
    folder.said("fit moons(n=200) --method spin --steps 20 --batch 64 --k 3 --report plane.html");
    let page = text(&folder, "plane.html");
    assert!(page.contains("The functions at 200 points; values beyond ±3"), "over the plane itself");
    assert_eq!([figures(&page, "Training"), figures(&page, "Embedding"), figures(&page, "The images")], [1, 1, 0]);
}

#[test]
fn data_that_is_gone_is_said_and_the_rest_is_shown() {
    let folder = Folder::new();
    std::fs::write(folder.join("x.csv"), (0..80).map(|i| format!("{},{}\n", i % 9, i % 7)).collect::<String>())
        .unwrap();
    folder.said("fit x.csv --k 2 --out m.mercer");
    std::fs::remove_file(folder.join("x.csv")).unwrap();
    let output = folder.mercer("report m.mercer --out r.html").output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("x.csv") && said.contains("name the points after the model"), "{said}");
    let page = text(&folder, "r.html");
    assert!(page.contains(">Certificate</h2>") && !page.contains(">Eigenfunctions</h2>"));
}

#[test]
fn many_pairs_are_printed_as_head_ranges_and_tail() {
    let folder = Folder::new();
    let said = folder.said("fit moons(n=400) --kernel rbf(0.3) --method exact --k 300");
    let rows: Vec<&str> =
        said.lines().skip_while(|line| !line.starts_with("j ")).skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 20, "{said}");
    assert!(rows[9].starts_with("10 ") && rows[10].starts_with("11–20 ") && rows[19].starts_with("300 "), "{said}");
    assert!(rows[10].contains("≤ ") && rows.iter().all(|row| row.chars().count() <= 100), "{said}");
    assert_eq!(
        folder.object("fit moons(n=400) --kernel rbf(0.3) --method exact --k 300")["eigenvalues"]
            .as_array()
            .unwrap()
            .len(),
        300
    );
}

/// The matrix goes to its file as it is computed: it has the bits of the one in memory, within a budget far below its size.
#[test]
fn the_kernel_matrix_is_streamed_to_its_file() {
    let folder = Folder::new();
    let matrix = gram::<f64>(&Kernel::parse("rbf(30)").unwrap(), &digits().x, Device::Cpu).unwrap();
    let same = |name: &str, by: &Array2<f64>| folder.read(name).iter().zip(by).all(|(a, b)| a.to_bits() == b.to_bits());
    for memory in ["12MiB", "24MiB", "1GiB"] {
        folder.said(&format!("gram digits --kernel rbf(30) --memory {memory} --out K.npy"));
        assert!(same("K.npy", &matrix), "{memory}");
    }
    // 488 MiB, where two bands of 384 rows are 47 MiB.
    let found = folder.object_with_cost("gram moons(n=8000) --kernel rbf(1) --memory 60MiB --out K.npy");
    assert_eq!(found["bytes"], 512_000_000u64);
    assert_eq!(std::fs::metadata(folder.join("K.npy")).unwrap().len(), 512_000_128);
    if let Some(peak) = found["peak_memory"].as_u64() {
        assert!(peak < 200 << 20, "{peak} bytes");
    }
    folder.refuses("gram moons(n=8000) --memory 20MiB --out K.npy", "384 rows at a time");
}

#[test]
fn a_log_has_lines_about_progress_where_they_are_asked_for_and_the_cost_at_the_end() {
    let folder = Folder::new();
    let stderr = |line: &str| String::from_utf8(folder.mercer(line).output().unwrap().stderr).unwrap();
    let verbose = stderr("fit digits --k 3 --verbose");
    assert!(verbose.lines().any(|line| line.starts_with("krylov ") && line.contains("worst residual")), "{verbose}");
    assert!(verbose.contains("certificate 4 of 4, what fresh points would show 0/10"), "{verbose}");
    assert!(verbose.contains("kernel matrix 23/23"), "{verbose}");
    let plain = stderr("fit digits --k 3");
    assert!(!plain.contains("krylov") && plain.lines().count() == 1 && plain.starts_with("total: "), "{plain}");
    assert!(!cfg!(target_os = "linux") || plain.contains("of memory"), "{plain}");
    assert_eq!(stderr("fit digits --k 3 --quiet"), "");
    let found = folder.object_with_cost("fit digits --k 3");
    let [total, fit] = ["total_seconds", "seconds"].map(|name| found[name].as_f64().unwrap());
    assert!(total > fit && fit > 0.0);
    assert!(found["peak_memory"].as_u64().is_none_or(|bytes| (1 << 20..8 << 30).contains(&bytes)));
}

#[test]
fn a_file_of_options_repeats_a_command() {
    let folder = Folder::new();
    let first = folder.object("fit moons(n=90) --kernel 'rbf(0.5) + linear' --k 3 --seed 5 --save-config job.toml");
    let again = folder.object("run job.toml");
    for name in ["eigenvalues", "kernel", "seed", "data"] {
        assert_eq!(first[name], again[name], "{name}");
    }
    assert_eq!(folder.object("run job.toml --seed 6")["seed"], 6);
    std::fs::write(folder.join("bad.toml"), "command = \"fit\"\ndata = \"digits\"\nkernle = \"rbf(1)\"\n").unwrap();
    folder.refuses("run bad.toml", "bad.toml: `mercer fit` has no option 'kernle'");
    std::fs::write(folder.join("loop.toml"), "command = \"run\"\nfile = \"loop.toml\"\n").unwrap();
    folder.refuses("run loop.toml", "name the command itself");
    folder.refuses("run none.toml", "no such file");
}

#[test]
fn the_page_of_one_command_is_printed() {
    let folder = Folder::new();
    let page = folder.said("man fit");
    assert!(
        page.contains(".TH mercer-fit 1") && page.contains("\\-\\-kernel") && page.contains("\\-\\-seed"),
        "{page}"
    );
    assert!(!page.contains("\\-\\-bandwidth"));
    folder.refuses("man fti", "did you mean 'fit'");
}

#[test]
fn a_checkpoint_of_another_run_says_what_differs() {
    let folder = Folder::new();
    let fit = "fit moons(n=100) --method spin --k 2 --batch 32 --checkpoint c.mercer";
    folder.said(&format!("{fit} --steps 10"));
    let said = folder.refused(&format!("{fit} --steps 12 --resume"));
    assert!(said.contains("another run: steps 10 there, 12 here. Give the same options"), "{said}");
}

#[test]
fn figures_are_written_as_their_names_say() {
    let folder = Folder::new();
    let (width, height) = (680u32, 520u32);
    for name in ["z.svg", "z.png"] {
        folder.said(&format!("embed moons(n=60) --k 2 --plot {name}"));
        let file = std::fs::read(folder.join(name)).unwrap();
        match name {
            "z.svg" => assert!(file.starts_with(b"<svg ")),
            // Two pixels for each unit.
            _ => {
                assert!(file.starts_with(b"\x89PNG\r\n\x1a\n"));
                assert_eq!(file[16..24], [(2 * width).to_be_bytes(), (2 * height).to_be_bytes()].concat());
            }
        }
    }
    folder.refuses("embed moons(n=60) --k 2 --plot z.pdf", "must end in .svg or .png");
}

/// Without held-out points there is nothing to say of fresh ones: no interval, no bound, and no band that would be one.
#[test]
fn a_fit_without_held_out_points_shows_no_intervals() {
    let folder = Folder::new();
    let x = Array2::from_shape_fn((60, 2), |(i, c)| ((i * (c + 3) * 37) % 61) as f64 / 30.0);
    let k = gram::<f64>(&Kernel::parse("rbf(1)").unwrap(), x.view(), Device::Cpu).unwrap();
    for (name, array) in [("x.npy", &x), ("k.npy", &k)] {
        mercer::data::write_npy(&folder.join(name), array.view()).unwrap();
    }
    let fits = ["x.npy --kernel 'rbf(1)' --scale none --holdout 0", "k.npy --kernel precomputed"];
    for fit in fits.map(|fit| format!("fit {fit} --k 3")) {
        let certificate = &folder.object(&fit)["certificate"];
        for what in ["interval", "population_bound", "population_residual"] {
            assert!(certificate[what].as_array().unwrap().iter().all(serde_json::Value::is_null), "{fit}: {what}");
        }
        let said = folder.said(&format!("{fit} --report r.html"));
        assert!(said.lines().nth(3).unwrap().contains(" – "), "{said}");
        let page = text(&folder, "r.html");
        assert!(page.contains("Eigenvalues on a logarithmic axis.") && !page.contains("the band is"));
    }
    folder.said("fit x.npy --kernel 'rbf(1)' --scale none --holdout 0.3 --k 3 --report r.html");
    assert!(text(&folder, "r.html").contains("the band is the 95 % interval"));
    // Half of the diagonal is taken off: 157 % of the trace, or 100 % of a rank, would be false.
    let indefinite = &k - &(0.5 * Array2::<f64>::eye(60));
    mercer::data::write_npy(&folder.join("n.npy"), indefinite.view()).unwrap();
    let output = folder.mercer("fit n.npy --kernel precomputed --k 40 --method exact").output().unwrap();
    let [said, warned] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(
        said.contains("Indefinite: negative eigenvalues hold") && said.contains("of the sum of absolute eigenvalues."),
        "{said}"
    );
    assert!(warned.contains("not positive semi-definite"), "{warned}");
    let targets = Array2::from_shape_fn((60, 1), |(i, _)| i as f64);
    mercer::data::write_npy(&folder.join("y.npy"), targets.view()).unwrap();
    let output = folder.mercer("regress n.npy --kernel precomputed --target y.npy").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("not positive semi-definite"), "{output:?}");
    let output = folder.mercer("embed n.npy --kernel precomputed --k 2 --out z.npy --json").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("not positive semi-definite"), "{output:?}");
    let shares: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shares: Vec<f64> = serde_json::from_value(shares["explained"].clone()).unwrap();
    assert!(shares.iter().all(|share| (0.0..1.0).contains(share)) && shares[0] > 0.1, "{shares:?}");
}
