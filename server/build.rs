//! Takes the built page (`web/dist`) into the program. Without it the program serves one that says how to build it.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The program does not carry more than this: a page that large is a mistake.
const MOST_BYTES: u64 = 8 << 20;

#[allow(clippy::disallowed_methods, reason = "cargo tells a build script where to write by a variable")]
fn main() -> io::Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/dist");
    // The directory is in the repository, so that cargo notices when something is built into it.
    println!("cargo::rerun-if-changed={}", page.display());
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let mut files = Vec::new();
    if page.is_dir() {
        walk(&page, &page, &mut files)?;
    }
    files.sort();
    let mut table = String::from("pub(super) static FILES: &[File] = &[\n");
    let mut total = 0;
    for (number, (name, path)) in files.iter().enumerate() {
        let bytes = fs::read(path)?;
        total += bytes.len() as u64;
        let packed = match path.extension().and_then(|extension| extension.to_str()) {
            Some("html" | "js" | "css" | "svg") => {
                let target = out.join(format!("{number}.gz"));
                fs::write(&target, pack(&bytes)?)?;
                format!("Some(include_bytes!({:?}))", target.display().to_string())
            }
            _ => "None".to_owned(),
        };
        let path = path.canonicalize()?.display().to_string();
        writeln!(table, "    File {{ name: {name:?}, bytes: include_bytes!({path:?}), packed: {packed} }},")
            .expect("writing to a text cannot fail");
    }
    assert!(total <= MOST_BYTES, "web/dist has {total} bytes, and {MOST_BYTES} are allowed");
    table.push_str("];\n");
    fs::write(out.join("page.rs"), table)
}

fn walk(root: &Path, directory: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name =
            path.strip_prefix(root).expect("it was found under the root").to_string_lossy().into_owned();
        if path.is_dir() {
            walk(root, &path, files)?;
        } else if !name.starts_with('.') {
            files.push((name, path));
        }
    }
    Ok(())
}

fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes)?;
    packed.finish()
}
