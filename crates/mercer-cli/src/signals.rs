//! Signals: an early end with the best result so far, and a reason where a mapped file loses its end.

use crate::context::say;
use crate::distributed;
use mercer::Interrupt;
use std::io::IsTerminal;

/// Requested by Ctrl-C, SIGTERM or SIGHUP once [`listen`] was called.
pub static INTERRUPT: Interrupt = Interrupt::new();

/// 128 + SIGINT: the code that shells use for a program ended by Ctrl-C.
const INTERRUPTED_EXIT_CODE: i32 = 130;

/// Lets the first Ctrl-C, SIGTERM or SIGHUP end the work with the best result so far. Where it has none, or at a second one, the
/// program ends at once.
pub fn listen() {
    let ignored = hangups_are_ignored();
    let installed = ctrlc::set_handler(interrupt);
    if ignored {
        ignore_hangups();
    }
    // Without a handler, the signals end the program at once, as they do by default.
    if let Err(error) = installed {
        say(format_args!("warning: Ctrl-C will not end the run cleanly: {error}"));
    }
}

fn interrupt() {
    // One of several ranks speaks for all, where the launcher sends the signal to each.
    let say = |text: std::fmt::Arguments| {
        if distributed::group().rank() == 0 {
            say(text);
        }
    };
    let again = INTERRUPT.requested();
    let kept = INTERRUPT.request();
    // On a terminal the line may have a progress bar.
    let start = if std::io::stderr().is_terminal() { "\n" } else { "" };
    if kept && !again {
        return say(format_args!(
            "{start}interrupted: ending with the best result so far; press Ctrl-C again to end at once"
        ));
    }
    let why = if again { "the second interrupt ends the program" } else { "there is no result yet that could be kept" };
    say(format_args!("{start}interrupted: {why}"));
    std::process::exit(INTERRUPTED_EXIT_CODE);
}

/// Whether the program was started by `nohup`, and is to go on after its terminal is closed.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    // SAFETY: with no new action the call only writes the present one; all zeros is a valid value of it.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut present) == 0 && present.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(unix)]
fn ignore_hangups() {
    // SAFETY: to ignore a signal runs no code.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

#[cfg(not(unix))]
fn hangups_are_ignored() -> bool {
    false
}

#[cfg(not(unix))]
fn ignore_hangups() {}

/// Ends the program with a reason where another program has cut off a file that is mapped into memory: the system answers
/// reads beyond its new end by the signal SIGBUS.
#[cfg(target_os = "linux")]
pub fn explain_truncated_files() {
    extern "C" fn explain(_: libc::c_int) {
        const WHY: &str =
            "error: a file lost its end while it was being read; let no program change the files of a run\n";
        // SAFETY: both calls are allowed in a signal handler, and the text outlives them.
        unsafe {
            libc::write(libc::STDERR_FILENO, WHY.as_ptr().cast(), WHY.len());
            libc::_exit(crate::BAD_INPUT.into());
        }
    }
    // SAFETY: the handler only calls what is allowed in one. Overflowing stacks raise another signal, SIGSEGV.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = explain as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

#[cfg(not(target_os = "linux"))]
pub fn explain_truncated_files() {}
