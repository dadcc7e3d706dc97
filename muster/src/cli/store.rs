//! `muster store`: the store itself, without a server. An embedded store is locked while a server holds it;
//! etcd can be exported while it serves.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use muster_store::portable::{self, ImportOptions, PortableError};

use super::{
    Tools,
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    print::{format::Format, yaml},
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
    Export {
        /// The file to make; - for standard output
        file: PathBuf,
        #[command(flatten)]
        sources: Sources,
    },
    /// Put an export into a store; Muster then freezes until it has seen the world again
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

pub(crate) async fn run(tools: &Tools, store: Store) -> Outcome {
    match store.what {
        What::Export { file, sources } => export(tools, &file, &sources).await,
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
            let opened = open(tools, &sources).await?;
            let outcome = portable::export(&*opened.store, io::sink(), tools.clock.now()).await;
            let outcome = outcome.map_err(|error| refused(Path::new("store"), &error));
            close(&opened).await?;
            let found = outcome?;
            tools.screen.line(&format!("{} keys at revision {}, all readable", found.count, found.revision))
        }
        What::Stats { output, sources } => {
            let opened = open(tools, &sources).await?;
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
    let opened = open(tools, sources).await?;
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

async fn import(tools: &Tools, file: &Path, overwrite: bool, sources: &Sources) -> Outcome {
    let input = BufReader::new(open_file(file)?);
    let opened = open(tools, sources).await?;
    let outcome =
        portable::import(&*opened.store, input, ImportOptions { overwrite, time: tools.clock.now() }).await;
    close(&opened).await?;
    let done = outcome.map_err(|error| refused(file, &error))?;
    tools.screen.line(&format!("{} keys imported, {} removed", done.count, done.removed))
}

async fn open(tools: &Tools, sources: &Sources) -> Outcome<Opened> {
    let wrong = |error: anyhow::Error| {
        Failure::new(Exit::Failure, "store", format!("{error:#}"))
            .next("name it with --data-dir or --store; stop the server that holds an embedded one")
    };
    let settings = sources.gather().map_err(wrong)?;
    let data = PathBuf::from(settings.text("data-dir"));
    crate::serve::store::open(&settings, &data, &tools.clock).await.map_err(wrong)
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
    Failure::new(Exit::Failure, path.display().to_string(), cause)
        .next("an import into a store that holds something needs --overwrite")
}
