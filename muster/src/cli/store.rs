//! `muster store`: the store itself, without a server. An embedded store is locked while a server holds it: then
//! the server writes the export. etcd can be exported while it serves.

use std::{
    fs::File,
    io::{self, BufReader, Write as _},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use muster_model::store::StoreError;
use muster_store::portable::{self, ImportOptions, PortableError};

use super::{
    Tools,
    client::Request,
    context::Connection,
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    print::{format::Format, yaml},
    session::Session,
};
use crate::{config::Sources, serve::store::Opened};

#[derive(Debug, Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write everything to a file, as lines of JSON with checksums, at one revision
    Export(Box<Export>),
    /// Put an export into a store, and mark in it that it may be older than the world
    Import {
        /// The file to read
        file: PathBuf,
        /// Replace what the store holds
        #[arg(long)]
        overwrite: bool,
        #[command(flatten)]
        sources: Sources,
    },
    /// Check an export, or without a file open the store and read all of it
    Verify {
        /// The export to check
        file: Option<PathBuf>,
        #[command(flatten)]
        sources: Sources,
    },
    /// Show what the store holds
    Stats {
        /// yaml or json
        #[arg(short, long, default_value = "yaml", value_name = "FORMAT")]
        output: FormatArg,
        #[command(flatten)]
        sources: Sources,
    },
}

#[derive(Debug, Args)]
struct Export {
    /// The file to make; - for standard output
    file: PathBuf,
    /// Ask the server to write it, while it serves; also done when a server holds the directory
    #[arg(long)]
    online: bool,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn run(tools: &Tools, store: Store) -> Outcome {
    match store.what {
        What::Export(args) if args.online => online_export(tools, &args.file, &args.connection).await,
        What::Export(args) => match export(tools, &args.file, &args.sources).await {
            Err(failure) if failure.exit == Exit::Conflict => {
                tools.screen.note("a server holds this store; asking it to write the export");
                online_export(tools, &args.file, &args.connection).await
            }
            outcome => outcome,
        },
        What::Import { file, overwrite, sources } => import(tools, &file, overwrite, &sources).await,
        What::Verify { file: Some(file), .. } => {
            let input = BufReader::new(open_file(&file)?);
            let found = portable::verify(input).map_err(|error| refused(&file, &error))?;
            tools.screen.line(&format!(
                "{}: {} keys of revision {}, whole (sha256 {})",
                file.display(),
                found.count,
                found.header.revision,
                found.sha256
            ))
        }
        What::Verify { file: None, sources } => {
            let opened = open(tools, &sources, Missing::Refused).await?;
            let outcome = portable::export(&*opened.store, io::sink(), tools.clock.now()).await;
            let outcome = outcome.map_err(|error| refused(Path::new("store"), &error));
            close(&opened).await?;
            let found = outcome?;
            tools.screen.line(&format!("{} keys at revision {}, all readable", found.count, found.revision))
        }
        What::Stats { output, sources } => {
            let opened = open(tools, &sources, Missing::Refused).await?;
            let stats = opened.store.stats().await;
            close(&opened).await?;
            let stats = stats.map_err(|error| {
                Failure::new(Exit::Failure, "store", error.to_string())
                    .next("`muster store verify` looks closer")
            })?;
            let document = serde_json::to_value(&stats).unwrap_or_default();
            match &output.0 {
                Format::Table | Format::Wide | Format::Name => tools.screen.data(&yaml::to_string(&document)),
                other => tools.screen.data(&other.document(&document, true)?),
            }
        }
    }
}

async fn export(tools: &Tools, file: &Path, sources: &Sources) -> Outcome {
    let opened = open(tools, sources, Missing::Refused).await?;
    let now = tools.clock.now();
    let outcome = if file == Path::new("-") {
        portable::export(&*opened.store, io::stdout().lock(), now).await
    } else {
        portable::export_to_file(&*opened.store, file, now).await.map_err(PortableError::Store)
    };
    close(&opened).await?;
    let done = outcome.map_err(|error| refused(file, &error))?;
    tools.screen.note(&format!("{} keys at revision {}, sha256 {}", done.count, done.revision, done.sha256));
    Ok(())
}

/// Has the server write the export. What arrives is checked before it gets its name.
async fn online_export(tools: &Tools, file: &Path, connection: &Connection) -> Outcome {
    let session = Session::open(connection, tools)?;
    let request = Request::get("/api/v1/store/export", "store");
    let mut response = session.client.stream(request).await?;
    let to_screen = file == Path::new("-");
    let draft = if to_screen {
        std::env::temp_dir().join(format!("muster-export-{}", std::process::id()))
    } else {
        PathBuf::from(format!("{}.part", file.display()))
    };
    let wrong = |error: io::Error| refused(file, &PortableError::Io(error));
    let outcome = async {
        let mut out = io::BufWriter::new(private(&draft).map_err(wrong)?);
        while let Some(piece) = response.chunk().await.map_err(|error| session.client.transport(&error))? {
            out.write_all(&piece).map_err(wrong)?;
        }
        let out = out.into_inner().map_err(|error| wrong(error.into_error()))?;
        out.sync_all().map_err(wrong)?;
        let found =
            portable::verify(BufReader::new(open_file(&draft)?)).map_err(|error| refused(file, &error))?;
        if to_screen {
            io::copy(&mut open_file(&draft)?, &mut io::stdout().lock())?;
        } else {
            std::fs::rename(&draft, file).map_err(wrong)?;
        }
        Ok(found)
    };
    let outcome: Outcome<portable::Verified> = outcome.await;
    if to_screen || outcome.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    let found = outcome?;
    tools.screen.note(&format!(
        "{} keys at revision {}, sha256 {}",
        found.count, found.header.revision, found.sha256
    ));
    Ok(())
}

/// A new file that only its owner can read: an export holds secrets.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

async fn import(tools: &Tools, file: &Path, overwrite: bool, sources: &Sources) -> Outcome {
    let input = BufReader::new(open_file(file)?);
    let opened = open(tools, sources, Missing::Made).await?;
    let outcome =
        portable::import(&*opened.store, input, ImportOptions { overwrite, time: tools.clock.now() }).await;
    close(&opened).await?;
    let done = outcome.map_err(|error| refused(file, &error))?;
    tools.screen.line(&format!("{} keys imported, {} removed", done.count, done.removed))
}

/// What happens where there is no embedded store yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    /// Looking at a store must not make one: a mistyped directory would be an empty store.
    Refused,
}

async fn open(tools: &Tools, sources: &Sources, missing: Missing) -> Outcome<Opened> {
    let wrong = |error: anyhow::Error| {
        let locked = error
            .chain()
            .any(|cause| matches!(cause.downcast_ref::<StoreError>(), Some(StoreError::Locked { .. })));
        let exit = if locked { Exit::Conflict } else { Exit::Failure };
        Failure::new(exit, "store", format!("{error:#}"))
            .next("name it with --data-dir or --store; stop the server that holds an embedded one")
    };
    let settings = sources.gather().map_err(wrong)?;
    let data = PathBuf::from(settings.text("data-dir"));
    let directory = data.join("store");
    if missing == Missing::Refused && settings.text("store") == "embedded" && !directory.exists() {
        let text = format!("there is no store in {}", data.display());
        return Err(Failure::new(Exit::NotFound, "store", text).next("name it with --data-dir or --store"));
    }
    crate::serve::store::open(&settings, &data, &tools.clock, "muster store").await.map_err(wrong)
}

async fn close(opened: &Opened) -> Outcome {
    opened.store.close().await.map_err(|error| {
        Failure::new(Exit::Failure, "store", error.to_string())
            .next("run `muster store verify` before the next start")
    })
}

fn open_file(path: &Path) -> Outcome<File> {
    File::open(path).map_err(|error| {
        let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failure };
        Failure::new(exit, format!("file {}", path.display()), error.to_string()).next("check the path")
    })
}

fn refused(path: &Path, error: &PortableError) -> Failure {
    let cause = std::error::Error::source(error)
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    let next = match error {
        PortableError::NotEmpty { .. } | PortableError::OtherImport { .. } => {
            "name an empty store, or replace what it holds with --overwrite"
        }
        PortableError::Line { .. } | PortableError::Truncated { .. } => {
            "use another copy of the export, or take a new one; nothing was changed"
        }
        PortableError::Format { .. } => "use the version of Muster that wrote it, or a newer one",
        PortableError::Io(_) => "check the path and the space left on the disk",
        PortableError::Disturbed { .. } => "stop every server on that store, then run the same import again",
        PortableError::Store(_) => {
            "see that the store answers, then run it again; `muster store verify` looks closer"
        }
    };
    Failure::new(Exit::Failure, path.display().to_string(), cause).next(next)
}
