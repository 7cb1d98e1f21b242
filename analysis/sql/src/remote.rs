//! Runs and archives in object stores: S3 and what speaks like it, Google Cloud Storage, Azure, and WebDAV.
//!
//! What is there is listed once, when it is opened: folder by folder where a web server lists no more than one at a time.
//! Files are read in ranges while a query needs them.

use super::left_out::LeftOut;
use super::place::{Archive, ArchiveLocation, RemotePlaces, RemoteRun, SourceError, Store, is_segment};
use candlescope_reader::file_findings::unfinished;
use candlescope_reader::limits::{Limit, ReadLimits};
use candlescope_reader::{ARCHIVE_INDEX, OpenError, manifest_of};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Finding, MANIFEST_FILE, RunManifest};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory as _;
use datafusion::datasource::physical_plan::parquet::DefaultParquetFileReaderFactory;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Objects below what is named.
const MOST_OBJECTS: usize = 2_000_000;
/// Descriptions of runs that are asked for at once.
const AT_ONCE: usize = 16;
/// How long a request is tried again: an endpoint that is not there is told of while somebody still waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is tried again within that time.
const TRIES: usize = 4;

/// Opens what a URL names.
pub(super) fn open(url: &str, limits: &ReadLimits) -> Result<RemotePlaces, SourceError> {
    let failed = |why: String| SourceError::Store { url: shown(url), why };
    let (store, root) = Store::remote(url).map_err(failed)?;
    let name = |path: &ObjectPath| format!("{}{path}", store.url.as_str());
    let found = apart(async || {
        let connection = store.connect().map_err(|why| why.to_string())?;
        let listed = match connection.list(Some(&root)).take(MOST_OBJECTS + 1).try_collect::<Vec<_>>().await {
            // Apache and others refuse what would be all folders at once.
            Err(object_store::Error::PermissionDenied { .. }) if store.url.as_str().starts_with("http") => {
                by_folder(&*connection, &root).await
            }
            listed => listed,
        };
        let mut objects = listed.map_err(|why| why.to_string())?;
        if objects.len() > MOST_OBJECTS {
            return Err(format!("more than {MOST_OBJECTS} objects are below it: name a part of it"));
        }
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        let (archives, dirs) = places(&objects);
        let inside = dirs.into_iter().filter(|(dir, _)| dir.prefix_matches(&root));
        let described = futures_util::stream::iter(inside.map(|(dir, description)| {
            let (connection, name) = (Arc::clone(&connection), name(&dir));
            async move {
                let (bytes, mut findings) =
                    (manifest_bytes(&*connection, description.as_ref(), limits).await?, Vec::new());
                let size = || description.map(|object| object.size);
                let manifest = manifest_of(Path::new(&name), bytes, size, limits, &mut findings);
                Ok::<_, object_store::Error>((dir, manifest.map(|manifest| (manifest, findings))))
            }
        }));
        let described = described.buffered(AT_ONCE).try_collect::<Vec<_>>().await.map_err(|why| why.to_string())?;
        Ok((objects, archives, described))
    });
    let (objects, archives, described) = found.map_err(failed)?;
    let mut found = RemotePlaces::default();
    for root in archives {
        let objects = below(&objects, &root).to_vec();
        let place = ArchiveLocation::Remote { store: store.clone(), root: root.clone(), objects };
        found.archives.push(Archive { name: name(&root), place, columns: Vec::new() });
    }
    for (dir, description) in described {
        let run = description
            .and_then(|description| run(name(&dir), &store, description, segments(below(&objects, &dir), &dir)));
        match run {
            Ok(run) => found.runs.push(run),
            Err(why) => found.left_out.push(LeftOut::new(name(&dir), why.to_string())),
        }
    }
    Ok(found)
}

/// Segments of a run among the objects below it, and whether each was finished.
fn segments<'a>(
    objects: &'a [ObjectMeta],
    dir: &'a ObjectPath,
) -> impl Iterator<Item = (RecordKind, &'a ObjectMeta, bool)> {
    objects.iter().filter_map(move |object| {
        let parts: Vec<_> = object.location.prefix_match(dir)?.collect();
        let [table, file] = &parts[..] else { return None };
        let kind = RecordKind::ALL.into_iter().find(|kind| kind.table() == table.as_ref())?;
        Some((kind, object, is_segment(file.as_ref())?))
    })
}

/// A run of this name, of its description, what reading that showed, and its segments.
fn run<'a>(
    name: String,
    store: &Store,
    (manifest, mut findings): (Option<RunManifest>, Vec<Finding>),
    segments: impl Iterator<Item = (RecordKind, &'a ObjectMeta, bool)>,
) -> Result<RemoteRun, OpenError> {
    let mut files = Vec::new();
    for (kind, object, finished) in segments {
        match finished {
            true => files.push((kind, object.clone())),
            false => findings.push(unfinished(&store.url_of(object), object.size)),
        }
    }
    if manifest.is_none() && files.is_empty() {
        return Err(OpenError::nothing_readable(name, &findings));
    }
    Ok(RemoteRun { name, store: store.clone(), manifest, files, findings })
}

/// All objects below a folder, each folder asked for by itself. Where there are more than [`MOST_OBJECTS`], some more
/// than these.
async fn by_folder(store: &dyn ObjectStore, root: &ObjectPath) -> Result<Vec<ObjectMeta>, object_store::Error> {
    let (mut objects, mut folders, mut asked) = (Vec::new(), vec![root.clone()], 0);
    while !folders.is_empty() && objects.len() <= MOST_OBJECTS {
        asked += folders.len();
        if asked > MOST_OBJECTS {
            let source = format!("more than {MOST_OBJECTS} folders are below it: name a part of it").into();
            return Err(object_store::Error::Generic { store: "HTTP", source });
        }
        let listed = futures_util::stream::iter(std::mem::take(&mut folders).into_iter().map(|folder| async move {
            let listed = store.list_with_delimiter(Some(&folder)).await?;
            Ok::<_, object_store::Error>((folder, listed))
        }));
        for (folder, listed) in listed.buffered(AT_ONCE).try_collect::<Vec<_>>().await? {
            objects.extend(listed.objects);
            // Deeper each time, or a server that names the same ones again would be asked for ever.
            folders.extend(
                listed.common_prefixes.into_iter().filter(|below| *below != folder && below.prefix_matches(&folder)),
            );
        }
    }
    Ok(objects)
}

/// What of objects in order lies below a folder.
fn below<'a>(objects: &'a [ObjectMeta], folder: &ObjectPath) -> &'a [ObjectMeta] {
    let prefix = if folder.as_ref().is_empty() { String::new() } else { format!("{folder}/") };
    let from = objects.partition_point(|object| object.location.as_ref() < prefix.as_str());
    let count = objects[from..].partition_point(|object| object.location.as_ref().starts_with(&prefix));
    &objects[from..from + count]
}

/// Roots of archives, and directories of runs outside of their tables with the object that describes each, if there is
/// one.
fn places(objects: &[ObjectMeta]) -> (Vec<ObjectPath>, Vec<(ObjectPath, Option<ObjectMeta>)>) {
    let above = |object: &ObjectMeta, levels: usize| {
        let parts: Vec<_> = object.location.parts().collect();
        parts[..parts.len().saturating_sub(levels)].iter().cloned().collect::<ObjectPath>()
    };
    let mut archives: Vec<ObjectPath> = Vec::new();
    for index in objects.iter().filter(|object| object.location.filename() == Some(ARCHIVE_INDEX)) {
        let root = above(index, 1);
        if !archives.iter().any(|archive| root.prefix_matches(archive)) {
            archives.push(root);
        }
    }
    let is_table = |name: &str| RecordKind::ALL.iter().any(|kind| kind.table() == name);
    // Programs may write into a folder that is its own archive.
    let in_table = |object: &ObjectMeta, root: &ObjectPath| {
        let first = object.location.prefix_match(root).and_then(|mut below| below.next());
        first.is_some_and(|part| is_table(part.as_ref()))
    };
    let outside = |object: &&ObjectMeta| !archives.iter().any(|root| in_table(object, root));
    let mut dirs: BTreeMap<ObjectPath, Option<ObjectMeta>> = BTreeMap::new();
    for object in objects.iter().filter(outside) {
        let Some(file) = object.location.filename() else { continue };
        if file == MANIFEST_FILE {
            dirs.insert(above(object, 1), Some(object.clone()));
        } else if is_segment(file).is_some() {
            let parts: Vec<_> = object.location.parts().collect();
            let table = parts.len().checked_sub(2).map(|at| parts[at].as_ref());
            if table.is_some_and(is_table) {
                dirs.entry(above(object, 2)).or_default();
            }
        }
    }
    (archives, dirs.into_iter().collect())
}

/// What is read of a run's description: an error of its own where the run has none, where it is too large, and where it
/// alone may not be read.
async fn manifest_bytes(
    store: &dyn ObjectStore,
    object: Option<&ObjectMeta>,
    limits: &ReadLimits,
) -> Result<io::Result<Vec<u8>>, object_store::Error> {
    let Some(object) = object else { return Ok(Err(io::ErrorKind::NotFound.into())) };
    if object.size > limits.get(Limit::ManifestBytes) {
        return Ok(Err(io::ErrorKind::FileTooLarge.into()));
    }
    let read = async { store.get(&object.location).await?.bytes().await };
    match read.await {
        Ok(bytes) => Ok(Ok(bytes.to_vec())),
        Err(object_store::Error::NotFound { .. }) => Ok(Err(io::ErrorKind::NotFound.into())),
        Err(object_store::Error::PermissionDenied { .. }) => Ok(Err(io::ErrorKind::PermissionDenied.into())),
        Err(error) => Err(error),
    }
}

/// Columns of an archive's index, where it can be read.
pub(super) fn schema(store: &Store, index: &ObjectMeta) -> Option<SchemaRef> {
    let read = async || {
        let connection = store.connect().map_err(|why| why.to_string())?;
        let file = PartitionedFile::new_from_meta(index.clone());
        let readers = DefaultParquetFileReaderFactory::new(connection);
        let reader = readers.create_reader(0, file, None, &ExecutionPlanMetricsSet::new());
        let mut reader = reader.map_err(|why| why.to_string())?;
        let found = reader.get_metadata(None).await.map_err(|why| why.to_string())?;
        let schema = parquet_to_arrow_schema(found.file_metadata().schema_descr(), None);
        schema.map(Arc::new).map_err(|why| why.to_string())
    };
    apart(read).ok()
}

impl Store {
    /// The store of a URL, and the path in it.
    fn remote(url: &str) -> Result<(Self, ObjectPath), String> {
        let parsed = url::Url::parse(url).map_err(|why| why.to_string())?;
        // It would stand in names of runs, in messages and in scripts.
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(
                "it has a name, a password or a query in it: leave them out, and put credentials into the environment"
                    .into(),
            );
        }
        let host = &parsed[..url::Position::BeforePath];
        let path = ObjectPath::from_url_path(parsed.path()).map_err(|why| why.to_string())?;
        Ok((Self { url: ObjectStoreUrl::parse(host).map_err(|why| why.to_string())? }, path))
    }

    /// A connection for the runtime that asks for it: none outlives the runtime that it began in.
    pub(super) fn connect(&self) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        let url = self.url.as_str();
        let retry = || RetryConfig { max_retries: TRIES, retry_timeout: PATIENCE, ..RetryConfig::default() };
        let scheme = url.split("://").next().unwrap_or_default();
        Ok(match scheme {
            "s3" | "s3a" => {
                Arc::new(object_store::aws::AmazonS3Builder::from_env().with_url(url).with_retry(retry()).build()?)
            }
            "gs" => Arc::new(
                object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry()).build()?,
            ),
            "az" | "azure" | "abfs" | "abfss" => Arc::new(
                object_store::azure::MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry()).build()?,
            ),
            // Whoever writes `http` means it.
            "http" | "https" => {
                let options = object_store::ClientOptions::new().with_allow_http(scheme == "http");
                let builder = object_store::http::HttpBuilder::new().with_url(url).with_client_options(options);
                Arc::new(builder.with_retry(retry()).build()?)
            }
            _ => {
                let source = format!("`{scheme}` is none of s3, gs, az, http and https").into();
                return Err(object_store::Error::Generic { store: "URL", source });
            }
        })
    }
}

/// As much of a URL as is shown: what stands between its scheme and its host, and after its path, is not.
pub(super) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{}", path.split(['?', '#']).next().unwrap_or_default())
}

/// Waits on a thread of its own: the caller's may belong to a runtime.
fn apart<T: Send, F: Future<Output = Result<T, String>>>(work: impl FnOnce() -> F + Send) -> Result<T, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|why| why.to_string())?.block_on(work())
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|_| Err("it panicked".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_shown_without_secrets() {
        let (store, path) = Store::remote("s3://bucket/a/b/").unwrap();
        assert_eq!((store.url.as_str(), path.as_ref()), ("s3://bucket/", "a/b"));
        assert!(Store::remote("ftp://host/a").unwrap().0.connect().is_err());
        assert_eq!(shown("https://me:secret@host/a?sig=secret"), "https://host/a");
        assert_eq!(shown("https://me:secret@host:99999"), "https://host:99999");
        assert!(Store::remote("https://me:secret@host/a").unwrap_err().contains("environment"));
        assert!(Store::remote("https://host/a?sig=secret").is_err());
    }

    #[test]
    fn folder_by_folder_the_same_is_found() {
        let found = apart(async || {
            let store = object_store::memory::InMemory::new();
            for path in ["a/run.json", "a/spans/x", "a/spans/y/z", "b/run.json", "ab/c", "top"] {
                store.put(&ObjectPath::from(path), "1".into()).await.map_err(|why| why.to_string())?;
            }
            let mut found = Vec::new();
            for root in ["", "a", "nothing"].map(ObjectPath::from) {
                let listed = by_folder(&store, &root).await.map_err(|why| why.to_string())?;
                let mut paths: Vec<String> = listed.into_iter().map(|object| object.location.to_string()).collect();
                paths.sort();
                found.push(paths.join(" "));
            }
            Ok(found)
        });
        let all = "a/run.json a/spans/x a/spans/y/z ab/c b/run.json top";
        assert_eq!(found.unwrap(), [all, "a/run.json a/spans/x a/spans/y/z", ""]);
    }

    #[test]
    fn runs_of_an_archive_are_not_taken_for_others() {
        let object = |path: &str| ObjectMeta {
            location: ObjectPath::from(path),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        };
        let objects = [
            "a/runs.parquet",
            "a/spans/x/y/runs-1.parquet",
            "a/spans/x/run.json",
            "a/steps/part-0.parquet",
            "a/b/spans/part-0.parquet",
            "b/one/run.json",
            "b/two/spans/part-0.parquet",
            "b/three/steps/part-0.parquet.inprogress",
            "b/four/others/part-0.parquet",
            "b/five/samples/part-00000-8f1c2d.c000.snappy.parquet",
            "b/five/steps/part-.parquet",
            "part-0.parquet",
            "run.json",
        ]
        .map(object);
        let (archives, dirs) = places(&objects);
        assert_eq!(archives, [ObjectPath::from("a")]);
        let dirs: Vec<_> = dirs.iter().map(|(dir, description)| (dir.as_ref(), description.is_some())).collect();
        // A program may write beside the tables of an archive.
        assert_eq!(dirs, [("", true), ("a/b", false), ("b/one", true), ("b/three", false), ("b/two", false)]);
        let mut sorted = ["b/one.txt", "b/one/run.json", "b/one/spans/x", "b/one0", "b/two/run.json"].map(object);
        sorted.sort_by(|a, b| a.location.cmp(&b.location));
        let of = |folder: &str| below(&sorted, &ObjectPath::from(folder)).len();
        assert_eq!((of("b/one"), of("b"), of(""), of("c")), (2, 5, 5, 0));
    }

    #[test]
    fn a_run_of_a_store_is_told_of_as_one_of_a_disk() {
        let object = |path: &str| ObjectMeta {
            location: ObjectPath::from(path),
            last_modified: Default::default(),
            size: 9,
            e_tag: None,
            version: None,
        };
        let (store, dir) = Store::remote("s3://bucket/a").unwrap();
        let objects = ["a/run.json", "a/spans/part-0.parquet", "a/steps/part-1.parquet.inprogress"].map(object);
        let limits = ReadLimits::default();
        let name = "s3://bucket/a";
        let opened = |text: &str, objects: &[ObjectMeta]| {
            let mut findings = Vec::new();
            let bytes = Ok(text.as_bytes().to_vec());
            let manifest = manifest_of(Path::new(name), bytes, || None, &limits, &mut findings)?;
            run(name.to_string(), &store, (manifest, findings), segments(objects, &dir))
        };
        let told = |run: &RemoteRun| run.findings.iter().map(|of| of.message()).collect::<Vec<_>>();
        let whole = opened(r#"{"schema_version": 1, "run_id": "one"}"#, &objects[..2]).unwrap();
        assert_eq!((whole.files.len(), told(&whole)), (1, Vec::new()));
        assert_eq!(whole.manifest.map(|manifest| manifest.run_id).as_deref(), Some("one"));
        let damaged = opened("", &objects).unwrap();
        let [manifest, segment] = &told(&damaged)[..] else { panic!("{:?}", damaged.findings) };
        assert!(manifest.starts_with("`s3://bucket/a/run.json` cannot be read (EOF"), "{manifest}");
        assert!(segment.starts_with("`s3://bucket/a/steps/part-1.parquet.inprogress` was not finished"), "{segment}");
        // Without rows nothing is left of it, and a newer layout may mean anything.
        let nothing = opened("", &objects[..1]).unwrap_err().to_string();
        assert!(nothing.starts_with("nothing in `s3://bucket/a` can be read: `s3://bucket/a/run.json`"), "{nothing}");
        let newer = opened(r#"{"schema_version": 1000}"#, &objects).unwrap_err().to_string();
        assert!(newer.starts_with("`s3://bucket/a/run.json` has schema version 1000"), "{newer}");
    }
}
