//! The tutorial is run as it stands: every `sh` block of it, in order, in one shell's directory. A comment
//! `<!-- expect: TEXT -->` before a block names text that its output must contain.

mod cli_support;

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use cli_support::{CONTROLLER_TOKEN, MUSTER, Ran, Server, clean};

const ADDRESS: &str = "http://127.0.0.1:8080";

/// A block of commands and what its output must contain.
struct Block {
    line: usize,
    commands: String,
    expected: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut found, mut expected, mut inside) = (Vec::new(), Vec::new(), None::<Block>);
    for (number, line) in text.lines().enumerate() {
        match &mut inside {
            Some(block) if line != "```" => {
                block.commands.push_str(line);
                block.commands.push('\n');
            }
            Some(_) => found.extend(inside.take()),
            None if line == "```sh" => {
                let expected = std::mem::take(&mut expected);
                inside = Some(Block { line: number + 1, commands: String::new(), expected });
            }
            None => {
                if let Some(text) = line.strip_prefix("<!-- expect: ") {
                    expected.push(text.trim_end_matches(" -->").to_owned());
                }
            }
        }
    }
    found
}

/// Markdown files below a directory.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|name| root.join(name))
        .into();
    pages(&root.join("docs"), &mut found);
    let (mut links, mut broken) = (0, Vec::new());
    for page in found {
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            links += 1;
            if !page.parent().expect("a page is in a folder").join(file).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(links > 40, "only {links} links were found");
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_metric_is_explained() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/monitor.md");
    let text = std::fs::read_to_string(page).unwrap();
    let server = Server::start_with(&["--seed-example"]);
    server.run(&["get", "pools"]).ok(); // a family without a series is not shown
    let (status, metrics) = server.http("GET", "/metrics", None, "");
    assert_eq!(status, 200, "{metrics}");
    let families: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .filter(|name| name.starts_with("muster_"))
        .collect();
    assert!(families.len() > 12, "{families:?}");
    for family in families {
        let shown = [family.to_owned(), format!("{family}_total"), format!("{family}_info")];
        assert!(shown.iter().any(|name| text.contains(&format!("`{name}`"))), "monitor.md lacks {family}");
    }
}

#[test]
fn the_tutorial_can_be_copied_and_pasted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorial.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let server = Server::start_with(&["--seed-example"]);
    let home = server.home();
    std::fs::create_dir(home.join("bin")).unwrap();
    symlink(MUSTER, home.join("bin/muster")).unwrap();
    std::fs::create_dir(home.join(".data")).unwrap();
    std::fs::write(home.join(".data/controller-token"), CONTROLLER_TOKEN).unwrap();

    let blocks = blocks(&text);
    assert!(blocks.len() > 15, "only {} blocks were found", blocks.len());
    for Block { line, commands, expected } in blocks {
        assert!(!expected.is_empty(), "line {line}: nothing is expected of\n{commands}");
        let mut shell = clean(Command::new("bash"), home);
        shell.env("MUSTER_SERVER", &server.url).env("PATH", "bin:/usr/local/bin:/usr/bin:/bin");
        let script = commands.replace(ADDRESS, &server.url);
        let ran = Ran::of(shell.args(["-euc", &script]).current_dir(home).output().unwrap());
        assert_eq!(ran.code, 0, "line {line}: {}{}", ran.out, ran.err);
        for text in expected {
            assert!(ran.out.contains(&text), "line {line}: no {text:?} in\n{}", ran.out);
        }
    }
}
