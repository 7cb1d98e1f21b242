//! A sum over the processes of one machine, through sockets: what a program does whose ranks share a GPU, or have none.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long ranks wait for each other, at the beginning and in a sum.
const PATIENCE: Duration = Duration::from_secs(120);

/// Values that each rank sends before it reads as many: they fit into what a socket keeps, so that nobody waits for a reader that
/// waits itself.
const CHUNK: usize = 4_096;

/// One rank's end. All ranks do the same, so that none leaves a sum later than others for what it has to do in it.
#[derive(Debug)]
pub struct HostReduce {
    /// To each of the ranks, in order; none to itself.
    ranks: Vec<Option<TcpStream>>,
}

impl HostReduce {
    /// Waits for the other ranks. They find each other by files of this name with a rank's number behind it, in which each writes its
    /// address; there must be none before.
    ///
    /// # Errors
    /// If they do not come within two minutes.
    pub fn meet(name: &Path, rank: usize, world: usize) -> Result<Self> {
        let begun = Instant::now();
        let wait = |for_whom: &str| -> Result<()> {
            ensure!(begun.elapsed() < PATIENCE, "{for_whom} did not come to {}", name.display());
            std::thread::sleep(Duration::from_millis(5));
            Ok(())
        };
        let file = |rank: usize, end: &str| {
            let mut file = name.as_os_str().to_owned();
            file.push(format!(".{rank}{end}"));
            PathBuf::from(file)
        };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        std::fs::write(file(rank, ".part"), listener.local_addr()?.to_string())?;
        std::fs::rename(file(rank, ".part"), file(rank, ""))?;
        let mut ranks: Vec<Option<TcpStream>> = Vec::new();
        ranks.resize_with(world, || None);
        for (other, place) in ranks.iter_mut().enumerate().take(rank) {
            let address = loop {
                match std::fs::read_to_string(file(other, "")) {
                    Ok(address) => break address,
                    Err(_) => wait(&format!("rank {other}"))?,
                }
            };
            let mut stream = TcpStream::connect(address.trim()).with_context(|| format!("rank {other} is gone"))?;
            prepare(&stream)?;
            stream.write_all(&(rank as u32).to_le_bytes())?;
            *place = Some(stream);
        }
        while ranks.iter().skip(rank + 1).any(Option::is_none) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    prepare(&stream)?;
                    let mut number = [0; 4];
                    stream.read_exact(&mut number)?;
                    let other = u32::from_le_bytes(number) as usize;
                    match ranks.get_mut(other) {
                        Some(place) if place.is_none() && other > rank => *place = Some(stream),
                        _ => bail!("two processes are rank {other}, or there are more than {world}"),
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => wait("another rank")?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { ranks })
    }

    /// Puts the sum over all ranks in the place of these values, of which every rank has as many.
    ///
    /// # Errors
    /// If another rank is gone.
    pub fn sum(&mut self, values: &mut [f32]) -> Result<()> {
        for chunk in values.chunks_mut(CHUNK) {
            for (rank, other) in self.ranks.iter_mut().enumerate() {
                let Some(other) = other else { continue };
                send(other, chunk).with_context(|| format!("rank {rank} is gone"))?;
            }
            let own = chunk.to_vec();
            chunk.fill(0.0);
            // In order of ranks, so that all have the same sum.
            for (rank, other) in self.ranks.iter_mut().enumerate() {
                match other {
                    None => add(chunk, &own),
                    Some(other) => {
                        add(chunk, &receive(other, own.len()).with_context(|| format!("rank {rank} is gone"))?);
                    }
                }
            }
        }
        Ok(())
    }
}

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn send(to: &mut TcpStream, values: &[f32]) -> std::io::Result<()> {
    to.write_all(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

fn receive(from: &mut TcpStream, count: usize) -> std::io::Result<Vec<f32>> {
    let mut bytes = vec![0; count * 4];
    from.read_exact(&mut bytes)?;
    let (values, _) = bytes.as_chunks::<4>();
    Ok(values.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_gets_the_sum_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("meet");
        let sums: Vec<Vec<[f32; 3]>> = std::thread::scope(|scope| {
            let rank = |rank: usize| {
                let file = &file;
                scope.spawn(move || {
                    let mut all = HostReduce::meet(file, rank, 3).unwrap();
                    let sum = |round: usize| {
                        let mut values = vec![round as f32; 300_000];
                        values[0] = rank as f32 + 1.0;
                        all.sum(&mut values).unwrap();
                        [values[0], values[1], values[299_999]]
                    };
                    (0..20).map(sum).collect()
                })
            };
            let all: Vec<_> = (0..3).rev().map(rank).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for of in sums {
            for (round, sum) in of.into_iter().enumerate() {
                assert_eq!(sum, [6.0, 3.0 * round as f32, 3.0 * round as f32]);
            }
        }
    }

    #[test]
    fn a_rank_that_is_gone_ends_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("meet");
        let other = std::thread::spawn({
            let file = file.clone();
            move || drop(HostReduce::meet(&file, 1, 2).unwrap())
        });
        let mut first = HostReduce::meet(&file, 0, 2).unwrap();
        other.join().unwrap();
        let said = first.sum(&mut [1.0]).unwrap_err().to_string();
        assert_eq!(said, "rank 1 is gone");
    }
}
