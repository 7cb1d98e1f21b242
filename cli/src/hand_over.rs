//! Hands a command to the build that has CUDA: candle links the driver's library, so that a program with CUDA does not
//! even start, to report on a run, where there is no driver.

/// Says to the program that a command is handed to which version of this one does so. That one hands nothing over again.
const HANDED_OVER: &str = "CANDLESCOPE_HANDED_OVER";

/// Whether the program that handed this command over is of the same version: the two are installed one by one.
///
/// # Errors
/// When it is not.
#[cfg(feature = "cuda")]
pub(crate) fn check_version() -> anyhow::Result<()> {
    let ours = env!("CARGO_PKG_VERSION");
    match std::env::var(HANDED_OVER) {
        Ok(theirs) if theirs != ours => {
            anyhow::bail!("candlescope is version {theirs}, and candlescope-cuda is {ours}: install both anew")
        }
        _ => Ok(()),
    }
}

#[cfg(not(feature = "cuda"))]
pub(crate) use find::{CUDA_BUILD, cuda_build, to_cuda_build};

#[cfg(not(feature = "cuda"))]
mod find {
    use super::HANDED_OVER;
    use std::env;
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// File name of the program that has CUDA.
    pub(crate) const CUDA_BUILD: &str = "candlescope-cuda";

    /// The program with CUDA: beside this one, or else on the search path.
    pub(crate) fn cuda_build() -> Option<PathBuf> {
        let file = format!("{CUDA_BUILD}{}", env::consts::EXE_SUFFIX);
        let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(&file)));
        let path = env::var_os("PATH").unwrap_or_default();
        // Never one that lies in the folder where the command happens to be called.
        let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
        let mut places = beside.into_iter().chain(folders.map(|folder| folder.join(&file)));
        places.find(|place| is_program(place))
    }

    #[cfg(unix)]
    fn is_program(file: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    }

    #[cfg(not(unix))]
    fn is_program(file: &Path) -> bool {
        file.is_file()
    }

    /// Runs this very command with the build that has CUDA, if there is one, and does not come back.
    ///
    /// # Errors
    /// When that build cannot be started. `Ok` means that there is none.
    pub(crate) fn to_cuda_build() -> anyhow::Result<()> {
        let Some(program) = cuda_build().filter(|_| env::var_os(HANDED_OVER).is_none()) else { return Ok(()) };
        let arguments: Vec<OsString> = env::args_os().skip(1).collect();
        let mut command = Command::new(&program);
        command.args(arguments).env(HANDED_OVER, env!("CARGO_PKG_VERSION"));
        let error = become_or_run(command);
        anyhow::bail!("{} cannot be started: {error}; build it anew, or remove it", program.display())
    }

    #[cfg(unix)]
    fn become_or_run(mut command: Command) -> std::io::Error {
        // In place of this process: signals and the exit status go where they would go.
        std::os::unix::process::CommandExt::exec(&mut command)
    }

    #[cfg(not(unix))]
    fn become_or_run(mut command: Command) -> std::io::Error {
        match command.status() {
            Ok(status) => std::process::exit(status.code().unwrap_or(1)),
            Err(error) => error,
        }
    }
}
