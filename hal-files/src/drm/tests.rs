use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;

/// As amdgpu writes it.
const AMD: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t27\ndrm-driver:\tamdgpu\ndrm-client-id:\t57\n\
     drm-pdev:\t0000:c1:00.0\npasid:\t32773\ndrm-memory-vram:\t1024 KiB\ndrm-engine-gfx:\t7000 ns\n\
     drm-engine-compute:\t900 ns\n";
/// As i915 writes it.
const I915: &str = "drm-driver:\ti915\ndrm-client-id:\t4\ndrm-pdev:\t0000:00:02.0\ndrm-engine-render:\t123 ns\n\
     drm-engine-capacity-video:\t2\ndrm-engine-video:\t45 ns\n";
/// As xe writes it.
const XE: &str = "drm-driver:\txe\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\ndrm-cycles-rcs:\t28257900\n\
     drm-total-cycles-rcs:\t7655183225\ndrm-cycles-ccs:\t5\ndrm-total-cycles-ccs:\t7655183225\n";

#[test]
fn each_driver_says_for_how_long_its_engines_worked() {
    let said = |text: &str| {
        let DrmClient { gpu, id, engines } = DrmClient::read(text.as_bytes()).unwrap();
        let engines: Vec<(String, u64)> = engines.into_iter().collect();
        (gpu.as_str().to_owned(), id, engines)
    };
    let engine = |name: &str, time| (name.to_owned(), time);
    assert_eq!(
        said(AMD),
        ("gpu-0000:c1:00.0".into(), 57, vec![engine("compute", 900), engine("gfx", 7_000)])
    );
    assert_eq!(said(I915), ("gpu-0000:00:02.0".into(), 4, vec![engine("render", 123), engine("video", 45)]));
    assert_eq!(said(XE), ("gpu-0000:03:00.0".into(), 9, vec![engine("ccs", 5), engine("rcs", 28_257_900)]));
    // A client of amdgpu that has not worked yet is one all the same.
    let idle = "drm-driver:\tamdgpu\ndrm-client-id:\t57\ndrm-pdev:\t0000:c1:00.0\n";
    assert_eq!(said(idle).2, []);
}

#[test]
fn what_is_no_client_of_a_gpu_is_none() {
    for text in [
        "",
        "pos:\t0\nflags:\t02\n",
        "drm-driver:\tast\ndrm-client-id:\t1\ndrm-pdev:\t0000:01:00.0\n",
        &AMD.replace("drm-pdev:\t0000:c1:00.0\n", ""),
        &AMD.replace("0000:c1:00.0", "c1"),
        &AMD.replace("drm-client-id:\t57", "drm-client-id:\t-57"),
        &I915.replace(" ns", " us"),
    ] {
        assert_eq!(DrmClient::read(text.as_bytes()), None, "{text}");
    }
    assert_eq!(DrmClient::read(b"\xff"), None);
    let many: String = (0..100).map(|at| format!("drm-engine-e{at}:\t1 ns\n")).collect();
    assert_eq!(DrmClient::read(format!("{AMD}{many}").as_bytes()).unwrap().engines.len(), ENGINES_MOST);
}

/// A `/proc` in a plain folder.
struct Processes(PathBuf);

impl Processes {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("hal-files-drm-{name}-{}", std::process::id()));
        let _left = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("proc/self")).unwrap();
        Self(folder)
    }

    /// A process with one file, number 3.
    fn has(&self, pid: u32, to: &str, text: &str) {
        let own = self.0.join(format!("proc/{pid}"));
        for folder in ["fd", "fdinfo"] {
            fs::create_dir_all(own.join(folder)).unwrap();
        }
        let _before = fs::remove_file(own.join("fd/3"));
        symlink(to, own.join("fd/3")).unwrap();
        fs::write(own.join("fdinfo/3"), text).unwrap();
    }

    /// When a process began.
    fn began(&self, pid: &str, ticks: u64) {
        let stat = format!("7 (a) b) S 1{} {ticks} 4096\n", " 0".repeat(17));
        fs::write(self.0.join(format!("proc/{pid}/stat")), stat).unwrap();
    }

    /// Files of a process that are on no GPU.
    fn opens(&self, pid: u32, files: std::ops::Range<usize>) {
        let own = self.0.join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&own).unwrap();
        for file in files {
            symlink("/dev/null", own.join(file.to_string())).unwrap();
        }
    }

    fn clients(&self) -> DrmClients {
        DrmClients::below(Root::at(&self.0))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

const NODE: &str = "/dev/dri/renderD128";

fn gfx(time: u64) -> String {
    AMD.replace("7000", &time.to_string())
}

#[test]
fn what_a_process_used_is_told_between_two_looks() {
    let all = Processes::new("used");
    all.has(7, NODE, &gfx(7_000));
    all.has(8, "/dev/null", AMD);
    let mut clients = all.clients();
    assert_eq!(clients.look(), None, "one look says nothing");
    let gpu = Key::gpu("0000:c1:00.0").unwrap();
    let told = |uses: &[(u32, u64)]| Some(BTreeMap::from([(gpu, Some(uses.to_vec()))]));
    assert_eq!(clients.look(), told(&[]), "nobody used it");
    all.has(7, NODE, &gfx(7_500));
    // A fork has the same file.
    all.has(9, NODE, &gfx(7_500));
    assert_eq!(clients.look(), told(&[(7, 500)]));
    all.has(7, NODE, &gfx(8_000));
    all.has(9, NODE, &gfx(8_000));
    assert_eq!(clients.look(), told(&[(7, 500)]), "once for both");
    // Its process has ended, and the fork works on.
    fs::remove_dir_all(all.0.join("proc/7")).unwrap();
    all.has(9, NODE, &gfx(8_100));
    assert_eq!(clients.look(), told(&[(9, 100)]));
    fs::remove_dir_all(all.0.join("proc/9")).unwrap();
    assert_eq!(clients.look(), Some(BTreeMap::new()), "nobody has it open");
    fs::remove_dir_all(all.0.join("proc/8")).unwrap();
    assert_eq!(clients.look(), None, "a machine without processes is one that cannot be seen");
}

#[test]
fn who_opens_a_gpu_later_is_found_and_what_it_had_used_before_does_not_count() {
    let all = Processes::new("later");
    all.has(7, "/dev/null", "");
    let mut clients = all.clients();
    // It is looked through in look 1, 2, 4, 8 and so on.
    for _ in 0..4 {
        clients.look();
    }
    all.has(7, NODE, &gfx(9_000_000));
    for look in 5..8 {
        assert_eq!(clients.look(), Some(BTreeMap::new()), "{look}");
    }
    let mut told = || clients.look().unwrap().into_values().collect::<Vec<_>>();
    assert_eq!(told(), [Some(vec![])], "it is found in look 8");
    all.has(7, NODE, &gfx(9_000_300));
    assert_eq!(told(), [Some(vec![(7, 300)])]);
}

#[test]
fn a_gpu_whose_driver_does_not_tell_is_unknown_and_no_other() {
    let all = Processes::new("silent");
    let of_drm = all.0.join("sys/class/drm/renderD129");
    fs::create_dir_all(&of_drm).unwrap();
    fs::create_dir_all(all.0.join("sys/devices/0000:c2:00.0")).unwrap();
    symlink(all.0.join("sys/devices/0000:c2:00.0"), of_drm.join("device")).unwrap();
    all.has(7, NODE, &gfx(7_000));
    // As amdgpu wrote it before 5.19, and a device that the machine does not know.
    all.has(8, "/dev/dri/renderD129", "pos:\t0\npdev:\t0000:c2:00.0\ngfx0:\t12.50%\n");
    all.has(9, "/dev/dri/card7", "pos:\t0\n");
    let mut clients = all.clients();
    clients.look();
    let [known, unknown] = ["0000:c1:00.0", "0000:c2:00.0"].map(|gpu| Key::gpu(gpu).unwrap());
    let expected = BTreeMap::from([(known, Some(vec![])), (unknown, None)]);
    assert_eq!(clients.look(), Some(expected));
    // It closes the file, and opens another one with its number.
    all.has(8, "/var/log/messages", "pos:\t0\n");
    assert_eq!(clients.look(), Some(BTreeMap::from([(known, Some(vec![]))])));
}

#[test]
fn a_look_reads_so_many_links_and_goes_on_in_the_next_one() {
    let all = Processes::new("many");
    for pid in 1..=3 {
        let own = all.0.join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&own).unwrap();
        for file in 0..LINKS_MOST / 2 - 1 {
            symlink("/dev/null", own.join(format!("{file}"))).unwrap();
        }
    }
    let mut clients = all.clients();
    clients.look();
    let waiting =
        |clients: &DrmClients| clients.processes.values().filter(|one| one.again <= clients.look).count();
    assert_eq!(waiting(&clients), 1, "the third was cut short");
    clients.look();
    assert_eq!(clients.processes[&3].again, 3, "it was the first of the next look");
    assert_eq!(waiting(&clients), 1, "and another one was cut short");
}

#[test]
fn a_process_with_more_files_than_a_look_reads_is_looked_through_in_parts_and_known_after_the_first_round() {
    let all = Processes::new("large");
    // All files of the first process are open on the GPU, and the second one is not reached by the first look.
    all.has(7, NODE, &gfx(7_000));
    for file in 4..LINKS_MOST + 103 {
        symlink(NODE, all.0.join(format!("proc/7/fd/{file}"))).unwrap();
        fs::write(all.0.join(format!("proc/7/fdinfo/{file}")), gfx(7_000)).unwrap();
    }
    all.has(8, NODE, &gfx(7_000).replace("57", "58"));
    let mut clients = all.clients();
    let mut look = || {
        let uses = clients.look();
        (uses, clients.processes[&7].files.len(), clients.processes[&8].files.len())
    };
    assert_eq!(look(), (None, LINKS_MOST, 0));
    assert_eq!(look(), (None, LINKS_MOST + 100, 1), "the second one was not looked through before");
    let (uses, first, second) = look();
    assert_eq!((uses.is_some(), first, second), (true, LINKS_MOST + 100, 1));
}

#[test]
fn nothing_is_known_before_the_first_processes_were_looked_through_to_their_last_file() {
    let all = Processes::new("parts");
    for pid in 1..=3 {
        all.opens(pid, 0..1_200);
    }
    // 3,600 files of which a look reads 500.
    let mut clients = all.clients();
    let look = (1..100).find(|_| clients.look().is_some());
    assert!(look.is_some_and(|look| (9..=12).contains(&look)), "{look:?}");
    assert!(clients.processes.values().all(|one| one.seen == Seen::All));
}

#[test]
fn a_process_with_more_files_than_are_looked_at_makes_unknown_who_uses_gpus() {
    let all = Processes::new("more");
    all.has(8, NODE, &gfx(7_000));
    all.opens(7, 0..FILES_MOST);
    let mut clients = all.clients();
    // 16,384 files are looked at in 33 looks of 500.
    assert_eq!((1..100).find(|_| clients.look().is_some()), Some(34));
    assert_eq!(clients.with_more_files(), 0);
    all.opens(7, FILES_MOST..FILES_MOST + 1);
    let told: Vec<bool> = (0..200).map(|_| clients.look().is_some()).collect();
    assert_eq!(clients.with_more_files(), 1);
    // It is looked through again after at most 32 looks, for 33 looks, and then it stays unknown also in the next rounds.
    let unknown = told.iter().position(|is_known| !is_known);
    assert!(unknown.is_some_and(|at| at <= 66), "{unknown:?}");
    assert!(told.iter().skip_while(|is_known| **is_known).all(|is_known| !is_known), "{told:?}");
    // It ends.
    fs::remove_dir_all(all.0.join("proc/7")).unwrap();
    assert!(clients.look().is_some());
    assert_eq!(clients.with_more_files(), 0);
}

#[test]
fn of_more_processes_than_are_looked_at_nothing_is_known() {
    let names = |count: usize| (1..=count).map(|pid| pid.to_string()).collect::<Vec<_>>();
    assert_eq!(numbers(&names(PROCESSES_MOST)).map(|pids| pids.len()), Some(PROCESSES_MOST));
    assert_eq!(numbers(&names(PROCESSES_MOST + 1)), None);
    assert_eq!(numbers(&["self".into(), "9".into(), "10".into(), "-1".into()]), Some(vec![9, 10]));
    assert_eq!(numbers(&["self".into()]), None);
}

#[test]
fn another_process_with_the_number_of_one_that_had_a_gpu_open_is_looked_through_at_once() {
    let all = Processes::new("again");
    all.has(7, NODE, &gfx(7_000));
    all.began("7", 100);
    let mut clients = all.clients();
    (0..4).for_each(|_| drop(clients.look()));
    assert_eq!(clients.processes[&7].again, 8);
    // Another process, which has a GPU open too, as another file.
    let proc = all.0.join("proc");
    fs::create_dir_all(proc.join("new/fd")).unwrap();
    fs::create_dir_all(proc.join("new/fdinfo")).unwrap();
    symlink(NODE, proc.join("new/fd/9")).unwrap();
    fs::write(proc.join("new/fdinfo/9"), gfx(9_000).replace("57", "58")).unwrap();
    all.began("new", 200);
    fs::rename(proc.join("7"), proc.join("old")).unwrap();
    fs::rename(proc.join("new"), proc.join("7")).unwrap();
    assert_eq!(clients.look(), Some(BTreeMap::new()), "that the first has ended is seen");
    let gpu = Key::gpu("0000:c1:00.0").unwrap();
    assert_eq!(clients.look(), Some(BTreeMap::from([(gpu, Some(vec![]))])));
    fs::write(proc.join("7/fdinfo/9"), gfx(9_500).replace("57", "58")).unwrap();
    assert_eq!(clients.look(), Some(BTreeMap::from([(gpu, Some(vec![(7, 500)]))])));
}

#[test]
fn a_process_is_the_same_one_by_when_it_began_and_not_by_the_inode_of_its_folder() {
    let all = Processes::new("inode");
    all.has(7, NODE, &gfx(7_000));
    all.began("7", 100);
    let mut clients = all.clients();
    (0..4).for_each(|_| drop(clients.look()));
    let gpu = Key::gpu("0000:c1:00.0").unwrap();
    let told = |uses: &[(u32, u64)]| Some(BTreeMap::from([(gpu, Some(uses.to_vec()))]));
    // The kernel has dropped the folder meanwhile: it has another inode, and is of the same process.
    let (proc, again) = (all.0.join("proc"), clients.processes[&7].again);
    fs::rename(proc.join("7"), proc.join("old")).unwrap();
    all.has(7, NODE, &gfx(7_500));
    all.began("7", 100);
    fs::remove_dir_all(proc.join("old")).unwrap();
    assert_eq!(clients.look(), told(&[(7, 500)]));
    assert_eq!(clients.processes[&7].again, again, "it was not begun anew");
    // When it began cannot be read for once: that does not make it another one.
    fs::remove_file(proc.join("7/stat")).unwrap();
    all.has(7, NODE, &gfx(8_000));
    assert_eq!(clients.look(), told(&[(7, 500)]));
    // Another process in a folder with the same inode, which has no GPU open.
    all.began("7", 200);
    all.has(7, "/dev/null", "");
    assert_eq!(clients.look(), Some(BTreeMap::new()));
    assert!(clients.processes[&7].files.is_empty() && clients.processes[&7].began == Some(200));
}

#[test]
fn a_file_of_a_gpu_that_cannot_be_read_is_not_nobodys() {
    let all = Processes::new("unreadable");
    let of_drm = all.0.join("sys/class/drm/renderD128");
    fs::create_dir_all(&of_drm).unwrap();
    fs::create_dir_all(all.0.join("sys/devices/0000:c1:00.0")).unwrap();
    symlink(all.0.join("sys/devices/0000:c1:00.0"), of_drm.join("device")).unwrap();
    all.has(7, NODE, &gfx(7_000));
    let mut clients = all.clients();
    (0..2).for_each(|_| drop(clients.look()));
    let own = all.0.join("proc/7/fdinfo/3");
    fs::remove_file(&own).unwrap();
    fs::create_dir(&own).unwrap();
    let gpu = Key::gpu("0000:c1:00.0").unwrap();
    for _ in 0..2 {
        assert_eq!(clients.look(), Some(BTreeMap::from([(gpu, None)])));
    }
    fs::remove_dir(&own).unwrap();
    assert_eq!(clients.look(), Some(BTreeMap::new()), "it was closed");
}

#[test]
fn what_may_not_be_seen_is_not_nobody_and_is_tried_again_after_a_while() {
    let all = Processes::new("refused");
    all.has(7, NODE, &gfx(7_000));
    let mut clients = all.clients();
    clients.look();
    assert!(clients.look().is_some());
    fs::rename(all.0.join("proc"), all.0.join("hidden")).unwrap();
    assert_eq!(clients.look(), None);
    fs::rename(all.0.join("hidden"), all.0.join("proc")).unwrap();
    let silent = (0..200).take_while(|_| clients.look().is_none()).count();
    assert_eq!(silent, 60, "59 looks in which nothing is tried, and one that has none before it");
}

proptest! {
    #[test]
    fn any_text_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = DrmClient::read(&bytes);
    }
}
