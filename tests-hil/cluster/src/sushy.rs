//! A real Redfish service that others wrote: the emulator of sushy-tools with its driver of machines that exist only in it. Its
//! packages come from the Python index once and stay in the cache. Nothing is installed.
//!
//! An order is accepted at once and carried out 1 to 11 s later, and until then the service says the power of before, as many
//! management controllers do.

use crate::assets::Environment;
use crate::error::ClusterError;
use crate::folder::{Folder, last_lines};
use crate::pki::MutualTls;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The name of the folder in the cache. It changes with the packages.
const FOLDER: &str = "sushy-tools-2.2.0";
/// The packages, as they were tried together.
const PACKAGES: [&str; 17] = [
    "sushy-tools==2.2.0",
    "Flask==3.1.3",
    "Jinja2==3.1.6",
    "MarkupSafe==3.0.4",
    "WebOb==1.8.11",
    "Werkzeug==3.1.9",
    "bcrypt==5.0.0",
    "blinker==1.9.0",
    "certifi==2026.10.19.post1",
    "charset-normalizer==3.5.3",
    "click==8.5.1",
    "idna==3.20",
    "itsdangerous==2.2.0",
    "pbr==7.1.3",
    "requests==2.34.2",
    "tenacity==9.2.1",
    "urllib3==2.8.0",
];

/// Serves until its standard input is closed, which the end of the test does in any case.
const SERVE: &str = "
import os, sys, threading
import bcrypt
from sushy_tools.emulator.main import main

folder, port = sys.argv[1:]
with open(os.path.join(folder, 'login')) as login, open(os.path.join(folder, 'auth'), 'w') as auth:
    user, password = login.read().split()
    auth.write('%s:%s\\n' % (user, bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()))
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
config = os.path.join(folder, 'service.conf')
sys.argv = ['sushy-emulator', '--config', config, '-i', '127.0.0.1', '-p', port]
sys.exit(main())
";

/// The service, with TLS and a login. It ends with the handle.
#[derive(Debug)]
pub struct SushyEmulator {
    child: Child,
    address: SocketAddr,
    folder: Folder,
}

impl SushyEmulator {
    /// Who may use it.
    pub const USER: &'static str = "joulie";
    /// The password.
    pub const PASSWORD: &'static str = "only-on-loopback";

    /// Starts it with these systems, which are on. It answers some moments later.
    ///
    /// # Errors
    /// [`ClusterError::Absent`] if there is no Python, or its packages cannot be had.
    pub fn start(environment: &Environment, systems: &[&str]) -> Result<Self, ClusterError> {
        let python = python(environment)?;
        let packages = obtain(environment, &python)?;
        let folder = Folder::temporary()?;
        let tls = MutualTls::create(folder.path())?;
        let state = folder.join("state");
        std::fs::create_dir_all(&state).map_err(ClusterError::file("making the folder", &state))?;
        let mut text = "SUSHY_EMULATOR_FAKE_DRIVER = True\n".to_owned();
        for (name, path) in [
            ("STATE_DIR", &state),
            ("AUTH_FILE", &folder.join("auth")),
            ("SSL_CERT", &tls.server.certificate),
            ("SSL_KEY", &tls.server.key),
        ] {
            // Writing to a string cannot fail. The folder has a plain name.
            let _ = writeln!(text, "SUSHY_EMULATOR_{name} = '{}'", path.display());
        }
        let each = systems
            .iter()
            .map(|name| format!("{{'uuid': '{name}', 'name': '{name}', 'power_state': 'On', 'nics': []}}"));
        let _ = writeln!(text, "SUSHY_EMULATOR_FAKE_SYSTEMS = [{}]", each.collect::<Vec<_>>().join(", "));
        folder.write("service.conf", &text)?;
        folder.write("login", &format!("{} {}", Self::USER, Self::PASSWORD))?;
        folder.write("password", Self::PASSWORD)?;
        let log = folder.join("log");
        let out = File::create(&log).map_err(ClusterError::file("making", &log))?;
        let both = out.try_clone().map_err(ClusterError::file("opening", &log))?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = port.map_err(ClusterError::system("finding a free port on 127.0.0.1"))?;
        let child = Command::new(python)
            .args(["-c", SERVE])
            .arg(folder.path())
            .arg(address.port().to_string())
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(both)
            .spawn()
            .map_err(ClusterError::system("starting the emulator of sushy-tools"))?;
        Ok(Self { child, address, folder })
    }

    /// The URL of a system.
    #[must_use]
    pub fn system(&self, name: &str) -> String {
        format!("https://{}/redfish/v1/Systems/{name}", self.address)
    }

    /// The authority of its certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The file with the password.
    #[must_use]
    pub fn password(&self) -> PathBuf {
        self.folder.join("password")
    }

    /// The last that it has written.
    #[must_use]
    pub fn log(&self) -> String {
        last_lines(&std::fs::read_to_string(self.folder.join("log")).unwrap_or_default())
    }
}

impl Drop for SushyEmulator {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python(environment: &Environment) -> Result<PathBuf, ClusterError> {
    let found = environment.find("python3");
    found.ok_or_else(|| ClusterError::Absent("there is no python3 on PATH for sushy-tools".to_owned()))
}

/// The folder of the packages.
fn obtain(environment: &Environment, python: &Path) -> Result<PathBuf, ClusterError> {
    let cache = environment.cache()?;
    let folder = cache.join(FOLDER);
    std::fs::create_dir_all(&cache).map_err(ClusterError::file("making the cache folder", &cache))?;
    let lock = cache.join("sushy-tools.lock");
    let alone = File::create(&lock).map_err(ClusterError::file("opening the lock", &lock))?;
    alone.lock().map_err(ClusterError::file("locking", &lock))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let new = cache.join("sushy-tools.new");
    // Remove what a killed download left.
    let _ = std::fs::remove_dir_all(&new);
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"];
    let output = Command::new(python).args(pip).arg(&new).args(PACKAGES).output();
    let output = output.map_err(ClusterError::system("running pip"))?;
    if !output.status.success() {
        let said = last_lines(&String::from_utf8_lossy(&output.stderr)).replace('\n', " ");
        return Err(ClusterError::Absent(format!("the packages of sushy-tools cannot be had: {said}")));
    }
    std::fs::rename(&new, &folder).map_err(ClusterError::file("moving the packages to", &folder))?;
    Ok(folder)
}
