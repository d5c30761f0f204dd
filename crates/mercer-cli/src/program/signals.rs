//! Signals: an early end with the best result so far, and a reason where a mapped file loses its end.

use crate::program::context::say;
use crate::program::distributed;
use mercer::{Group, Interrupt, Result};
use std::io::IsTerminal;
use std::process::ExitCode;
#[cfg(unix)]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Requested by Ctrl-C, SIGTERM or SIGHUP once [`listen`] was called.
pub static INTERRUPT: Interrupt = Interrupt::new();

/// The last signal that asked to end.
static SIGNAL: AtomicU8 = AtomicU8::new(0);

/// Whether the work went on to the best result that it had.
static CUT_SHORT: AtomicBool = AtomicBool::new(false);

/// 128 + the number of the signal: the code that shells use for a program that a signal ended; that of Ctrl-C, 130, where the system does not
/// say which it was.
fn code_of_signal() -> u8 {
    const SIGINT: u8 = 2;
    let signal = SIGNAL.load(Ordering::SeqCst);
    128 + if signal == 0 { SIGINT } else { signal }
}

/// Whether a signal ended the work early, with the best result so far.
pub fn cut_short() -> bool {
    CUT_SHORT.load(Ordering::SeqCst)
}

/// Lets all ranks know where one of them was cut short: they end with the same code. Collective.
pub fn agree(group: Group) -> Result<()> {
    if group.is_single() {
        return Ok(());
    }
    for rank in group.all_gather(&[u8::from(cut_short()), SIGNAL.load(Ordering::SeqCst)])? {
        if let [1, signal] = rank[..] {
            CUT_SHORT.store(true, Ordering::SeqCst);
            SIGNAL.fetch_max(signal, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// The exit code of a run with a result.
pub fn exit_code() -> ExitCode {
    if cut_short() { ExitCode::from(code_of_signal()) } else { ExitCode::SUCCESS }
}

/// Lets the first Ctrl-C, SIGTERM or SIGHUP end the work with the best result so far. Where it has none, or at a second one, the
/// program ends at once.
pub fn listen() {
    let ignored = hangups_are_ignored();
    let installed = ctrlc::set_handler(interrupt);
    note_signals();
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
        CUT_SHORT.store(true, Ordering::SeqCst);
        return say(format_args!(
            "{start}interrupted: ending with the best result so far; press Ctrl-C again to end at once"
        ));
    }
    let why = if again { "the second interrupt ends the program" } else { "there is no result yet that could be kept" };
    say(format_args!("{start}interrupted: {why}"));
    std::process::exit(code_of_signal().into());
}

/// Notes the number of each signal before the handler that is installed for it gets it: that one is not told.
#[cfg(unix)]
fn note_signals() {
    static NEXT: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    extern "C" fn note(signal: libc::c_int) {
        SIGNAL.store(signal as u8, Ordering::SeqCst);
        let next = SIGNALS.iter().position(|known| *known == signal).map_or(0, |i| NEXT[i].load(Ordering::SeqCst));
        if next != 0 {
            // SAFETY: it is the address of a handler of this type, which was installed without SA_SIGINFO.
            let next: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(next) };
            next(signal);
        }
    }
    for (signal, next) in SIGNALS.into_iter().zip(&NEXT) {
        // SAFETY: all zeros is a valid value, which the first call fills; the handler does what is allowed in one: it stores numbers, and calls
        // the handler that was there.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &mut action) == 0;
            let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            if known && is_handler && action.sa_flags & libc::SA_SIGINFO == 0 {
                next.store(action.sa_sigaction, Ordering::SeqCst);
                action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

#[cfg(not(unix))]
fn note_signals() {}

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
