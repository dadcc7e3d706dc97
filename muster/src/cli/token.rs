//! `muster config token`: makes a token and the line that lets its holder in.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt, path::PathBuf};

use clap::Args;
use rand::RngCore;
use sha2::{Digest, Sha256};

use super::{
    Tools,
    failure::{Exit, Failure, Outcome},
};

/// Random bytes of a token: what nobody guesses, even who can try for ever.
const BYTES: usize = 32;

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// Whose token it is, as roles are bound to it
    #[arg(long, value_name = "NAME")]
    user: String,
    /// Write the token into this new file, which only you can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(tools: &Tools, args: &Token) -> Outcome {
    if args.user.is_empty() || args.user.chars().any(|c| c.is_control() || c == '"' || c == '\\') {
        return Err(Failure::usage("--user", "it must be a plain name or address"));
    }
    let mut bytes = [0; BYTES];
    rand::rng().fill_bytes(&mut bytes);
    let token = hex::encode(bytes);
    let digest = hex::encode(Sha256::digest(token.as_bytes()));
    if let Some(path) = &args.file {
        let wrong = |error: std::io::Error| {
            Failure::new(Exit::Failure, format!("file {}", path.display()), error.to_string())
                .next("name a file that does not exist yet, in a folder that you can write to")
        };
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(wrong)?;
        writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(wrong)?;
        tools.screen.note(&format!("the token is in {}; sign in with --token-file", path.display()));
    } else {
        tools.screen.note(&format!("the token, shown this once: {token}"));
    }
    tools.screen.note("add this under auth.tokens of the server's settings, and bind roles to the user under auth.bindings:");
    tools.screen.data(&format!("- user: \"{}\"\n  sha256: {digest}\n", args.user))
}
