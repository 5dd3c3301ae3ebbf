//! An OCI image layout: one index of the image's version, and in it for each architecture a manifest with one layer and a
//! configuration. The bill of materials is a separate artifact that refers to the manifest, where registries and scanners look for it.
//!
//! What the folder holds of other architectures stays, if it is of the same commit. So an image for several architectures is made
//! by one command for each, here or on machines of theirs.

use super::UNKNOWN;
use super::root::{Entry, PATH, RootFs, USER};
use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const BILL: &str = "application/vnd.cyclonedx+json";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// The metadata of the image.
pub(super) struct About<'a> {
    pub(super) version: &'a str,
    pub(super) revision: &'a str,
    pub(super) architecture: &'a str,
    /// Seconds since 1970.
    pub(super) made: u64,
}

impl About<'_> {
    fn labels(&self) -> Value {
        json!({
            "org.opencontainers.image.title": "joulie",
            "org.opencontainers.image.description": "Keeps a Kubernetes cluster inside its power limits",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": self.version,
            "org.opencontainers.image.revision": self.revision,
            "org.opencontainers.image.created": self.created(),
        })
    }

    fn created(&self) -> String {
        date(self.made)
    }
}

/// What was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrittenImage {
    /// The digest of the index, by which the image is pulled.
    pub(super) digest: String,
    /// The architectures in the layout.
    pub(super) architectures: Vec<String>,
    /// The bytes of the layer as it is pulled.
    pub(super) packed: usize,
    /// The bytes of its archive.
    pub(super) unpacked: usize,
}

/// Writes the layout.
pub(super) fn write(folder: &Path, files: &RootFs, bill: &str, about: &About<'_>) -> Result<WrittenImage> {
    let (layout, mut images) = Layout::begin(folder, about)?;
    let tar = archive(files, about.made)?;
    let packed = packed(&tar)?;
    let layer = layout.blob(LAYER, &packed)?;
    let config = layout.json(
        CONFIG,
        &json!({
            "created": about.created(),
            "architecture": about.architecture,
            "os": "linux",
            "config": {
                "User": format!("{USER}:{USER}"),
                "Env": [format!("PATH={PATH}")],
                "Cmd": ["joulie", "--help"],
                "WorkingDir": "/",
                "Labels": about.labels(),
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&tar)]},
            "history": [{"created": about.created(), "created_by": "cargo xtask image"}],
        }),
    )?;
    let manifest = layout.json(
        MANIFEST,
        &json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": config, "layers": [layer], "annotations": about.labels(),
        }),
    )?;
    let referrer = layout.json(
        MANIFEST,
        &json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BILL,
            "config": layout.blob(EMPTY, b"{}")?,
            "layers": [layout.blob(BILL, bill.as_bytes())?],
            "subject": manifest,
        }),
    )?;
    let mut image = manifest;
    image["platform"] = json!({"architecture": about.architecture, "os": "linux"});
    let mut attached = referrer;
    // No machine is of this platform, so that nobody runs it.
    attached["platform"] = json!({"architecture": "unknown", "os": "unknown"});
    images.push(Image { image, bill: attached });
    images.sort_by_key(Image::architecture);
    let all: Vec<&Value> = images.iter().flat_map(|image| [&image.image, &image.bill]).collect();
    let of_version = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": all, "annotations": about.labels(),
    });
    let mut named = layout.json(INDEX, &of_version)?;
    let digest = text(&named["digest"]);
    named["annotations"] = json!({"org.opencontainers.image.ref.name": about.version});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});
    layout.file("index.json", &serde_json::to_vec(&index)?)?;
    let architectures = images.iter().map(Image::architecture).collect();
    Ok(WrittenImage { digest, architectures, packed: packed.len(), unpacked: tar.len() })
}

/// The descriptors of an image for one architecture and of its bill of materials.
struct Image {
    image: Value,
    bill: Value,
}

impl Image {
    fn architecture(&self) -> String {
        text(&self.image["platform"]["architecture"])
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The files as a tar archive: sorted, owned by root, with the time of the commit.
pub(crate) fn archive(files: &RootFs, made: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in files.entries() {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(made);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match entry {
            Entry::Folder { mode } => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(*mode);
                archive.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
            Entry::File { mode, content } => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_mode(*mode);
                header.set_size(u64::try_from(content.len())?);
                archive.append_data(&mut header, path, content.as_slice())?;
            }
        }
    }
    Ok(archive.into_inner()?)
}

pub(crate) fn packed(tar: &[u8]) -> Result<Vec<u8>> {
    // The gzip header contains no name and no time.
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    gzip.write_all(tar)?;
    Ok(gzip.finish()?)
}

struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// Removes an earlier image from the folder, and returns what it had for other architectures of the same commit. A folder that
    /// holds something and is no layout is left as it is.
    fn begin(folder: &Path, about: &About<'_>) -> Result<(Self, Vec<Image>)> {
        let layout = Self { folder: folder.to_owned() };
        let blobs = folder.join("blobs/sha256");
        let holds_something = match std::fs::read_dir(folder) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
        };
        ensure!(
            !holds_something || folder.join("oci-layout").is_file(),
            "{} is not empty, and is no image layout: nothing was written",
            folder.display()
        );
        let others = layout.others(about).unwrap_or_default();
        std::fs::create_dir_all(&blobs).with_context(|| format!("making {}", blobs.display()))?;
        // First, so that a folder in which this was cut short is a layout for the next time.
        layout.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let needed: BTreeSet<String> =
            others.iter().flat_map(|image| layout.needed_by(image)).map(|digest| name(&digest)).collect();
        for entry in std::fs::read_dir(&blobs)? {
            let path = entry?.path();
            if !path.file_name().is_some_and(|name| needed.contains(name.to_string_lossy().as_ref())) {
                std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Ok((layout, others))
    }

    /// The images for other architectures that lie in the folder, if they are of the commit that is written.
    fn others(&self, about: &About<'_>) -> Option<Vec<Image>> {
        let index: Value =
            serde_json::from_slice(&std::fs::read(self.folder.join("index.json")).ok()?).ok()?;
        let of_version = self.read(&index["manifests"][0])?;
        let is_same = of_version["annotations"] == about.labels() && about.revision != UNKNOWN;
        let all = of_version["manifests"].as_array().filter(|_| is_same)?;
        let bill_of = |image: &Value| {
            let is_of_it = |one: &&Value| {
                self.read(one).is_some_and(|artifact| artifact["subject"]["digest"] == image["digest"])
            };
            all.iter().find(is_of_it).cloned()
        };
        let images = all.iter().filter_map(|image| {
            self.read(image).filter(|manifest| manifest["subject"].is_null())?;
            Some(Image { image: image.clone(), bill: bill_of(image)? })
        });
        let is_whole =
            |image: &Image| self.needed_by(image).iter().all(|digest| self.blob_of(digest).is_some());
        Some(images.filter(|image| image.architecture() != about.architecture && is_whole(image)).collect())
    }

    /// The digests of the blobs that an image needs.
    fn needed_by(&self, image: &Image) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        for manifest in [&image.image, &image.bill] {
            let content = self.read(manifest).unwrap_or_default();
            let layers = content["layers"].as_array().cloned().unwrap_or_default();
            let all = layers.iter().chain([manifest, &content["config"]]);
            needed.extend(all.map(|descriptor| text(&descriptor["digest"])));
        }
        needed
    }

    /// The JSON document that a descriptor names.
    fn read(&self, descriptor: &Value) -> Option<Value> {
        serde_json::from_slice(&self.blob_of(descriptor["digest"].as_str()?)?).ok()
    }

    /// The blob of this digest, if it is in the folder and whole.
    fn blob_of(&self, of: &str) -> Option<Vec<u8>> {
        // What is no digest may be a path that leads elsewhere.
        let name = Some(name(of)).filter(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let content = std::fs::read(self.folder.join("blobs/sha256").join(name)).ok()?;
        (digest(&content) == of).then_some(content)
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
    }

    fn json(&self, media_type: &str, value: &Value) -> Result<Value> {
        self.blob(media_type, &serde_json::to_vec(value)?)
    }

    /// Writes a blob, and returns its descriptor.
    fn blob(&self, media_type: &str, content: &[u8]) -> Result<Value> {
        let digest = digest(content);
        self.file(&format!("blobs/sha256/{}", name(&digest)), content)?;
        Ok(json!({"mediaType": media_type, "digest": digest, "size": content.len()}))
    }
}

/// The file name of a blob.
fn name(digest: &str) -> String {
    digest.trim_start_matches("sha256:").to_owned()
}

/// `sha256:` and the digest.
pub(crate) fn digest(content: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(content) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Seconds since 1970 as RFC 3339.
pub(super) fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's days_from_civil, reversed: years begin in March, so that the leap day is the last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}
