//! `mercer demo`: one kernel on the embedded digits, by every method.

mod page;

use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::text;
use clap::Args;
use mercer::data::{Dataset, digits};
use mercer::kernel::{Expression, Kernel};
use mercer::options::Options;
use mercer::spectrum::{Problem, Size, Spectrum};
use mercer::{Error, FitContext, Result, learn};
use serde_json::json;

/// Decompose a kernel on embedded data by every method, and write a report
#[derive(Args)]
pub struct Demo {
    /// Report to write
    #[arg(long, short, value_name = "FILE", default_value = "report/demo.html")]
    out: NewFile,
}

const KERNEL: &str = "rbf(lengthscale=median)";
const K: usize = 10;

/// What the demonstration found.
struct Found {
    /// Fitted points and held-out points.
    data: [Dataset; 2],
    kernel: Kernel,
    /// By every method that suits the kernel, the exact one first.
    spectra: Vec<Spectrum>,
    /// The methods that do not, each with its reason.
    unsuited: Vec<(&'static str, String)>,
}

impl Demo {
    pub fn run(self, context: &Context) -> Result<()> {
        if let Some(folder) = self.out.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        }
        let out = Output::with_extension(&self.out, &["html"])?;
        let found = find(context)?;
        out.text(&page::page(&found, context)?.html())?;
        let object = json!({
            "kernel": found.exact().origin.kernel,
            "n": found.exact().origin.n,
            "k": K,
            "methods": found.spectra.iter().map(|spectrum| super::fit::fitted(spectrum, None)).collect::<Vec<_>>(),
            "unsuited": found.unsuited,
            "out": out,
        });
        context.result(&object, || {
            let (headings, rows) = found.table();
            let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
            let mut said = format!("{}\n\n{}\n", found.setting(), text::table(&headings, &rows));
            for (method, why) in &found.unsuited {
                said += &format!("{method} is left out: {why}\n");
            }
            said + &format!("wrote {}; open it in a browser\n", self.out.display())
        })
    }
}

/// Every method on the same points, certified on the same held-out points.
fn find(context: &Context) -> Result<Found> {
    let (train, held_out) = digits().split(0.1, context.seed)?;
    let (x, held_out_x) = (train.x.to_f64(), held_out.x.to_f64());
    let kernel = Expression::parse(KERNEL)?.resolve(x.view(), context.seed)?;
    let (mut spectra, mut unsuited) = (Vec::new(), Vec::new());
    for (i, entry) in learn::spectra().entries.iter().enumerate() {
        let bar = context.bar();
        // Part of a demonstration is none: an interrupt ends it.
        let fit_context = FitContext { data: "digits", interrupt: None, ..context.fit(&bar) };
        let stage = fit_context.stage("method", i + 1, learn::spectra().entries.len());
        let fit_context = FitContext { progress: &stage, ..fit_context };
        let operator = fit_context.kernel_operator(&kernel, x.view())?;
        let problem = Problem { operator: &operator, k: K, context: fit_context };
        let method = learn::spectra().build(entry.name, Options::none(), &Size::new(train.n(), K))?;
        match Spectrum::fit(method.as_ref(), &problem, Some(held_out_x.view().into())) {
            Ok(spectrum) => spectra.push(spectrum),
            // The advice after the semicolon does not apply here.
            Err(Error::Input(why)) => unsuited.push((entry.name, text::rounded(why.split(';').next().unwrap_or(&why)))),
            Err(error) => return Err(error),
        }
    }
    drop((x, held_out_x));
    Ok(Found { data: [train, held_out], kernel, spectra, unsuited })
}

impl Found {
    /// The result that the others are compared with.
    fn exact(&self) -> &Spectrum {
        &self.spectra[0]
    }

    fn setting(&self) -> String {
        let [train, held_out] = &self.data;
        format!(
            "{} of the digits: {} of {}, {} held out to certify the result",
            text::rounded(&self.exact().origin.kernel),
            text::count(train.n(), "point"),
            text::count(train.d(), "column"),
            held_out.n()
        )
    }

    /// Eigenvalues down, methods across; below them errors and times.
    fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let headings = [String::new()].into_iter().chain(self.spectra.iter().map(|s| s.origin.method.clone()));
        let row = |name: String, cell: &dyn Fn(&Spectrum) -> String| -> Vec<String> {
            [name].into_iter().chain(self.spectra.iter().map(cell)).collect()
        };
        let mut rows: Vec<Vec<String>> =
            (0..K).map(|j| row(format!("eigenvalue {}", j + 1), &|s| text::number(s.eigenvalues[j], 6))).collect();
        rows.push(row("error against exact, largest".into(), &|s| text::error(self.eigenvalue_error(s))));
        rows.push(row("residual, largest".into(), &|s| text::error(s.certificate.worst_residual())));
        rows.push(row("residual, median".into(), &|s| text::error(median(&s.certificate.residual))));
        rows.push(row("seconds".into(), &|s| format!("{:.3}", s.origin.seconds)));
        (headings.collect(), rows)
    }

    /// `max_j |μ_j − μ_j*| / μ_j*`, the star being the exact method's.
    fn eigenvalue_error(&self, spectrum: &Spectrum) -> f64 {
        let pairs = spectrum.eigenvalues.iter().zip(&self.exact().eigenvalues);
        pairs.map(|(μ, exact)| (μ - exact).abs() / exact).fold(0.0, f64::max)
    }
}

fn median(values: &[Option<f64>]) -> f64 {
    let mut known: Vec<f64> = values.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len() / 2).copied().unwrap_or(0.0)
}
