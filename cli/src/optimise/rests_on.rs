//! What gains rest on besides the options: this program, the one that has CUDA, the model, prompts, and groups' files.
//! Who goes on has to have the same.

use crate::conf::{Composition, Flags, Layers};
use crate::conf_args::ConfArgs;
use crate::this_program::this_program;
use anyhow::Result;
use candlescope_prompts::sha256;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What this program is called.
const PROGRAM: &str = "candlescope";
/// Keys whose values are files that are read, or directories of them.
const READ: [(&str, &str); 4] =
    [("model", "path"), ("dataset", "path"), ("dataset", "prompt_file"), ("dataset", "image")];

/// By which another one of each is told, by the names that people know. `model` stands before the other words.
pub(super) fn rests_on(model: Option<&str>, words: &[String], flags: &Flags) -> Result<BTreeMap<String, String>> {
    rests_on_with(model, words, flags, cuda_build().as_deref())
}

/// The program that measures on CUDA devices in place of this one, if there is one.
fn cuda_build() -> Option<PathBuf> {
    // With the feature, it is this one.
    #[cfg(feature = "cuda")]
    return None;
    #[cfg(not(feature = "cuda"))]
    crate::hand_over::cuda_build()
}

/// The same with a program to which this one hands over what runs on CUDA devices.
fn rests_on_with(
    model: Option<&str>,
    words: &[String],
    flags: &Flags,
    cuda_build: Option<&Path>,
) -> Result<BTreeMap<String, String>> {
    let program = told_by(&this_program()?).unwrap_or_default();
    let mut all = BTreeMap::from([(PROGRAM.to_string(), format!("{}, {program}", env!("CARGO_PKG_VERSION")))]);
    // What is wrong with the options, the program that is started says.
    let Ok(composed) = composed(model, words, flags) else { return Ok(all) };
    let device = composed.at("hardware", "device").and_then(toml::Value::as_str).unwrap_or_default();
    if let Some(program) = cuda_build.filter(|_| device.starts_with("cuda")) {
        let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        all.extend(told_by(program).map(|told| (name, told)));
    }
    for (path, text) in composed.of_files() {
        // What it says, and not when it was written. Texts of prompts may be in it.
        all.insert(path.display().to_string(), sha256(&text).chars().take(16).collect());
    }
    for (group, name) in READ {
        let path = composed.at(group, name).and_then(toml::Value::as_str).unwrap_or_default();
        let files = files(Path::new(path)).into_iter();
        all.extend(files.filter_map(|file| Some((file.display().to_string(), told_by(&file)?))));
    }
    Ok(all)
}

fn composed(model: Option<&str>, words: &[String], flags: &Flags) -> Result<Composition> {
    let flags = match model {
        Some(model) => flags.clone().with("model.path", model)?,
        None => flags.clone(),
    };
    let args = ConfArgs { settings: words.to_vec(), ..ConfArgs::default() };
    let composed = Layers::of(&flags, &args, None, &[])?.combinations()?;
    Ok(composed.into_iter().next().unwrap_or_default())
}

/// The file, or those of the directory; none for what is neither, such as `embedded` and the id of a hub.
fn files(path: &Path) -> Vec<PathBuf> {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_path_buf()],
    }
}

/// The size of a file, and when it was written. `None` if it is none.
fn told_by(path: &Path) -> Option<String> {
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let written = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Some(format!("{} bytes, written at {}.{:09} s", file.len(), written.as_secs(), written.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str, words: &[&str]) -> BTreeMap<String, String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        rests_on(Some(model), &words, &Flags::default()).unwrap()
    }

    #[test]
    fn a_file_that_is_written_anew_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (model, prompts) = (dir.path().join("m.gguf"), dir.path().join("prompts"));
        std::fs::write(&model, "GGUF").unwrap();
        std::fs::create_dir(&prompts).unwrap();
        std::fs::write(prompts.join("a.jsonl"), "{}").unwrap();
        let [model, folder] = [&model, &prompts].map(|path| path.display().to_string());
        let dataset = format!("dataset.path={folder}");
        let (all, file) = (of(&model, &[&dataset]), format!("{folder}/a.jsonl"));
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), [model.as_str(), &file, PROGRAM]);
        assert!(all[PROGRAM].starts_with(env!("CARGO_PKG_VERSION")) && all[PROGRAM].contains(" bytes"), "{all:?}");
        assert_eq!(all, of(&model, &[&dataset]), "the same as long as nothing is written");
        std::fs::write(&model, "GGUF and more").unwrap();
        let now = of(&model, &[&dataset]);
        assert!(now[&model] != all[&model] && now[&model].starts_with("13 bytes, "), "{now:?}");
        // The same size at another time.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert_ne!(of(&model, &[&dataset])[&file], all[&file]);
        // What has no file, and words that are wrong, are for the program that is started.
        assert_eq!(of("embedded", &[]).len(), 1);
        assert_eq!(of("org/name", &["nothing=1"]).len(), 1);
    }

    #[test]
    fn on_a_gpu_the_program_with_cuda_counts_too() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("candlescope-cuda");
        std::fs::write(&program, "one").unwrap();
        let of = |device: &str, program: Option<&Path>| {
            let flags = Flags::default().with("device", device).unwrap();
            rests_on_with(Some("embedded"), &[], &flags, program).unwrap()
        };
        let then = of("cuda:0", Some(&program));
        assert_eq!(then.keys().map(String::as_str).collect::<Vec<_>>(), [PROGRAM, "candlescope-cuda"]);
        assert!(then["candlescope-cuda"].starts_with("3 bytes, "), "{then:?}");
        // Also where a word says it, and not a flag.
        let words = ["hardware.device=cuda:1".to_string()];
        assert_eq!(rests_on_with(None, &words, &Flags::default(), Some(&program)).unwrap(), then);
        std::fs::write(&program, "another").unwrap();
        let now = of("cuda:0", Some(&program));
        assert_eq!(now[PROGRAM], then[PROGRAM]);
        assert_ne!(now, then);
        // On a CPU, this program measures; and there may be no other one.
        assert_eq!(of("cpu", Some(&program)).len(), 1);
        assert_eq!(of("cuda:0", None).len(), 1);
    }
}
