use super::*;
use cluster::ClusterError;
use cluster::assets::{Environment, krew};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

const URI: &str = "https://example.org/joulie/v1";
/// `printf 'another archive' | sha256sum`.
const OF_ANOTHER: &str = "2c69436dc18e5782410cdfa0e5e728985a4e51939a2ba73998e933e9921fed02";
/// Where the plugin is a script, what it says.
const SAYS: &str = "this is the plugin";

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("joulie-plugin-test-{name}-{}", std::process::id()));
    let _old = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// An archive with a script in the place of the program, and the manifest, in a folder.
fn made(folder: &Path) -> (PathBuf, PathBuf) {
    std::fs::write(folder.join(PROGRAM), format!("#!/bin/sh\necho {SAYS}\n")).unwrap();
    let out = folder.join("out");
    let folder = folder.to_str().unwrap();
    run(root(), &["--programs", folder, "--out", out.to_str().unwrap(), "--uri", URI]).unwrap();
    (out.join(archive_name(BuildTarget::Here.architecture())), out.join(MANIFEST))
}

#[test]
fn words_of_the_command_line_are_read_and_others_are_refused() {
    let wanted = WantedPlugin::read(&["--out", "here", "--uri", "https://a.example/b/"]).unwrap();
    let expected = WantedPlugin {
        out: Some("here".into()),
        uri: Some("https://a.example/b".to_owned()),
        ..WantedPlugin::default()
    };
    assert_eq!(wanted, expected);
    for (words, why) in [
        (&["--ouT", "here"][..], "\"--ouT\" is not known"),
        (&["--out"], "--out needs a value"),
        (&["--out", "--uri"], "--out needs a value"),
        (&["--uri", "http://a.example"], "is no address"),
        (&["--uri", "https:///b"], "is no address"),
        (&["--uri", "https://a.example/ b"], "is no address"),
        (&["--uri", "https://a.example/\"b"], "is no address"),
    ] {
        let said = WantedPlugin::read(words).unwrap_err().to_string();
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let said = run(root(), &["--out", "/nowhere"]).unwrap_err().to_string();
    assert!(said.contains("--uri"), "{said}");
}

#[test]
fn the_archive_has_program_and_license_and_is_the_same_each_time() {
    let (one, two) = (folder("one"), folder("two"));
    let ((first, _), (second, _)) = (made(&one), made(&two));
    let bytes = std::fs::read(first).unwrap();
    assert!(bytes == std::fs::read(second).unwrap());
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        let (name, mode) = (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap());
        found.push((name, mode, content.contains(SAYS) || content.contains("Apache License")));
    }
    assert_eq!(found, [(LICENSE.to_owned(), 0o644, true), (PROGRAM.to_owned(), 0o755, true)]);
    for folder in [one, two] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// The digest of a file, by the program of the system.
fn sum(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// The value of a field on a line of its own.
fn field<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let value =
        |line: &'t str| line.trim_start().trim_start_matches("- ").strip_prefix(name)?.strip_prefix(": ");
    text.lines().filter_map(value).collect()
}

#[test]
fn the_manifest_keeps_krews_rules_and_has_the_digests_of_the_files() {
    let folder = folder("manifest");
    let (archive, manifest) = made(&folder);
    // Another machine has put its own there.
    let other = ARCHITECTURES.into_iter().find(|one| *one != BuildTarget::Here.architecture()).unwrap();
    std::fs::write(folder.join("out").join(archive_name(other)), "another archive").unwrap();
    made(&folder);
    let text = std::fs::read_to_string(&manifest).unwrap();
    // krew v0.5.0, internal/index/validation: the version of the format, a short description in one line, a version with its v, of
    // each platform an address, 64 digits, a program, files, and a selector by os and arch alone.
    assert_eq!(field(&text, "apiVersion"), ["krew.googlecontainertools.github.com/v1alpha2"]);
    assert_eq!((field(&text, "kind"), field(&text, "name")), (vec!["Plugin"], vec!["joulie"]));
    assert_eq!(field(&text, "version"), [format!("v{}", env!("CARGO_PKG_VERSION"))]);
    let [short] = field(&text, "shortDescription")[..] else { panic!("{text}") };
    assert!(short.len() <= 70 && !short.ends_with('.'), "{short}");
    assert_eq!(field(&text, "matchLabels"), ["{os: linux, arch: amd64}", "{os: linux, arch: arm64}"]);
    assert_eq!(field(&text, "bin"), [PROGRAM, PROGRAM]);
    let mut digests = [(BuildTarget::Here.architecture(), sum(&archive)), (other, OF_ANOTHER.to_owned())];
    digests.sort();
    let digests = digests.map(|(_, digest)| digest);
    assert_eq!(field(&text, "sha256"), digests);
    assert!(digests.iter().all(|digest| digest.len() == 64));
    let uris = ARCHITECTURES.map(|one| format!("{URI}/{}", archive_name(one)));
    assert_eq!(field(&text, "uri"), uris);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn krew_itself_installs_the_plugin_and_refuses_another_archive() {
    let krew = match krew(&Environment::of_this_process()) {
        Ok(krew) => krew,
        Err(ClusterError::Absent(why)) => return println!("SKIP(no krew: {why})"),
        Err(why) => panic!("{why}"),
    };
    let folder = folder("krew");
    let (archive, manifest) = made(&folder);
    let home = folder.join("home");
    let install = |archive: &Path| -> Output {
        let mut command = Command::new(&krew);
        command.arg("install").arg(format!("--manifest={}", manifest.display()));
        command.arg(format!("--archive={}", archive.display()));
        command.env("KREW_ROOT", &home).env("KREW_NO_UPGRADE_CHECK", "1").env("HOME", &home);
        command.stdin(std::process::Stdio::null()).output().unwrap()
    };
    let other = folder.join("other.tar.gz");
    let mut bytes = std::fs::read(&archive).unwrap();
    bytes.push(0);
    std::fs::write(&other, bytes).unwrap();
    let refused = install(&other);
    assert!(!refused.status.success(), "{refused:?}");
    let installed = install(&archive);
    assert!(installed.status.success(), "{installed:?}");
    let said = Command::new(home.join("bin").join(PROGRAM)).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), SAYS);
    let store = home.join("store").join(NAME).join(format!("v{}", env!("CARGO_PKG_VERSION")));
    let mode = std::fs::metadata(store.join(PROGRAM)).unwrap().permissions().mode();
    assert!(mode & 0o111 != 0 && store.join(LICENSE).is_file(), "{mode:o}");
    std::fs::remove_dir_all(folder).unwrap();
}
