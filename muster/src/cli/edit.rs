//! `muster edit` and `muster patch`: changes to what is there.

use std::{fs, io::Write, path::PathBuf, process::Command};

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::{
    apply::Printer,
    client::Request,
    context::Connection,
    declare::{self, DryRun},
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    kinds::{Kind, text_at},
    list::Selection,
    manifest,
    print::{lines, yaml},
    resolve,
    session::Session,
};

/// Opened when nobody said which editor to use.
const DEFAULT_EDITOR: &str = "vi";

#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// What to edit: KIND NAME or KIND/NAME
    #[arg(required = true, value_name = "KIND NAME", add = super::complete::targets())]
    what: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `-p` is the patch, as in kubectl, and not the project as elsewhere.
#[derive(Debug, Args)]
#[command(mut_arg("project", |project| project.short(None)))]
#[allow(clippy::struct_field_names, reason = "the fields are the flags that people type")]
pub(crate) struct Patch {
    /// What to change: KIND NAME or KIND/NAME
    #[arg(required = true, value_name = "KIND NAME", add = super::complete::targets())]
    what: Vec<String>,
    /// The change as a JSON merge patch, in JSON or YAML
    #[arg(short, long, value_name = "PATCH", required_unless_present = "patch_file")]
    patch: Option<String>,
    /// File with the change
    #[arg(long, value_name = "FILE", conflicts_with = "patch")]
    patch_file: Option<PathBuf>,
    /// Only when the object still has this resource version
    #[arg(long, value_name = "VERSION")]
    resource_version: Option<String>,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    /// Print the object instead of a line: json, yaml, name, jsonpath=…
    #[arg(short, long, value_name = "FORMAT", add = super::complete::formats())]
    output: Option<FormatArg>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The one writable object that the words mean.
async fn subject(
    session: &Session,
    what: &[String],
    selection: &Selection,
) -> Outcome<(&'static Kind, Value)> {
    let mut targets = resolve::targets(what)?;
    let (Some(target), true) = (targets.pop(), targets.is_empty()) else {
        return Err(Failure::usage("command", "one object at a time").next("repeat the command for each"));
    };
    let Some(name) = target.name else {
        return Err(Failure::usage(format!("kind {}", target.kind.plural), "it needs a name")
            .next(format!("write {}/NAME", target.kind.singular)));
    };
    if target.kind.written.is_empty() {
        return Err(Failure::usage(
            format!("kind {}", target.kind.plural),
            "these cannot be changed by people",
        )
        .next("change clusters or pools"));
    }
    let object = resolve::one(session, target.kind, &name, selection).await?;
    session.know_clusters(target.kind, std::slice::from_ref(&object)).await?;
    Ok((target.kind, object))
}

pub(crate) async fn patch(session: &Session, patch: Patch) -> Outcome {
    let text = match (&patch.patch, &patch.patch_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => fs::read_to_string(path).map_err(|error| {
            Failure::new(Exit::Failure, format!("file {}", path.display()), error.to_string())
                .next("check the path")
        })?,
        (None, None) => {
            return Err(Failure::usage("--patch", "there is no patch")
                .next("write --patch '{\"spec\":{\"nodeCount\":6}}'"));
        }
    };
    let change: Value = serde_saphyr::from_str(&text).ok().filter(Value::is_object).ok_or_else(|| {
        Failure::usage("--patch", "it is not an object in JSON or YAML")
            .next("write it like '{\"spec\":{\"nodeCount\":6}}'")
    })?;
    let (kind, object) = subject(session, &patch.what, &patch.selection).await?;
    let title = session.title(kind, &object);
    let mut request = Request::new(Method::PATCH, kind.path(&text_at(&object, "id")), title)
        .body(change)
        .if_match(patch.resource_version.as_deref());
    request.content_type = "application/merge-patch+json";
    if patch.dry_run == DryRun::Server {
        request = request.query("dryRun", "true");
    }
    let after = session.client.call(request).await?.body;
    let same = declare::as_document(session, kind, &object) == declare::as_document(session, kind, &after);
    let mut printer = Printer::new(session, patch.output, patch.dry_run);
    printer.done(kind, &after, if same { "unchanged" } else { "patched" })?;
    printer.finish()
}

pub(crate) async fn edit(session: &Session, edit: Edit) -> Outcome {
    let (kind, mut current) = subject(session, &edit.what, &edit.selection).await?;
    let title = session.title(kind, &current);
    let original = yaml::to_string(&declare::as_document(session, kind, &current));
    let mut text = original.clone();
    let mut trouble: Option<Failure> = None;
    let file = tempfile::Builder::new()
        .prefix(&format!("muster-{}-", text_at(&current, "name")))
        .suffix(".yaml")
        .tempfile()
        .map_err(|error| {
            Failure::new(Exit::Failure, "temporary file", error.to_string())
                .next("set TMPDIR to a folder that can be written")
        })?;
    loop {
        let shown = format!("{}{text}", comments(&title, trouble.as_ref()));
        write(file.path(), &shown)?;
        open(session, file.path())?;
        let edited = fs::read_to_string(file.path())
            .map_err(|error| Failure::new(Exit::Failure, "temporary file", error.to_string()))?;
        let body = without_comments(&edited);
        if body.trim().is_empty() || body == original {
            session.screen.note(&format!("{title}: nothing changed"));
            return Ok(());
        }
        if trouble.is_some() && body == text {
            // Saved as it was: the person gives up. What was typed stays.
            let kept = file
                .into_temp_path()
                .keep()
                .map_err(|error| Failure::new(Exit::Failure, "temporary file", error.to_string()))?;
            let failure = trouble.unwrap_or_else(|| Failure::silent(Exit::Failure));
            return Err(failure.next(format!(
                "your edit is kept in {0}: correct it and run `muster apply -f {0}`",
                kept.display()
            )));
        }
        text = body;
        match send(session, kind, &current, &text).await {
            Ok(after) => {
                return session.screen.line(&format!(
                    "{}/{} edited",
                    kind.singular,
                    session.full_name(kind, &after)
                ));
            }
            Err(failure) => {
                if failure.exit == Exit::Conflict {
                    // Somebody was faster: the next try goes on top of what they did.
                    current = session
                        .client
                        .call(Request::get(kind.path(&text_at(&current, "id")), title.clone()))
                        .await?
                        .body;
                }
                if !session.screen.person && session.environment.editor.is_none() {
                    return Err(failure);
                }
                trouble = Some(failure);
            }
        }
    }
}

async fn send(session: &Session, kind: &'static Kind, current: &Value, text: &str) -> Outcome<Value> {
    let mut documents = manifest::parse("the edited text", text)?;
    let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
        return Err(
            Failure::new(Exit::Failure, "edit", "expected one object").next("leave one object in the text")
        );
    };
    if document.kind.kind != kind.kind {
        return Err(Failure::new(Exit::Failure, "edit", "the kind of an object cannot change")
            .next("put the kind back"));
    }
    let wanted = declare::prepare(session, document).await?;
    wanted.replace(session, current, DryRun::None).await
}

/// What stands above the text: how this works, or what was wrong.
fn comments(title: &str, trouble: Option<&Failure>) -> String {
    let text = match trouble {
        None => format!(
            "Edit {title}. Lines that begin with # are ignored; an empty file or no change leaves it as it is."
        ),
        Some(failure) => {
            format!("{failure}\n\nCorrect it and save; save it unchanged to give up (your text is kept).")
        }
    };
    lines(text.lines().map(|line| format!("# {line}")))
}

fn without_comments(text: &str) -> String {
    lines(text.lines().skip_while(|line| line.starts_with('#')))
}

fn write(path: &std::path::Path, text: &str) -> Outcome {
    let outcome = fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    outcome
        .map_err(|error| Failure::new(Exit::Failure, format!("file {}", path.display()), error.to_string()))
}

/// Runs the editor and waits for it. It may be a command with arguments, as `code --wait`.
fn open(session: &Session, path: &std::path::Path) -> Outcome {
    let editor = session.environment.editor.as_deref().unwrap_or(DEFAULT_EDITOR);
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    let wrong = |cause: String| {
        Failure::new(Exit::Failure, format!("editor {editor:?}"), cause)
            .next("set EDITOR to one that is installed")
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(wrong(format!("it ended with {status}; nothing was changed"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}
