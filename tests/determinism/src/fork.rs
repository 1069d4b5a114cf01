//! Copies of a process, which begin with everything that it has in memory.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// The process in which [`fork`] has returned.
#[derive(Debug)]
pub enum Fork {
    Copy,
    /// The process that was copied.
    Original(Copied),
}

/// A copy of this process.
#[derive(Debug)]
pub struct Copied(libc::pid_t);

/// Copies this process, and returns in both.
/// It fails when the process has further threads, which the copy would not have.
pub fn fork() -> io::Result<Fork> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process with {threads} threads cannot be copied")));
    }
    #[expect(unsafe_code, reason = "a system call; no other thread holds a lock")]
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Copy),
        process => Ok(Fork::Original(Copied(process))),
    }
}

impl Copied {
    /// Waits for the end of the copy.
    pub fn wait(self) -> io::Result<ExitStatus> {
        let mut status = 0;
        loop {
            #[expect(unsafe_code, reason = "a system call that writes to `status`")]
            let ended = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
            let error = io::Error::last_os_error();
            match ended {
                -1 if error.kind() == io::ErrorKind::Interrupted => {}
                -1 => return Err(error),
                _ => return Ok(ExitStatus::from_raw(status)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_rejects_a_process_with_threads() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv());
        let error = fork().unwrap_err().to_string();
        assert!(error.contains("threads cannot be copied"), "{error}");
        end.send(()).unwrap();
        thread.join().unwrap().unwrap();
    }
}
