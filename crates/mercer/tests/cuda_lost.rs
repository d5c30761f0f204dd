//! A device that is lost in the middle of training.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use mercer::compute::cuda::{Source, gpu};
use mercer::spectrum::neural::{Kind, OnData, Settings, Spin, Trained};
use mercer::{Error, Progress, Silent};
use neural::parameters;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "a_lost_device_ends_with_the_last_checkpoint";
/// Where the process that loses its device writes its checkpoint.
const CHECKPOINT: &str = "MERCER_TEST_LOST_CHECKPOINT";

/// Some seconds of training: progress is told ten times a second.
const STEPS: u64 = 20_000;

/// A kernel that stops the device for the whole process, once training has come to this step.
struct Loses(usize);

impl Progress for Loses {
    fn step(&self, _: &str, done: usize, _: usize, _: &str) {
        if done >= self.0 {
            let trap = Source::new("extern \"C\" __global__ void lose() { asm(\"trap;\"); }".into());
            // SAFETY: the kernel has no parameters.
            unsafe { gpu(0).unwrap().launch(&trap, "lose", [1, 1, 1], 1, 0, &[]) };
        }
    }
}

/// NeuralEF on the device, with its checkpoint at `checkpoint`, continued from there where `resume`.
fn trained(checkpoint: Option<PathBuf>, resume: bool, progress: &dyn Progress) -> mercer::Result<Trained> {
    let x = uniform(300, 2, 2.0, 4);
    let settings = Settings { steps: STEPS, batch: 64, patience: 1000, checkpoint, resume, ..Settings::default() };
    let device = Device::Cuda(0);
    let context = FitContext { device, precision: Precision::F32, progress, ..FitContext::default() };
    let kernel = context.kernel_operator(&kernel("rbf(1)"), x.view())?;
    let kind = Kind::Spin(Spin::PUBLISHED);
    neural::trained(kind, "dense(16) sincos dense(1)", &OnData::new(&kernel)?, 3, &settings, &context)
}

/// In a process of its own, because it has no device afterwards.
fn lose_the_device(checkpoint: &Path) {
    let Err(error) = trained(Some(checkpoint.to_owned()), false, &Loses(1000)) else {
        panic!("training went on without a device")
    };
    println!("{error}");
    assert!(matches!(error, Error::Device(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("has failed") && text.contains(&checkpoint.display().to_string()), "{text}");
    assert!(text.contains("training can resume from it"), "{text}");
}

#[test]
#[ignore = "needs a GPU"]
fn a_lost_device_ends_with_the_last_checkpoint() {
    if let Some(checkpoint) = std::env::var_os(CHECKPOINT) {
        return lose_the_device(Path::new(&checkpoint));
    }
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--ignored", "--nocapture"])
        .env(CHECKPOINT, &checkpoint)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
    println!("{said}");
    let (resumed, whole) = (trained(Some(checkpoint), true, &Silent).unwrap(), trained(None, false, &Silent).unwrap());
    assert_eq!(resumed.record.steps, STEPS);
    assert_eq!(parameters(&resumed.functions), parameters(&whole.functions));
}
