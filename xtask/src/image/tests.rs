use super::bill::{checksums, document, read};
use super::layout::{About, archive, date, digest};
use super::root::{Entry, loaded};
use super::*;
use serde_json::Value;
use std::collections::BTreeSet;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("joulie-image-test-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn words_of_the_command_line_are_read_and_others_are_refused() {
    let wanted = Wanted::read(&["--out", "here", "--check"]).unwrap();
    assert_eq!(wanted, Wanted { out: Some("here".into()), check: true, ..Wanted::default() });
    let cross = Wanted::read(&["--target", "aarch64-unknown-linux-gnu"]).unwrap().target;
    assert_eq!(cross.architecture(), "arm64");
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    for triple in ["riscv64gc-unknown-linux-gnu", musl.as_str()] {
        let error = format!("{:#}", Wanted::read(&["--target", triple]).unwrap_err());
        assert!(error.contains("accepted: aarch64-unknown-linux-gnu"), "{error}");
    }
    assert!(Wanted::read(&["--target"]).unwrap_err().to_string().contains("--target needs"));
    assert!(Wanted::read(&["--ouT", "here"]).unwrap_err().to_string().contains("\"--ouT\" is not known"));
    assert!(Wanted::read(&["--out"]).unwrap_err().to_string().contains("--out needs a folder"));
    assert!(Wanted::read(&["--out", "--check"]).unwrap_err().to_string().contains("--out needs a folder"));
}

#[test]
fn what_the_loader_says_is_read() {
    let said = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f)\n\
                \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
    let libraries = loaded(said).unwrap();
    assert_eq!(
        libraries,
        ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
    );
    assert!(loaded("\tlibodd.so.1 => not found\n").unwrap_err().to_string().contains("libodd.so.1"));
    assert_eq!(loaded("\tstatically linked\n").unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn dates_are_those_of_the_calendar() {
    // `date -u -d @N` of GNU coreutils.
    assert_eq!(date(0), "1970-01-01T00:00:00Z");
    assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(date(1_798_761_599), "2026-12-31T23:59:59Z");
}

#[test]
fn the_list_has_what_is_linked_once_with_its_digest() {
    let said = "agent v0.1.0 (/somewhere)|Apache-2.0\nbytes v1.12.1|MIT\nbytes v1.12.1|MIT (*)\nold v0.1.0|MIT/Apache-2.0\n";
    let linked = read(said).unwrap();
    let lock = "version = 4\n[[package]]\nname = \"bytes\"\nversion = \"1.12.1\"\nchecksum = \"abc\"\n\n[[package]]\nname = \"agent\"\nversion = \"0.1.0\"\n";
    let list = document((&linked, &[]), &checksums(lock), 0);
    let components = list["components"].as_array().unwrap();
    assert_eq!(components.len(), 2);
    assert_eq!(components[0]["purl"], "pkg:cargo/bytes@1.12.1");
    assert_eq!(components[0]["hashes"][0]["content"], "abc");
    assert_eq!(components[1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    assert!(read("nonsense").is_err());
}

fn small() -> RootFs {
    let mut files = RootFs::default();
    files.file("usr/bin/one", 0o755, b"one".to_vec());
    files.file("etc/passwd", 0o644, b"root".to_vec());
    files
}

#[test]
fn an_archive_is_sorted_of_root_and_as_old_as_the_commit() {
    let bytes = archive(&small(), 7).unwrap();
    let mut archive = tar::Archive::new(bytes.as_slice());
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 7));
        found.push((entry.path().unwrap().to_string_lossy().into_owned(), header.mode().unwrap()));
    }
    let expected = [
        ("etc/", 0o755),
        ("etc/passwd", 0o644),
        ("usr/", 0o755),
        ("usr/bin/", 0o755),
        ("usr/bin/one", 0o755),
    ];
    assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
}

/// Follows every descriptor in a document of the layout to the blob that it names.
fn follow(folder: &Path, value: &Value, seen: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let (Some(name), Some(size)) =
                (fields.get("digest").and_then(Value::as_str), fields.get("size"))
            {
                let path = folder.join("blobs/sha256").join(name.trim_start_matches("sha256:"));
                let content = std::fs::read(path).unwrap();
                assert_eq!(digest(&content), name);
                assert_eq!(size.as_u64().unwrap(), content.len() as u64);
                if seen.insert(name.to_owned())
                    && let Ok(inner) = serde_json::from_slice(&content)
                {
                    follow(folder, &inner, seen);
                }
            }
            fields.values().for_each(|value| follow(folder, value, seen));
        }
        Value::Array(values) => values.iter().for_each(|value| follow(folder, value, seen)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_layout_names_every_blob_by_its_digest_and_is_the_same_each_time() {
    let out = folder("layout");
    let about = About { version: "1.2.3", revision: "abc", architecture: "arm64", made: 7 };
    let first = layout::write(&out, &small(), "{}", &about).unwrap();
    let again = layout::write(&out, &small(), "{}", &about).unwrap();
    assert_eq!(first, again);

    let index = json(&out.join("index.json"));
    let mut seen = BTreeSet::new();
    follow(&out, &index, &mut seen);
    assert_eq!(std::fs::read_dir(out.join("blobs/sha256")).unwrap().count(), seen.len());
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1, "a tool that copies it need not choose");
    assert_eq!(index["manifests"][0]["digest"], first.digest.as_str());

    // The configuration contains the digest of the uncompressed archive.
    let blob = |value: &Value| {
        let name = value["digest"].as_str().unwrap().trim_start_matches("sha256:");
        std::fs::read(out.join("blobs/sha256").join(name)).unwrap()
    };
    let of_version: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
    let manifest: Value = serde_json::from_slice(&blob(&of_version["manifests"][0])).unwrap();
    assert_eq!(manifest["layers"][0]["size"], first.packed);
    assert_eq!(first.unpacked, archive(&small(), 7).unwrap().len());
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], digest(&archive(&small(), 7).unwrap()).as_str());
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["architecture"], "arm64");
    assert_eq!(of_version["manifests"][0]["platform"]["architecture"], "arm64");
    let bill: Value = serde_json::from_slice(&blob(&of_version["manifests"][1])).unwrap();
    assert_eq!(bill["subject"]["digest"], of_version["manifests"][0]["digest"]);
    std::fs::remove_dir_all(out).unwrap();
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn architectures_of_one_commit_lie_in_one_layout_and_an_older_commit_leaves_it() {
    let out = folder("both");
    let write = |architecture, revision| {
        layout::write(&out, &small(), "{}", &About { version: "1.2.3", revision, architecture, made: 7 })
            .unwrap()
    };
    let blobs = || std::fs::read_dir(out.join("blobs/sha256")).unwrap().count();
    let one = write("amd64", "abc");
    let of_one = blobs();
    let both = write("arm64", "abc");
    assert_eq!(
        (one.architectures, both.architectures),
        (vec!["amd64".to_owned()], vec!["amd64".into(), "arm64".into()])
    );
    // The same files: what is new is a configuration, a manifest, a bill's manifest, and the index instead of the one before.
    assert_eq!(blobs(), of_one + 3);
    let mut seen = BTreeSet::new();
    follow(&out, &json(&out.join("index.json")), &mut seen);
    assert_eq!(blobs(), seen.len());
    assert_eq!(write("amd64", "abc").digest, both.digest, "whichever is made last");
    assert_eq!(write("amd64", "def").architectures, ["amd64"]);
    assert_eq!(blobs(), of_one);
    // Sources that are in no repository may be any.
    write("arm64", UNKNOWN);
    assert_eq!(write("amd64", UNKNOWN).architectures, ["amd64"]);
    // A folder in which something is broken begins anew.
    std::fs::write(out.join("index.json"), "{").unwrap();
    assert_eq!(write("arm64", "def").architectures, ["arm64"]);
    // The layer of the other one is not what its name says.
    for entry in std::fs::read_dir(out.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        if serde_json::from_slice::<Value>(&std::fs::read(&path).unwrap()).is_err() {
            std::fs::write(path, "x").unwrap();
        }
    }
    assert_eq!(write("amd64", "def").architectures, ["amd64"]);
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_folder_that_is_no_layout_keeps_what_it_holds() {
    let out = folder("foreign");
    let about = About { version: "1.2.3", revision: "abc", architecture: "arm64", made: 7 };
    let write = || layout::write(&out, &small(), "{}", &about);
    // Of another program that keeps files by their digests, and a folder that only looks as if it were one.
    for file in ["blobs/sha256/abc", "index.json", "notes.txt"] {
        let path = out.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine").unwrap();
        let error = write().unwrap_err().to_string();
        assert!(error.contains("is not empty, and is no image layout"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert!(!out.join("oci-layout").exists());
        std::fs::remove_dir_all(&out).unwrap();
    }
    // An empty one is taken, and what a person puts beside the image stays with the next one.
    std::fs::create_dir_all(&out).unwrap();
    write().unwrap();
    std::fs::write(out.join("notes.txt"), "mine").unwrap();
    layout::write(&out, &small(), "{}", &About { revision: "def", ..about }).unwrap();
    assert_eq!(std::fs::read(out.join("notes.txt")).unwrap(), b"mine");
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_folder_that_holds_something_is_not_written_to() {
    let out = folder("rootfs");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("mine"), "x").unwrap();
    assert!(small().write(&out).unwrap_err().to_string().contains("is not empty"));
    std::fs::remove_file(out.join("mine")).unwrap();
    small().write(&out).unwrap();
    assert_eq!(std::fs::read(out.join("usr/bin/one")).unwrap(), b"one");
    std::fs::remove_dir_all(out).unwrap();
}

/// Says why, and returns none, where the packages of the other architecture are not there.
fn cross_built(folder: &Path) -> Option<BuildTarget> {
    let source = folder.join("says.c");
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&source, "#include <math.h>\n#include <stdio.h>\nint main(int n, char **all) { return printf(\"%s %.1f\\n\", all[1], sqrt(n + 2.0)) < 0; }\n").unwrap();
    let mut compiler = Command::new("aarch64-linux-gnu-gcc");
    let built = compiler.arg(&source).args(["-lm", "-o"]).arg(folder.join("says")).status();
    let emulator = Command::new("/usr/bin/qemu-aarch64").arg("--version").output();
    let target = BuildTarget::read("aarch64-unknown-linux-gnu").unwrap();
    let has_libraries = target.source(Path::new("/lib/libstdc++.so.6")).exists();
    if built.is_ok_and(|status| status.success()) && emulator.is_ok() && has_libraries {
        return Some(target);
    }
    println!(
        "SKIP(no compiler and emulator of arm64: packages gcc-aarch64-linux-gnu, libstdc++6-arm64-cross and qemu-user)"
    );
    None
}

#[test]
fn a_program_of_another_architecture_comes_with_its_libraries_and_runs_from_them_alone() {
    let (programs, out) = (folder("cross"), folder("cross-rootfs"));
    if let Some(target @ BuildTarget::Cross(cross)) = cross_built(&programs) {
        let files = RootFs::of(target, &programs, &["says"]).unwrap();
        let paths: Vec<&str> = files.entries().map(|(path, _)| path).collect();
        for needed in ["lib/libc.so.6", "lib/ld-linux-aarch64.so.1", "lib/libm.so.6", "lib/libstdc++.so.6"] {
            assert!(paths.contains(&needed), "{needed}: {paths:?}");
        }
        files.write(&out).unwrap();
        let said = cross.emulated(&out, "/usr/bin/says").arg("two").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "two 2.0\n", "{said:?}");
        std::fs::remove_file(out.join("lib/libm.so.6")).unwrap();
        assert!(!cross.emulated(&out, "/usr/bin/says").output().unwrap().status.success());
        std::fs::remove_dir_all(out).unwrap();
    }
    std::fs::remove_dir_all(programs).unwrap();
}

#[test]
fn a_program_of_this_system_comes_with_its_libraries() {
    let this = std::env::current_exe().unwrap();
    let name = this.file_name().unwrap().to_str().unwrap();
    let files = RootFs::of(BuildTarget::Here, this.parent().unwrap(), &[name]).unwrap();
    let paths: Vec<&str> = files.entries().map(|(path, _)| path).collect();
    for needed in ["libc.so.6", "libstdc++.so.6", "libpthread.so.0"] {
        assert!(paths.iter().any(|path| path.ends_with(needed)), "{needed}: {paths:?}");
    }
    assert!(files.entries().any(|(path, entry)| path == "tmp" && *entry == Entry::Folder { mode: 0o1777 }));
}
