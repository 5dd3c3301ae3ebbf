use super::*;
use crate::pods::BoundPod;
use host_kit::reflect::Row;

fn mix(gpus: Option<Vendor>) -> Mix {
    let gpus = gpus.map(|vendor| WorkloadGpus { vendor, most: 8 });
    Mix { gap: Duration::from_secs(2), duration: Duration::from_secs(60), gpus }
}

/// The pod after it was created and bound.
fn bound(mut job: Job) -> BoundPod {
    job.pod["metadata"]["uid"] = json!("u");
    job.pod["spec"]["nodeName"] = json!("n");
    BoundPod::read(&job.pod).unwrap()
}

#[test]
fn the_same_seed_draws_the_same_pods_and_another_seed_others() {
    let draw = |seed| {
        let mut generator = Generator::new(mix(Some(Vendor::Nvidia)), seed);
        (0..100).map(|_| generator.draw()).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}

#[test]
fn every_pod_can_be_read_fits_a_node_and_ends() {
    let mut generator = Generator::new(mix(Some(Vendor::Amd)), 3);
    let mut gaps = 0.0;
    let (mut gpus, mut performance) = (0, 0);
    for _ in 0..2_000 {
        let job = generator.draw();
        gaps += job.after.as_secs_f64();
        let pod = bound(job);
        let work = pod.work.unwrap();
        assert!(work.duration.is_some());
        assert!((1.0..=64.0).contains(&work.cpus) && work.gpus <= 8);
        gpus += u32::from(work.gpus > 0);
        performance += u32::from(work.performance);
    }
    // 32 of 100 ask for GPUs; training, large and three tenths of medium are performance pods: 35.5 of 100.
    assert!((580..=700).contains(&gpus), "{gpus}");
    assert!((640..=780).contains(&performance), "{performance}");
    assert!((3_600.0..=4_400.0).contains(&gaps), "{gaps}");
}

#[test]
fn nobody_asks_for_more_gpus_than_a_node_has() {
    let few = Mix { gpus: Some(WorkloadGpus { vendor: Vendor::Nvidia, most: 4 }), ..mix(None) };
    let mut generator = Generator::new(few, 3);
    let most = (0..500).map(|_| bound(generator.draw()).asks.gpus()).max();
    assert_eq!(most, Some(4));
}

#[test]
fn batch_work_keeps_processors_and_gpus_busy() {
    let draw = |gpus, kind| {
        let mut batch = Generator::of_batch(mix(gpus), 3, kind);
        let pods = (0..50).filter_map(|_| batch.draw_batch(kind));
        pods.map(|pod| bound(Job { after: Duration::ZERO, pod }).work.unwrap()).collect::<Vec<_>>()
    };
    let on_cpus = draw(Some(Vendor::Nvidia), Batch::Cpus);
    assert_eq!(on_cpus.len(), 50);
    for work in on_cpus {
        assert!(work.duration.is_some() && !work.performance && work.gpus == 0);
        assert!((2.0..=8.0).contains(&work.cpus) && work.cpu_utilisation > 0.9);
    }
    let on_gpus = draw(Some(Vendor::Amd), Batch::Gpu);
    assert_eq!(on_gpus.len(), 50);
    for work in on_gpus {
        assert!(work.duration.is_some() && !work.performance && work.gpus == 1);
        assert!(work.cpus <= 2.0 && work.gpu_utilisation > 0.9);
    }
    assert_eq!(draw(None, Batch::Gpu).len(), 0, "no node has GPUs");
    assert_eq!([Batch::read("batch"), Batch::read("small")], [Some(Batch::Cpus), None]);
}

#[test]
fn without_gpus_nobody_asks_for_one() {
    let mut generator = Generator::new(mix(None), 3);
    assert!((0..500).all(|_| bound(generator.draw()).asks.gpus() == 0));
}

#[test]
fn a_mix_is_none_or_a_gap_and_a_duration() {
    assert_eq!(Mix::parse("none"), Ok(None));
    let read = Mix::parse("500ms/2m").unwrap().unwrap();
    assert_eq!((read.gap, read.duration), (Duration::from_millis(500), Duration::from_secs(120)));
    for bad in ["", "2s", "2s/", "/2s", "0s/1s", "-1s/1s", "1s/1s/1s"] {
        assert!(Mix::parse(bad).is_err(), "{bad:?}");
    }
}
