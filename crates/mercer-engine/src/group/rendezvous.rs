//! How ranks without MPI come to one identity of NCCL: rank 0 makes it, and gives it to the others by one message over TCP, or in a file.

use crate::{Error, Result, fail_if};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A rank of several that the variables of PyTorch's launcher describe, and where it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// `RANK`
    pub rank: usize,
    /// `WORLD_SIZE`
    pub size: usize,
    /// `LOCAL_RANK`, the number of the process on its host.
    pub local_rank: usize,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// `MASTER_ADDR` and a port.
    Address(String, u16),
    /// `MERCER_ID_FILE`
    File(PathBuf),
}

/// Bytes of an identity of NCCL.
const IDENTITY: usize = 128;

/// What a message begins with.
const MAGIC: &[u8; 8] = b"mercerid";

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// How long one message may take.
const MESSAGE: Duration = Duration::from_secs(5);

impl Rendezvous {
    /// How long ranks wait for each other.
    pub const PATIENCE: Duration = Duration::from_secs(300);

    /// The rank that `RANK` and `WORLD_SIZE` say that this process is; none where they are not set.
    pub fn detect() -> Result<Option<Rendezvous>> {
        Rendezvous::among(|name| std::env::var(name).ok())
    }

    /// One of `size` ranks that meet by a file, which none of them has written yet.
    pub fn by_file(path: PathBuf, rank: usize, size: usize) -> Rendezvous {
        Rendezvous { rank, size, local_rank: 0, place: Place::File(path) }
    }

    fn among(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Rendezvous>> {
        let number = |name: &str, value: String| {
            let known = value.trim().parse::<usize>();
            known.map_err(|_| Error::input(format!("{name} is `{value}`; it must be a whole number")))
        };
        let of = |name: &str| variable(name).map(|value| number(name, value)).transpose();
        let (Some(rank), Some(size)) = (of("RANK")?, of("WORLD_SIZE")?) else { return Ok(None) };
        fail_if!(rank >= size, "RANK is {rank}, and WORLD_SIZE {size}; ranks are numbers from 0 to WORLD_SIZE - 1");
        let address = variable("MASTER_ADDR").zip(of("MASTER_PORT")?);
        let place = match (variable("MERCER_ID_FILE"), address) {
            (Some(file), _) => Place::File(file.into()),
            (None, Some((host, port))) => {
                // There torchrun itself listens at the port.
                let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|word| word == "True");
                let port = u16::try_from(port + usize::from(taken));
                let port = port.map_err(|_| Error::input("MASTER_PORT is no port; it must be below 65535"))?;
                Place::Address(host, port)
            }
            (None, None) => {
                return Err(Error::input(
                    "RANK and WORLD_SIZE are set, and nothing says where the ranks meet; set MASTER_ADDR and MASTER_PORT, or MERCER_ID_FILE",
                ));
            }
        };
        let local_rank = of("LOCAL_RANK")?.unwrap_or(0);
        Ok(Some(Rendezvous { rank, size, local_rank, place }))
    }

    /// The identity that `make` makes on rank 0, on every rank; an error after `patience`. To be ended by [`Self::end`].
    pub fn identity(&self, make: impl FnOnce() -> Result<Vec<u8>>, patience: Duration) -> Result<Vec<u8>> {
        let until = Instant::now() + patience;
        let own = (self.rank == 0).then(make).transpose()?;
        match (&self.place, own) {
            (_, Some(own)) if own.len() != IDENTITY => {
                Err(Error::Device(format!("an identity has {IDENTITY} bytes, not {}", own.len())))
            }
            (Place::Address(host, port), Some(own)) => self.give(&own, (host, *port), until, patience).map(|()| own),
            (Place::Address(host, port), None) => self.take((host, *port), until, patience),
            (Place::File(_), Some(own)) => self.write(&own).map(|()| own),
            (Place::File(_), None) => self.read(until, patience),
        }
    }

    /// Removes the file, on rank 0. All ranks have the identity.
    pub fn end(&self) {
        if let (Place::File(path), 0) = (&self.place, self.rank) {
            // What is left would only be refused by the next run.
            let _ = std::fs::remove_file(path);
        }
    }

    fn greeting(&self) -> Vec<u8> {
        [&MAGIC[..], &(self.rank as u64).to_le_bytes(), &(self.size as u64).to_le_bytes()].concat()
    }

    /// Gives the identity to each of the other ranks.
    fn give(&self, own: &[u8], (host, port): (&str, u16), until: Instant, patience: Duration) -> Result<()> {
        if self.size == 1 {
            return Ok(());
        }
        // The name may be that of a service in front of this host.
        let listener = TcpListener::bind((host, port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
        let wrong = |e: io::Error| {
            Error::input(format!("rank 0 cannot listen at the port {port} ({e}); set MASTER_PORT to one that is free"))
        };
        let listener = listener.map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let mut given = vec![false; self.size];
        given[0] = true;
        while given.contains(&false) {
            match listener.accept() {
                // A stranger, or a rank that tries again.
                Ok((stream, _)) => match greeted(&stream, self.size)? {
                    Some(rank) if !given[rank] => given[rank] = (&stream).write_all(own).is_ok(),
                    _ => {}
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock => sleep(PAUSE),
                Err(e) => return Err(wrong(e)),
            }
            if given.contains(&false) && Instant::now() > until {
                let missing: Vec<String> = (0..self.size).filter(|r| !given[*r]).map(|r| r.to_string()).collect();
                return Err(Error::input(format!(
                    "rank {} of {} did not come to {host}:{port} within {} s; start all ranks, with the same MASTER_ADDR and MASTER_PORT",
                    missing.join(", "),
                    self.size,
                    patience.as_secs()
                )));
            }
        }
        Ok(())
    }

    /// Takes the identity from rank 0.
    fn take(&self, (host, port): (&str, u16), until: Instant, patience: Duration) -> Result<Vec<u8>> {
        loop {
            if let Ok(id) = self.asked(host, port) {
                return Ok(id);
            }
            fail_if!(
                Instant::now() > until,
                "rank 0 did not answer rank {} of {} at {host}:{port} within {} s; start it, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE",
                self.rank,
                self.size,
                patience.as_secs()
            );
            sleep(PAUSE);
        }
    }

    fn asked(&self, host: &str, port: u16) -> io::Result<Vec<u8>> {
        let addresses = (host, port).to_socket_addrs()?;
        let mut last = io::Error::from(ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect_timeout(&address, MESSAGE) {
                Ok(mut stream) => {
                    stream.set_read_timeout(Some(MESSAGE))?;
                    stream.write_all(&self.greeting())?;
                    let mut id = vec![0; IDENTITY];
                    stream.read_exact(&mut id)?;
                    return Ok(id);
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn path(&self) -> &PathBuf {
        let Place::File(path) = &self.place else { unreachable!("asked for a file only") };
        path
    }

    /// Writes the file in one piece.
    fn write(&self, own: &[u8]) -> Result<()> {
        let path = self.path();
        fail_if!(path.exists(); Error::file(path, "exists already, perhaps from a run that ended early; remove it, and start all ranks again"));
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let written = std::fs::write(&new, [&self.greeting()[..], own].concat());
        written.and_then(|()| std::fs::rename(&new, path)).map_err(|e| Error::io(path, e))
    }

    /// Reads the file, once it is there.
    fn read(&self, until: Instant, patience: Duration) -> Result<Vec<u8>> {
        let path = self.path();
        let greeting = Rendezvous { rank: 0, ..self.clone() }.greeting();
        loop {
            match std::fs::read(path) {
                Ok(bytes) => {
                    let id = bytes.strip_prefix(&greeting[..]).filter(|id| id.len() == IDENTITY);
                    let what = "is not the identity of a run with this WORLD_SIZE; name another file by MERCER_ID_FILE";
                    return id.map(<[u8]>::to_vec).ok_or_else(|| Error::file(path, what));
                }
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io(path, e)),
                Err(_) => {}
            }
            fail_if!(Instant::now() > until; Error::file(path, format!(
                "was not written by rank 0 within {} s; start it, and let all ranks see the folder", patience.as_secs()
            )));
            sleep(PAUSE);
        }
    }
}

/// The rank that a connection is of; none where it is no rank. One of another number of ranks is an error.
fn greeted(mut stream: &TcpStream, size: usize) -> Result<Option<usize>> {
    let mut greeting = [0; 24];
    let read = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(MESSAGE)));
    if read.and_then(|()| stream.read_exact(&mut greeting)).is_err() || greeting[..8] != MAGIC[..] {
        return Ok(None);
    }
    let number = |at: usize| u64::from_le_bytes(greeting[at..at + 8].try_into().expect("eight bytes")) as usize;
    let (rank, theirs) = (number(8), number(16));
    fail_if!(
        theirs != size,
        "rank {rank} has WORLD_SIZE {theirs}, and rank 0 has {size}; start all ranks with the same"
    );
    Ok(Some(rank).filter(|rank| *rank < size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn among(known: &[(&str, &str)]) -> Result<Option<Rendezvous>> {
        Rendezvous::among(|name| known.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_variables_of_a_rank_are_understood() {
        let torch = [("RANK", "3"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "host"), ("MASTER_PORT", "29500")];
        let own = |local_rank, place| Rendezvous { rank: 3, size: 8, local_rank, place };
        assert_eq!(among(&[("PATH", "/bin"), ("RANK", "1")]).unwrap(), None);
        assert_eq!(among(&torch).unwrap(), Some(own(0, Place::Address("host".into(), 29500))));
        let run = [&torch[..], &[("LOCAL_RANK", "1"), ("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(among(&run).unwrap(), Some(own(1, Place::Address("host".into(), 29501))));
        let file = [&torch[..], &[("MERCER_ID_FILE", "/shared/id")]].concat();
        assert_eq!(among(&file).unwrap(), Some(own(0, Place::File("/shared/id".into()))));
        for (known, word) in [
            (&torch[..2], "nothing says where the ranks meet"),
            (&[("RANK", "8"), torch[1]], "RANK is 8, and WORLD_SIZE 8"),
            (&[("RANK", "one"), torch[1]], "RANK is `one`; it must be a whole number"),
            (&[torch[0], torch[1], torch[2], ("MASTER_PORT", "65536")], "MASTER_PORT is no port"),
        ] {
            let message = among(known).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn at(place: Place, rank: usize, size: usize) -> Rendezvous {
        Rendezvous { rank, size, local_rank: 0, place }
    }

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("mercer-{name}-{}", std::process::id()))
    }

    fn made() -> Result<Vec<u8>> {
        Ok((0..128).collect())
    }

    /// One of the processes of the next test; nothing by itself.
    #[test]
    #[ignore = "another test starts it"]
    fn one_of_several() {
        let Some(own) = Rendezvous::detect().unwrap() else { return };
        let found = own.identity(made, Duration::from_secs(20)).map_err(|e| e.to_string());
        println!("{}", found.map_or_else(|e| e, |id| format!("found {:?}", id == made().unwrap())));
    }

    #[test]
    fn processes_meet_by_an_address_and_by_a_file() {
        let (port, path) = (free_port().to_string(), file("met"));
        let (by_address, by_file) = (
            [("MASTER_ADDR", "localhost".to_owned()), ("MASTER_PORT", port)],
            [("MERCER_ID_FILE", path.to_string_lossy().into_owned()), ("MASTER_ADDR", "nowhere".into())],
        );
        for variables in [by_address, by_file] {
            // Rank 0 comes last.
            let start = |rank: usize| {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--ignored", "--exact", "--nocapture", "group::rendezvous::tests::one_of_several"]);
                command.env("RANK", rank.to_string()).env("WORLD_SIZE", "3").envs(variables.clone());
                command.stdout(Stdio::piped()).spawn().unwrap()
            };
            let processes: Vec<_> = (0..3).rev().map(start).collect();
            for process in processes {
                let said = process.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&said.stdout).into_owned();
                assert!(said.contains("found true"), "{said}");
            }
        }
        at(Place::File(path.clone()), 0, 3).end();
        assert!(!path.exists());
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let (short, port, path) = (Duration::from_millis(300), free_port(), file("alone"));
        let address = Place::Address("127.0.0.1".into(), port);
        let message = |of: Result<Vec<u8>>| of.unwrap_err().to_string();
        let alone = message(at(address.clone(), 0, 3).identity(made, short));
        assert!(alone.contains("rank 1, 2 of 3 did not come to 127.0.0.1"), "{alone}");
        let other = message(at(address.clone(), 2, 3).identity(made, short));
        assert!(other.contains("rank 0 did not answer rank 2 of 3 at 127.0.0.1"), "{other}");
        let late = message(at(Place::File(path.clone()), 1, 2).identity(made, short));
        assert!(late.contains("was not written by rank 0"), "{late}");
        // A stranger at the port is passed over, and a rank of another run is refused.
        let waiting =
            std::thread::spawn(move || at(Place::Address("127.0.0.1".into(), port), 0, 2).identity(made, MESSAGE));
        let mut stranger = TcpStream::connect(("127.0.0.1", port));
        while stranger.is_err() {
            stranger = TcpStream::connect(("127.0.0.1", port));
        }
        stranger.unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n and more").unwrap();
        let refused = at(address, 1, 4).identity(made, short);
        assert!(refused.is_err());
        let told = message(waiting.join().unwrap());
        assert!(told.contains("rank 1 has WORLD_SIZE 4, and rank 0 has 2"), "{told}");
        // A file that is there is that of another run.
        std::fs::write(&path, b"old").unwrap();
        let there = message(at(Place::File(path.clone()), 0, 2).identity(made, short));
        assert!(there.contains("exists already"), "{there}");
        let old = message(at(Place::File(path.clone()), 1, 2).identity(made, short));
        assert!(old.contains("is not the identity of a run with this WORLD_SIZE"), "{old}");
        std::fs::remove_file(&path).unwrap();
    }
}
