//! What a run may meet outside of its numbers: files that are special, in use or gone, signals, full pipes, odd names.
#![cfg(unix)]

mod common;

use common::{Folder, names};
use mercer::data::{digits, write_npy};
use mercer::rng::Rng;
use ndarray::{Array2, s};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Standard normal numbers `[n, d]`.
fn normal(n: usize, d: usize) -> Array2<f64> {
    Rng::new(7).normals((n, d))
}

/// Waits until `there` is true, for a minute at most.
#[track_caller]
fn wait_until(what: &str, there: impl Fn() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {what} after a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

// ---- Files that are written ----

#[test]
fn pipes_and_links_are_written_through_and_modes_stay() {
    let folder = Folder::new();
    let fit = "fit moons(n=60) --k 2 --out";
    folder.said(&format!("{fit} plain"));
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    symlink("pipe", folder.join("to-pipe")).unwrap();
    for name in ["pipe", "to-pipe"] {
        let reader = Command::new("cat").arg(folder.join("pipe")).stdout(Stdio::piped()).spawn().unwrap();
        folder.said(&format!("{fit} {name}"));
        let read = reader.wait_with_output().unwrap().stdout;
        // The file says how long the fit took, so that only its length is known.
        assert!(read.len().abs_diff(fs::read(folder.join("plain")).unwrap().len()) < 64);
        assert!(fs::metadata(folder.join("pipe")).unwrap().file_type().is_fifo());
    }
    fs::write(folder.join("real"), "old").unwrap();
    fs::set_permissions(folder.join("real"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real", folder.join("link")).unwrap();
    folder.said(&format!("{fit} link"));
    assert!(fs::symlink_metadata(folder.join("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(folder.join("real")).unwrap().permissions().mode() & 0o777, 0o640);
    folder.said("inspect real");
    assert_eq!(names(folder.0.path()), ["link", "pipe", "plain", "real", "to-pipe"]);
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let folder = Folder::new();
    let table: String = (0..60).map(|i| format!("{i},{},{}\n", i % 7, i % 2)).collect();
    fs::write(folder.join("d.csv"), format!("a,b,y\n{table}")).unwrap();
    fs::copy(folder.join("d.csv"), folder.join("e.csv")).unwrap();
    fs::hard_link(folder.join("d.csv"), folder.join("hard.csv")).unwrap();
    symlink("d.csv", folder.join("soft.csv")).unwrap();
    folder.said("fit d.csv --k 2 --holdout 0 --out m.csv");
    folder.said("train d.csv --target y --net mlp --epochs 1 --out n.safetensors");
    let before: Vec<Vec<u8>> =
        ["d.csv", "e.csv", "m.csv", "n.safetensors"].map(|name| fs::read(folder.join(name)).unwrap()).into();
    for line in [
        "fit d.csv --out d.csv",
        "fit d.csv --out ./d.csv",
        "fit d.csv --out hard.csv",
        "fit d.csv --out soft.csv",
        "fit soft.csv --out d.csv",
        "fit d.csv --certify e.csv --out e.csv",
        "fit d.csv --method neuralef --steps 5 --checkpoint d.csv",
        "fit d.csv --method neuralef --steps 5 --checkpoint d.csv --overwrite",
        "fit d.csv --method neuralef --steps 5 --checkpoint d.csv --resume",
        "train d.csv --target y --net mlp --epochs 1 --checkpoint d.csv --overwrite",
        "train d.csv --test e.csv --target y --net mlp --checkpoint e.csv --overwrite",
        "gram d.csv --out d.csv",
        "gram d.csv --cross e.csv --out e.csv",
        "embed d.csv --out d.csv",
        "regress d.csv --target y --predict e.csv --out e.csv",
        "regress d.csv --target y --predict e.csv --out d.csv",
        "transform m.csv e.csv --out m.csv",
        "transform m.csv e.csv --out e.csv",
    ] {
        folder.refuses(line, "is read by this command");
    }
    folder.refuses("fit d.csv --method ritz --steps 1 --checkpoint c --out c", "both --out and --checkpoint");
    let after: Vec<Vec<u8>> =
        ["d.csv", "e.csv", "m.csv", "n.safetensors"].map(|name| fs::read(folder.join(name)).unwrap()).into();
    assert!(before == after);
    // A result that is no input is replaced, as users of command lines expect.
    folder.said("gram d.csv --out e.csv");
}

#[test]
fn files_of_images_and_labels_are_not_written_over() {
    let folder = Folder::new();
    let record: Vec<u8> = (0..3073).map(|i| (i % 10) as u8).collect();
    fs::create_dir(folder.join("images")).unwrap();
    for i in 1..=5 {
        fs::write(folder.join(format!("images/data_batch_{i}.bin")), record.repeat(12)).unwrap();
    }
    let labels = [&[0, 0, 8, 1, 0, 0, 0, 1][..], &[3]].concat();
    fs::write(folder.join("t-labels-idx1-ubyte"), &labels).unwrap();
    fs::write(folder.join("t-images-idx3-ubyte"), [0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7]).unwrap();
    folder.refuses("fit images --k 2 --out images/data_batch_1.bin", "is read by this command");
    folder.refuses("fit t-images-idx3-ubyte --k 1 --out t-labels-idx1-ubyte", "is read by this command");
    assert!(fs::read(folder.join("images/data_batch_1.bin")).unwrap() == record.repeat(12));
    assert!(fs::read(folder.join("t-labels-idx1-ubyte")).unwrap() == labels);
}

#[test]
fn a_checkpoint_is_replaced_only_if_that_is_asked_for() {
    let folder = Folder::new();
    let fit = "fit moons(n=80) --k 2 --method neuralef --net 'dense(8) tanh dense(1)' --checkpoint c --steps";
    let train = "train moons(n=80) --net mlp --checkpoint c --epochs";
    for [line, other] in [[format!("{fit} 20"), format!("{fit} 30")], [format!("{train} 1"), format!("{train} 2")]] {
        let _ = fs::remove_file(folder.join("c"));
        folder.said(&line);
        let kept = fs::read(folder.join("c")).unwrap();
        let message = folder.refused(&other);
        assert!(message.contains("--resume") && message.contains("--overwrite"), "{message}");
        assert!(fs::read(folder.join("c")).unwrap() == kept);
        folder.refuses(&format!("{other} --resume"), "another run");
        folder.said(&format!("{line} --resume"));
        folder.said(&format!("{other} --overwrite"));
        folder.said(&format!("{other} --resume"));
        folder.refuses(&format!("{other} --resume --overwrite"), "cannot be given together");
    }
}

/// A killed run leaves at most one temporary file, which the next one of the same name removes.
#[cfg(target_os = "linux")]
#[test]
fn killed_runs_leave_no_temporary_files() {
    let folder = Folder::new();
    let sample = "sample moons(n=2000) --net 'dense(64) erf dense(1)' --out F.npy --count";
    let mut child = folder.mercer(&format!("{sample} 1000000 --quiet")).spawn().unwrap();
    let place = folder.0.path().canonicalize().unwrap();
    let files = format!("/proc/{}/fd", child.id());
    let opened = || fs::read_dir(&files).unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    wait_until("file that is written", || opened().any(|file| file.starts_with(&place)));
    child.kill().unwrap();
    child.wait().unwrap();
    folder.said(&format!("{sample} 3"));
    assert_eq!(names(folder.0.path()), ["F.npy"]);
}

// ---- Odd names, full pipes, extreme numbers ----

#[test]
fn names_that_are_not_utf8_are_shown_as_well_as_they_can_be() {
    let folder = Folder::new();
    write_npy(folder.join("x.npy"), digits().x.to_f64().slice(s![..60, ..])).unwrap();
    let odd = |extension: &str| -> OsString { OsStr::from_bytes(&[b"\xff", extension.as_bytes()].concat()).to_owned() };
    let run = |line: &str, files: &[(&str, OsString)]| -> Value {
        let mut command = folder.mercer(line);
        files.iter().for_each(|(option, file)| {
            command.args((!option.is_empty()).then_some(option)).arg(file);
        });
        let output = command.arg("--json").output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let out = |extension: &str| [("--out", odd(extension))];
    let shown = |object: Value, extension: &str| assert_eq!(object["out"], format!("\u{fffd}{extension}"), "{object}");
    run("fit x.npy --k 2 --holdout 0", &out(".mercer"));
    shown(run("gram x.npy", &out(".npy")), ".npy");
    shown(run("embed x.npy", &[("--out", odd(".csv")), ("--plot", odd(".svg"))]), ".csv");
    shown(run("sample moons(n=9) --net 'dense(3) erf dense(1)' --count 2", &out(".npy")), ".npy");
    shown(run("ntk moons(n=9) --net 'dense(3) erf dense(1)'", &out(".npy")), ".npy");
    shown(run("regress moons(n=60) --predict moons(n=9)", &out(".npy")), ".npy");
    let checkpoint = ("--checkpoint", odd(".state"));
    shown(run("train moons(n=60) --net mlp --epochs 1", &[out(".safetensors")[0].clone(), checkpoint]), ".safetensors");
    let model = run("transform", &[("", odd(".mercer")), ("", "x.npy".into()), ("--out", odd(".csv"))]);
    assert_eq!(model["model"], "\u{fffd}.mercer");
    shown(model, ".csv");
    shown(run("evaluate", &[("", odd(".safetensors")), ("", "moons(n=9)".into()), ("--out", odd(".npy"))]), ".npy");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 7);
    // Data sets are named in text.
    let output = folder.mercer("fit").arg(odd(".npy")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: an argument is not UTF-8"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_changes_no_result() {
    let folder = Folder::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (line, code) in [
        ("fit moons(n=20) --k 2 --out m.mercer", 0),
        ("train moons(n=60) --net mlp --epochs 1", 0),
        ("fit no-such-file.npy", 2),
        ("fit moons --no-such-option", 2),
    ] {
        let status = folder.mercer(line).stderr(full()).stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{line}");
    }
    folder.said("inspect m.mercer");
}

#[test]
fn numbers_beyond_reason_are_refused() {
    let folder = Folder::new();
    folder.refuses("fit moons(n=60) --k 2 --threads 5000", "--threads 5000 is too many");
    folder.refuses("train moons(n=300) --net mlp --epochs 9223372036854775808", "ask for fewer epochs");
}

// ---- Files that change under a run ----

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_loses_its_end_ends_the_run_with_a_reason() {
    let folder = Folder::new();
    let net = "--net 'dense(8) tanh dense(1)'";
    folder.said("sample moons(n=4000) --net 'dense(8) erf dense(1)' --count 50 --out F.npy");
    let fit = format!("fit moons(n=4000) --samples F.npy --k 2 --method neuralef {net} --steps 100000000");
    let mut command = folder.mercer(&format!("{fit} --checkpoint c --quiet"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("checkpoint", || folder.join("c").exists());
    fs::OpenOptions::new().write(true).open(folder.join("F.npy")).unwrap().set_len(4096).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.starts_with("error: a file lost its end"), "{message} {:?}", output.status);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn training_is_resumed_with_the_same_precision_and_the_same_samples_only() {
    let folder = Folder::new();
    let fit = "fit moons(n=80) --k 2 --method neuralef --net 'dense(8) tanh dense(1)' --steps 20 --checkpoint c";
    folder.said(fit);
    folder.refuses(&format!("{fit} --resume --precision f32"), "another run");
    folder.said(&format!("{fit} --resume --precision f64"));

    let f = normal(6, 80);
    write_npy(folder.join("F.npy"), f.view()).unwrap();
    let sampled = format!("{fit} --samples F.npy");
    folder.said(&format!("{sampled} --overwrite"));
    folder.said(&format!("{sampled} --resume"));
    // Two functions with other signs on half of the points: another kernel with the same diagonal.
    let mut other = f.clone();
    other.slice_mut(s![..2, ..40]).mapv_inplace(|v| -v);
    write_npy(folder.join("F.npy"), other.view()).unwrap();
    folder.refuses(&format!("{sampled} --resume"), "another run");

    // Labelled rows with the same mean.
    let rows =
        |sign: i32| -> String { (0..60).map(|i| format!("{},{}\n", sign * (i - 30) * 2 + sign, i % 2)).collect() };
    let write = |sign: i32| fs::write(folder.join("d.csv"), format!("x,y\n{}{}\n", rows(sign), "0,0")).unwrap();
    write(1);
    let train = "train d.csv --target y --test d.csv --net mlp --epochs 1 --checkpoint c";
    folder.said(&format!("{train} --overwrite"));
    folder.said(&format!("{train} --resume"));
    write(-1);
    folder.refuses(&format!("{train} --resume"), "another run");
}

#[test]
fn training_goes_on_after_a_hangup_under_nohup() {
    let folder = Folder::new();
    let fit = "fit moons(n=80) --k 2 --method neuralef --net 'dense(8) tanh dense(1)' --steps 100000000 --checkpoint c";
    for nohup in [false, true] {
        let _ = fs::remove_file(folder.join("c"));
        let plain = folder.mercer(&format!("{fit} --quiet"));
        let mut command = Command::new(if nohup { OsStr::new("nohup") } else { plain.get_program() });
        command.args(nohup.then_some(plain.get_program())).args(plain.get_args()).current_dir(folder.0.path());
        // SAFETY: the call is allowed between fork and exec. The suite itself may have been started by nohup.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("checkpoint", || folder.join("c").exists());
        signal("-HUP", &child);
        if nohup {
            std::thread::sleep(Duration::from_millis(300));
            assert!(child.try_wait().unwrap().is_none(), "it must go on");
            signal("-TERM", &child);
        }
        // 128 and the number of the signal: SIGTERM is 15, SIGHUP 1.
        assert_eq!(child.wait().unwrap().code(), Some(if nohup { 143 } else { 129 }));
    }
}

// ---- Memory ----

/// Runs a command that succeeds; the most memory that it had, in bytes.
#[cfg(target_os = "linux")]
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn peak_memory(mut command: Command) -> u64 {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: waits for a child that nobody else waits for; both results are written by the call, and zeros are valid too.
    let usage = unsafe {
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()), child.id() as i32);
        usage.assume_init()
    };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{command:?}");
    usage.ru_maxrss as u64 * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn eigenmaps_of_ordinary_data_stay_within_their_memory() {
    let folder = Folder::new();
    write_npy(folder.join("x.npy"), normal(1000, 20).view()).unwrap();
    // In twenty dimensions a walk forgets where it was in a few steps: its eigenvalues are far from one.
    let object = folder.object("embed x.npy --method laplacian --k 3 --out z.npy");
    let eigenvalues: Vec<f64> = serde_json::from_value(object["eigenvalues"].clone()).unwrap();
    assert!(eigenvalues.iter().all(|λ| (0.2..0.5).contains(λ)) && eigenvalues.is_sorted(), "{eigenvalues:?}");

    let embed = "embed swiss-roll(n=8000) --method laplacian --out z.npy --threads 2 --memory";
    folder.refuses(&format!("{embed} 24MB"), "the graph of 10 neighbours of 8000 points");
    let program = peak_memory(folder.mercer("embed moons(n=50) --method laplacian --out z.npy --threads 2"));
    let used = peak_memory(folder.mercer(&format!("{embed} 30MB"))) - program;
    assert!(used < 30_000_000, "{used}");
}
