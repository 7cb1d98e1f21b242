//! Stands in for the crate `hf-hub` under candle's examples: a hub that has nothing. Their weights are given as files, so
//! nothing is downloaded, and a hundred crates fewer are built.

use std::marker::PhantomData;
use std::path::PathBuf;

pub mod progress {
    pub enum ProgressEvent {
        Download(DownloadEvent),
        Upload,
    }

    pub enum DownloadEvent {
        Start { total_bytes: u64 },
        Progress { files: Vec<FileProgress> },
        AggregateProgress { bytes_completed: u64, total_bytes: u64 },
        Complete,
    }

    pub struct FileProgress {
        pub bytes_completed: u64,
    }

    pub trait ProgressHandler {
        fn on_progress(&self, event: &ProgressEvent);
    }
}

#[derive(Debug)]
pub enum HFError {
    LocalEntryNotFound { file: String },
}

impl std::fmt::Display for HFError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HFError::LocalEntryNotFound { file } = self;
        write!(f, "{file} is not there, and nothing is downloaded here: name local files")
    }
}

impl std::error::Error for HFError {}

pub type HFResult<T> = Result<T, HFError>;

pub trait RepoType: Clone + std::fmt::Debug {}

#[derive(Clone, Debug)]
pub struct RepoTypeModel;
#[derive(Clone, Debug)]
pub struct RepoTypeDataset;
impl RepoType for RepoTypeModel {}
impl RepoType for RepoTypeDataset {}

pub fn split_id(id: &str) -> (&str, &str) {
    id.split_once('/').unwrap_or(("", id))
}

pub struct HFClient;
pub struct HFClientBuilder;

impl HFClient {
    pub fn builder() -> HFClientBuilder {
        HFClientBuilder
    }
}

impl HFClientBuilder {
    pub fn cache_dir(self, _: impl Into<PathBuf>) -> Self {
        self
    }

    pub fn build(self) -> HFResult<HFClient> {
        Ok(HFClient)
    }
}

#[derive(Clone, Debug)]
pub struct HFClientSync;

impl HFClientSync {
    pub fn new() -> HFResult<Self> {
        Ok(Self)
    }

    pub fn from_inner(_: HFClient) -> HFResult<Self> {
        Ok(Self)
    }

    pub fn model(&self, _: &str, _: &str) -> HFRepositorySync<RepoTypeModel> {
        HFRepositorySync(PhantomData)
    }

    pub fn dataset(&self, _: &str, _: &str) -> HFRepositorySync<RepoTypeDataset> {
        HFRepositorySync(PhantomData)
    }
}

#[derive(Clone, Debug)]
pub struct HFRepositorySync<T: RepoType>(PhantomData<T>);

impl<T: RepoType> HFRepositorySync<T> {
    pub fn download_file(&self) -> Download {
        Download { file: String::new() }
    }
}

#[derive(Clone)]
pub struct Download {
    file: String,
}

impl Download {
    pub fn filename(self, file: &str) -> Self {
        Self { file: file.to_owned() }
    }

    pub fn maybe_revision(self, _: Option<String>) -> Self {
        self
    }

    pub fn local_files_only(self, _: bool) -> Self {
        self
    }

    pub fn progress(self, _: impl progress::ProgressHandler) -> Self {
        self
    }

    pub fn send(self) -> HFResult<PathBuf> {
        Err(HFError::LocalEntryNotFound { file: self.file })
    }
}
