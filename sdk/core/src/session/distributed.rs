//! Which of several processes this one is, as launchers say it, and of which job.

/// A launcher's variables.
struct Launcher {
    rank: &'static str,
    /// How many there are.
    processes: &'static str,
    /// What of these is there tells the job: it is the same on all ranks.
    job: &'static [&'static str],
}

/// torchrun and what imitates it, Open MPI, MPICH and Intel MPI, Slurm. Of Slurm every script of a job has variables:
/// those of ranks mean something within a step, which `srun` starts.
static LAUNCHERS: [Launcher; 4] = [
    Launcher { rank: "RANK", processes: "WORLD_SIZE", job: &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"] },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        processes: "OMPI_COMM_WORLD_SIZE",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Launcher { rank: "PMI_RANK", processes: "PMI_SIZE", job: &["PMI_JOBID"] },
    Launcher { rank: "SLURM_PROCID", processes: "SLURM_STEP_NUM_TASKS", job: &["SLURM_JOB_ID", "SLURM_STEP_ID"] },
];
/// Addresses that mean another machine on each.
const THIS_MACHINE: [&str; 4] = ["localhost", "127.0.0.1", "::1", "0.0.0.0"];

/// One of several processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobRank {
    pub(super) rank: u32,
    pub(super) processes: u32,
    /// The job whose ranks they are.
    pub(super) job: Option<String>,
}

/// What the environment says on this machine; `None` where this is the only process.
pub(super) fn from_environment(host: &str) -> Option<JobRank> {
    found(host, |name| std::env::var(name).ok())
}

fn found(host: &str, variable: impl Fn(&str) -> Option<String>) -> Option<JobRank> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    // The first launcher that says anything is the innermost: that it started one process ends the search.
    let said = |of: &'static Launcher| Some((of, number(of.rank)?, number(of.processes)?));
    let (launcher, rank, processes) = LAUNCHERS.iter().find_map(said)?;
    let part = |&name: &&str| {
        let text = variable(name)?.trim().to_string();
        match text.as_str() {
            // torchrun's word for a job that nobody gave a name.
            "" | "none" => None,
            here if THIS_MACHINE.contains(&here) => Some(host.to_string()),
            _ => Some(text),
        }
    };
    let job: Vec<String> = launcher.job.iter().filter_map(part).collect();
    let job = (!job.is_empty()).then(|| job.join("/"));
    (processes > 1 && rank < processes).then_some(JobRank { rank, processes, job })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Option<JobRank> {
        found("node-7", |name| pairs.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn what_launchers_say_is_taken_if_it_makes_sense() {
        let of = |pairs: &[(&str, &str)]| of(pairs).map(|of| (of.rank, of.processes));
        assert_eq!(of(&[("RANK", "1"), ("WORLD_SIZE", "4")]), Some((1, 4)));
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]), Some((0, 2)));
        // A job of one task, a rank without a number of processes, and one beyond it.
        assert_eq!(
            of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]),
            None,
            "a script of a job, of which nobody started tasks"
        );
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(of(&step), Some((1, 4)));
        assert_eq!(
            of(&[&step[..], &[("RANK", "0"), ("WORLD_SIZE", "1")]].concat()),
            None,
            "one process of its own within it"
        );
        assert_eq!((of(&[("RANK", "1")]), of(&[("RANK", "7"), ("WORLD_SIZE", "4")]), of(&[])), (None, None, None));
    }

    #[test]
    fn a_job_is_what_its_launcher_calls_it() {
        let job = |more: &[(&str, &str)], launcher: [(&'static str, &'static str); 2]| {
            of(&[&launcher[..], more].concat()).and_then(|of| of.job)
        };
        let torchrun = [("RANK", "1"), ("WORLD_SIZE", "4")];
        let meet = [("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];
        assert_eq!(job(&meet, torchrun).as_deref(), Some("10.0.0.1/29500"));
        let named = [&[("TORCHELASTIC_RUN_ID", "nightly")][..], &meet].concat();
        assert_eq!(job(&named, torchrun).as_deref(), Some("nightly/10.0.0.1/29500"));
        // The same on every machine, and no name at all.
        let local = [("TORCHELASTIC_RUN_ID", "none"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
        assert_eq!(job(&local, torchrun).as_deref(), Some("node-7/29500"));
        assert_eq!(job(&[], torchrun), None);
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
        let step = [("SLURM_JOB_ID", "4711"), ("SLURM_STEP_ID", "0")];
        assert_eq!(job(&step, slurm).as_deref(), Some("4711/0"));
        // What else is in the environment is that of an outer launcher.
        assert_eq!(job(&step, torchrun), None);
        let mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(job(&[("PMIX_NAMESPACE", "prterun-a-7@1")], mpi).as_deref(), Some("prterun-a-7@1"));
    }
}
