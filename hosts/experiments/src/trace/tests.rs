use super::*;
use crate::numbers::value;

fn read(text: &str) -> ReadTrace {
    ReadTrace::read(text.as_bytes(), 2.0).unwrap()
}

#[test]
fn upstream_s_records_are_read_and_what_cannot_be_used_is_told_by_line() {
    let text = r#"{"type":"workload","workloadId":"w"}
{"type":"job","submitTimeOffsetSec":120.0,"intentClass":"performance","podTemplate":{"requests":{"cpu":"16","nvidia.com/gpu":"4"}},"work":{"cpuUnits":3200,"gpuUnits":28800},"workloadProfile":{"cpuUtilization":0.5,"gpuUtilization":0.75}}
{"type":"job","submitTimeOffsetSec":60,"podTemplate":{"requests":{"cpu":"2500m"}},"work":{"cpuUnits":600}}
{"type":"job","submitTimeOffsetSec":-1,"podTemplate":{"requests":{"cpu":"1"}}}
{"type":"job","podTemplate":{"requests":{"cpu":"1"}}}
{"type":"job","submitTimeOffsetSec":0,"podTemplate":{"requests":{"cpu":"lots"}}}
{"type":"job","submitTimeOffsetSec":0,"podTemplate":{"requests":{"cpu":"300"}},"work":{"cpuUnits":600}}
{"type":"job","submitTimeOffsetSec":0,"podTemplate":{"requests":{"cpu":"1"}},"workloadProfile":{"cpuUtilization":7}}
{"type":

"#;
    let trace = read(text);
    assert_eq!((trace.lines, trace.other, trace.malformed, trace.too_large), (10, 2, 5, 1));
    assert_eq!(trace.faults.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [4, 5, 6, 8, 9]);
    // Sorted by arrival, the first at once. 600 / (2.5 · 2) = 120 s; 28,800 / (4 · 2) = 3,600 s.
    let [first, second] = trace.jobs[..] else { panic!("{trace:?}") };
    assert_eq!((first.arrives, first.lasts, first.cores, first.gpus, first.performance), (0, 2, 3, 0, false));
    assert_eq!(first.class, JobClass::Small);
    assert_eq!((second.arrives, second.lasts, second.cores, second.gpus), (1, 60, 16, 4));
    assert!(second.performance && second.class == JobClass::Training);
    assert!((value(second.busy_cores) - 8.0).abs() < 1e-6 && (value(second.busy_gpus) - 3.0).abs() < 1e-6);
    assert!(trace.told().contains("5 that could not be used"));
}

#[test]
fn a_pod_list_is_read_by_the_names_of_its_columns() {
    let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,500,,LS,Running,100,3760,160.0
p1,6000,12288,0,0,,BE,Succeeded,40,160,40
p2,6000,12288,0,0,,BE,Succeeded,400,160,400
p3,6000,12288,0,0,,BE,Succeeded,nan,160,40
p4,6000
p5,6000,1,1,nan,,BE,Running,40,160,40
p6,6000,1,16,1000,,BE,Running,40,160,40
p7,6000,12288,0,0,,BE,Pending,40,160,
";
    let trace = read(text);
    assert_eq!((trace.lines, trace.other, trace.malformed, trace.too_large), (9, 1, 5, 1));
    let [first, second] = trace.jobs[..] else { panic!("{trace:?}") };
    assert_eq!((first.arrives, first.lasts, first.cores, first.gpus, first.performance), (0, 2, 6, 0, false));
    assert_eq!(
        (second.arrives, second.lasts, second.cores, second.gpus, second.performance),
        (1, 60, 12, 1, true)
    );
    // Half of a GPU, four fifths busy.
    assert!((value(second.busy_gpus) - 0.4).abs() < 1e-6);
}

#[test]
fn junk_and_lines_without_end_are_refused() {
    let of = |text: &[u8]| ReadTrace::read(text, 2.0);
    assert!(matches!(of(b""), Err(TraceError::NoJobs(0))));
    assert!(matches!(of(b"a,b,c\n1,2,3\n"), Err(TraceError::Format)));
    assert!(matches!(of(&[0xFF, 0xFE, b'\n']), Err(TraceError::Format)));
    assert!(matches!(of(b"{\n"), Err(TraceError::NoJobs(1))));
    // A line of three mebibytes is passed over, and the one after it read.
    let long = usize::try_from(3 * LINE_BYTES_MAX).unwrap();
    let mut text = b"{\"type\":\"workload\"}\n{\"x\":\"".to_vec();
    text.resize(long, b'x');
    text.extend(b"\n{\"submitTimeOffsetSec\":0,\"podTemplate\":{\"requests\":{\"cpu\":1}}}\n");
    let trace = of(&text).unwrap();
    assert_eq!((trace.jobs.len(), trace.malformed, trace.lines), (1, 1, 3));
}
