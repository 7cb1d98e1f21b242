//! Models of the Hugging Face hub.

use std::path::PathBuf;

/// A model could not be fetched from the hub.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot fetch `{id}` from the model hub: {reason}; download it elsewhere and pass its directory or a .gguf file"
)]
#[non_exhaustive]
pub struct HubError {
    /// Name of the model on the hub, `org/name`.
    pub id: String,
    /// What went wrong: the failed request with its error, no safetensors among its files, or a build without the
    /// feature `hub`.
    pub reason: String,
}

/// Fetches the files of a hub model and returns their directory.
#[cfg(feature = "hub")]
pub(crate) fn fetch(id: &str) -> Result<PathBuf, HubError> {
    use hf_hub::api::sync::ApiBuilder;
    let failed = |what: &str, error: hf_hub::api::sync::ApiError| HubError {
        id: id.to_string(),
        reason: format!("{what}: {error}"),
    };
    let api = ApiBuilder::from_env().with_progress(false).build().map_err(|e| failed("setting up", e))?;
    let repo = api.model(id.to_string());
    let info = repo.info().map_err(|e| failed("listing its files", e))?;
    let mut directory = None;
    for file in info.siblings.iter().map(|s| s.rfilename.as_str()) {
        let wanted =
            matches!(file, "config.json" | "preprocessor_config.json" | "tokenizer.json" | "tokenizer_config.json")
                || (file.ends_with(".safetensors") && !file.contains('/'));
        if wanted {
            let path = repo.get(file).map_err(|e| failed(file, e))?;
            directory = path.parent().map(PathBuf::from);
        }
    }
    directory.ok_or_else(|| HubError { id: id.to_string(), reason: "it holds no safetensors model".into() })
}

/// Without the feature `hub` nothing is fetched.
#[cfg(not(feature = "hub"))]
pub(crate) fn fetch(id: &str) -> Result<PathBuf, HubError> {
    Err(HubError { id: id.to_string(), reason: "this build has the feature `hub` switched off".into() })
}
