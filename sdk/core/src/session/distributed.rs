//! Which of several processes this one is, as launchers say it.

/// Names of a process's rank and of the number of processes: torchrun and what imitates it, Open MPI, MPICH and Intel MPI.
const NAMES: [(&str, &str); 3] =
    [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
/// Those of Slurm, which every script of a job has: they mean something within a step, which `srun` starts.
const SLURM: (&str, &str) = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");

/// One of several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Distributed {
    pub(super) rank: u32,
    pub(super) processes: u32,
}

/// What the environment says; `None` where this is the only process.
pub(super) fn from_environment() -> Option<Distributed> {
    found(|name| std::env::var(name).ok())
}

fn found(variable: impl Fn(&str) -> Option<String>) -> Option<Distributed> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    // The first launcher that says anything is the innermost: that it started one process ends the search.
    let said = |(rank, processes): &(&str, &str)| Some((number(rank)?, number(processes)?));
    let (rank, processes) = NAMES.iter().chain([&SLURM]).find_map(said)?;
    (processes > 1 && rank < processes).then_some(Distributed { rank, processes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_launchers_say_is_taken_if_it_makes_sense() {
        let of = |pairs: &[(&str, &str)]| {
            found(|name| pairs.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_string()))
        };
        assert_eq!(of(&[("RANK", "1"), ("WORLD_SIZE", "4")]), Some(Distributed { rank: 1, processes: 4 }));
        assert_eq!(
            of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]),
            Some(Distributed { rank: 0, processes: 2 })
        );
        // A job of one task, a rank without a number of processes, and one beyond it.
        assert_eq!(
            of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]),
            None,
            "a script of a job, of which nobody started tasks"
        );
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(of(&step), Some(Distributed { rank: 1, processes: 4 }));
        assert_eq!(
            of(&[&step[..], &[("RANK", "0"), ("WORLD_SIZE", "1")]].concat()),
            None,
            "one process of its own within it"
        );
        assert_eq!((of(&[("RANK", "1")]), of(&[("RANK", "7"), ("WORLD_SIZE", "4")]), of(&[])), (None, None, None));
    }
}
