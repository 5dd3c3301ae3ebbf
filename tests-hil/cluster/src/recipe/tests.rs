use super::*;
use crate::folder::Folder;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

/// A machine whose `go` is a script.
struct Machine {
    folder: Folder,
    environment: Environment,
}

/// A successful `go build`: the argument after `-o` is the program.
const BUILDS: &str =
    r#"echo built >> "$LOG"; while [ "$1" != -o ]; do shift; done; sleep 0.3; echo program > "$2""#;

fn machine(version: &str, download: &str, build: &str) -> Machine {
    let folder = Folder::temporary().unwrap();
    let log = folder.join("log");
    let script = format!(
        "#!/bin/sh\nPATH=/usr/bin:/bin\nLOG={}\ncase $1 in\nversion) {version};;\nmod) {download};;\nbuild) {build};;\n\
         list) dirname $LOG;;\nesac\n",
        log.display()
    );
    let go = folder.write("go", &script).unwrap();
    std::fs::set_permissions(&go, PermissionsExt::from_mode(0o755)).unwrap();
    // A child that another test has forked holds the script open for writing until it calls exec.
    let is_busy = || Command::new(&go).output().is_err_and(|why| why.kind() == ErrorKind::ExecutableFileBusy);
    while is_busy() {}
    let environment = Environment {
        kubebuilder_assets: None,
        path: Some(folder.path().into()),
        cache_home: Some(folder.join("cache").into()),
        home: None,
    };
    Machine { folder, environment }
}

impl Machine {
    fn obtain(&self) -> Result<PathBuf, ClusterError> {
        self.obtain_of(&CONTROL_PLANE)
    }

    fn obtain_of(&self, module: &Module) -> Result<PathBuf, ClusterError> {
        Recipe { environment: &self.environment, module, say: |_| {} }.obtain()
    }

    fn builds(&self) -> usize {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default().lines().count()
    }
}

#[test]
fn who_comes_second_waits_and_takes_what_the_first_built() {
    let machine = machine("echo go version go1.26", ":", BUILDS);
    // The leftovers of a killed build must not be in the way.
    let left =
        machine.folder.join("cache/joulie/control-plane").join(format!("{}.building", CONTROL_PLANE.hash()));
    std::fs::create_dir_all(left.join("source")).unwrap();
    let folders: Vec<_> = std::thread::scope(|scope| {
        let builders: Vec<_> = (0..3).map(|_| scope.spawn(|| machine.obtain().unwrap())).collect();
        builders.into_iter().map(|builder| builder.join().unwrap()).collect()
    });
    assert_eq!(machine.builds(), 1);
    assert!(folders.iter().all(|folder| folder == &folders[0]) && folders[0].ends_with(CONTROL_PLANE.hash()));
    for name in ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"] {
        assert_eq!(std::fs::read_to_string(folders[0].join(name)).unwrap(), "program\n");
    }
    assert!(!left.exists());
    machine.obtain().unwrap();
    assert_eq!(machine.builds(), 1);
    // Somebody has deleted a file of the build.
    std::fs::remove_file(folders[0].join("control-plane")).unwrap();
    assert_eq!(std::fs::read_to_string(machine.obtain().unwrap().join("etcd")).unwrap(), "program\n");
}

#[test]
fn the_files_of_a_module_lie_beside_its_program_or_nothing_is_placed() {
    let machine = machine("echo go version go1.26", ":", BUILDS);
    let told = machine.obtain_of(&CERT_MANAGER).unwrap_err();
    assert!(matches!(&told, ClusterError::File { doing: "reading", .. }), "{told}");
    let kinds = machine.folder.join("deploy/crds");
    std::fs::create_dir_all(&kinds).unwrap();
    std::fs::write(kinds.join("a.yaml"), "kind: A\n").unwrap();
    let folder = machine.obtain_of(&CERT_MANAGER).unwrap();
    assert_eq!(std::fs::read_to_string(folder.join("cert-manager")).unwrap(), "program\n");
    assert_eq!(std::fs::read_to_string(folder.join(FILES).join("a.yaml")).unwrap(), "kind: A\n");
    assert_eq!(machine.builds(), 2);
}

#[test]
fn a_build_that_fails_is_told_with_the_version_and_what_to_do_and_leaves_nothing() {
    let machine = machine("echo go version go1.26.9", ":", "echo cannot find main.go >&2; exit 1");
    let told = machine.obtain().unwrap_err();
    assert!(matches!(told, ClusterError::Build(_)), "{told}");
    for part in ["go1.26.9", "cannot find main.go", "set KUBEBUILDER_ASSETS"] {
        assert!(told.to_string().contains(part), "{told}");
    }
    let left: Vec<_> = std::fs::read_dir(machine.folder.join("cache/joulie/control-plane"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, [format!("{}.lock", CONTROL_PLANE.hash())]);
}

#[test]
fn an_old_go_or_no_network_is_no_way_to_build_and_a_wrong_module_is_an_error() {
    let too_old = "echo 'go: go.mod requires go >= 1.26.0 (running go 1.19; GOTOOLCHAIN=local)' >&2; exit 1";
    let told = machine(too_old, ":", BUILDS).obtain().unwrap_err();
    assert!(matches!(&told, ClusterError::Absent(why) if why.contains("requires go >= 1.26.0")), "{told}");

    let offline = "echo 'dial tcp: lookup proxy: no such host' >&2; exit 1";
    let told = machine("echo go1.26", offline, BUILDS).obtain().unwrap_err();
    assert!(matches!(&told, ClusterError::Absent(why) if why.contains("no such host")), "{told}");

    let forged = "echo 'verifying k8s.io/api: checksum mismatch' >&2; echo SECURITY ERROR >&2; exit 1";
    let told = machine("echo go1.26", forged, BUILDS).obtain().unwrap_err();
    assert!(matches!(&told, ClusterError::Build(why) if why.contains("checksum mismatch")), "{told}");
}

#[test]
fn without_go_or_a_place_to_keep_it_there_is_no_build() {
    let mut machine = machine("echo go1.26", ":", BUILDS);
    machine.environment.path = None;
    let told = machine.obtain().unwrap_err();
    assert!(matches!(&told, ClusterError::Absent(why) if why.contains("no Go on PATH")), "{told}");
    machine.environment.cache_home = None;
    assert!(
        matches!(machine.obtain(), Err(ClusterError::Absent(why)) if why.contains("XDG_CACHE_HOME nor HOME"))
    );
    machine.environment.home = Some("relative".into());
    assert!(matches!(machine.obtain(), Err(ClusterError::Assets(why)) if why.contains("an absolute path")));
}

#[test]
fn the_hash_is_of_the_module_and_the_version_is_of_kubernetes() {
    assert_eq!(CONTROL_PLANE.hash().len(), 16);
    assert_eq!(release().split('.').count(), 3, "{}", release());
    assert!(link_flags().contains(&format!("gitVersion=v{}", release())));
    assert_ne!(CERT_MANAGER.hash(), HELM.hash());
}
