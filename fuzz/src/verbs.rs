//! Property: a request to bind is read whole or refused; what is read of a preemption is what the answer says of it; and
//! what a pod asks for of GPUs is read from any JSON without a panic, in the bounds of a request.

use joulie_api::extender::bind::BindArgs;
use joulie_api::extender::preempt::{PreemptArgs, write_preempt};
use joulie_api::extender::{GpuWish, Keys};
use serde_json::value::RawValue;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(args) = BindArgs::parse(bytes) {
        let texts = [args.pod_name, args.pod_namespace, args.pod_uid, args.node];
        assert!(texts.iter().all(|text| !text.is_empty()));
    }
    if let Ok(args) = PreemptArgs::parse(bytes) {
        for keys in [Keys::Capital, Keys::Small] {
            let mut answer = Vec::new();
            write_preempt(keys, &args.nodes, &mut answer);
            match PreemptArgs::parse(&answer) {
                Ok(again) => assert_eq!(again.nodes, args.nodes),
                Err(bad) => panic!("an answer is none: {bad}"),
            }
        }
    }
    let Ok(pod) = serde_json::from_slice::<&RawValue>(bytes) else { return };
    if let Ok(Some(wish)) = GpuWish::read(pod) {
        assert!(wish.vram_mb.is_none_or(|mb| (1..=i64::from(u32::MAX)).contains(&mb)));
        // A name names itself, unless it has no words or commas in it.
        let plain = wish.model.as_deref().filter(|model| !model.contains(','));
        if let Some(model) = plain.filter(|model| model.contains(|c: char| !" -_\t\r\n".contains(c))) {
            assert!(wish.names(model), "{model:?}");
        }
    }
}
