//! Hands a command to the build that has CUDA: candle links the driver's library, so that a program with CUDA does not
//! even start, to report on a run, where there is no driver.
#![cfg(not(feature = "cuda"))]

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// File name of the program that has CUDA.
pub(crate) const CUDA_BUILD: &str = "candlescope-cuda";

/// Set for the program that a command is handed to: it hands nothing over again.
const HANDED_OVER: &str = "CANDLESCOPE_HANDED_OVER";

/// The program with CUDA: beside this one, or else on the search path.
pub(crate) fn cuda_build() -> Option<PathBuf> {
    let file = format!("{CUDA_BUILD}{}", env::consts::EXE_SUFFIX);
    let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(&file)));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = beside.into_iter().chain(env::split_paths(&path).map(|folder| folder.join(&file)));
    places.find(|place| place.is_file())
}

/// Runs this very command with the build that has CUDA, if there is one, and does not come back.
///
/// # Errors
/// When that build cannot be started. `Ok` means that there is none.
pub(crate) fn to_cuda_build() -> anyhow::Result<()> {
    let Some(program) = cuda_build().filter(|_| env::var_os(HANDED_OVER).is_none()) else { return Ok(()) };
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = Command::new(&program);
    command.args(arguments).env(HANDED_OVER, "1");
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
