//! A terminal for the binary, with somebody at it who types.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::common::Place;

/// Longest wait for a text that is to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary at a terminal.
pub(crate) struct Pty {
    keys: File,
    /// The program's side, kept open so that its settings can be looked at.
    screen: OwnedFd,
    output: Receiver<Vec<u8>>,
    /// What was shown since the last [`Pty::wait_for`].
    pending: String,
    child: Child,
}

impl Pty {
    /// Start the binary in a place, at a terminal of so many columns.
    pub(crate) fn start(place: &Place, args: &[&str], columns: u16) -> Pty {
        Pty::start_with(place, args, columns, &[])
    }

    /// Starts the binary with additional environment variables.
    pub(crate) fn start_with(
        place: &Place,
        args: &[&str],
        columns: u16,
        variables: &[(&str, &str)],
    ) -> Pty {
        let line = [&[env!("CARGO_BIN_EXE_rooflight")], args].concat();
        Pty::start_program(place, &line, columns, variables)
    }

    /// Starts any program at the terminal.
    pub(crate) fn start_program(
        place: &Place,
        line: &[&str],
        columns: u16,
        variables: &[(&str, &str)],
    ) -> Pty {
        let controller =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal is made");
        grantpt(&controller).expect("granted");
        unlockpt(&controller).expect("unlocked");
        let name = ptsname(&controller, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let screen = rustix::fs::open(&name, flags, Mode::empty()).expect("it opens");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).expect("it has a size");
        let side = || Stdio::from(screen.try_clone().expect("cloned"));
        let child = Command::new("setsid")
            .arg("--ctty")
            .args(line)
            .current_dir(place.path("."))
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(testing::device_variables())
            .env("HOME", place.path("."))
            .env("TERM", "xterm")
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .envs(variables.iter().copied())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("setsid of util-linux starts the binary");
        let keys = File::from(controller);
        let mut reader = keys.try_clone().expect("cloned");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Pty { keys, screen, output, pending: String::new(), child }
    }

    /// Type.
    pub(crate) fn send(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// What is shown until `text` is, `text` included.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.pending.find(text) {
                let rest = self.pending.split_off(at + text.len());
                return std::mem::replace(&mut self.pending, rest);
            }
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.pending.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{text:?} was not shown, but {:?}", self.pending)
                }
            }
        }
    }

    /// Type a line and wait for what comes of it: the next prompt.
    pub(crate) fn line(&mut self, line: &str) -> String {
        self.send(line);
        self.send("\r");
        self.wait_for("\n");
        self.wait_for(PROMPT)
    }

    /// Waits until the program handles Ctrl-C itself.
    pub(crate) fn wait_for_handler(&self) {
        const SIGINT: u64 = 1 << 1;
        let end = Instant::now() + PATIENCE;
        let caught = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
            let line = status
                .ok()?
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:").map(str::to_owned));
            u64::from_str_radix(line?.trim(), 16).ok()
        };
        while caught().is_none_or(|signals| signals & SIGINT == 0) {
            assert!(Instant::now() < end, "Ctrl-C is not handled");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Wait for the end; its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    /// Whether the terminal shows what is typed.
    pub(crate) fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.screen).expect("it has settings").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the line editor shows when it waits.
pub(crate) const PROMPT: &str = ">>> ";
