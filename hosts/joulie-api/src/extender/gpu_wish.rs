//! What a pod asks for of GPUs: the annotations `gpu-extender.mle.com/…`, read from the pod's text without building
//! anything.

use super::members::{Members, text};
use crate::labels::pod;
use joulie_core::placement::gpu::{BadWish, Link, Packing};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The most models and families that one pod may name; more name none.
const TERMS_MAX: usize = 64;

/// What a pod's annotations say of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuWish<'a> {
    /// Names of models and families, separated by commas; every card must be of one of them.
    pub model: Option<Cow<'a, str>>,
    /// The VRAM in MB that it takes of each card.
    pub vram_mb: Option<i64>,
    /// How links between its cards matter.
    pub link: Option<Link>,
    /// Which nodes it prefers.
    pub packing: Option<Packing>,
}

impl<'a> GpuWish<'a> {
    /// Reads the annotations of a pod; `None` where none is about GPUs. Of a key that comes twice the last one counts.
    ///
    /// # Errors
    /// If one of them is not valid: such a pod fits nowhere, and is not placed as if it had asked for nothing.
    pub fn read(raw: &'a RawValue) -> Result<Option<Self>, BadWish> {
        let metadata = Members::of(raw.get()).and_then(|mut all| all.find(|(key, _)| key == "metadata"));
        let metadata = metadata.and_then(|(_, metadata)| Members::of(metadata));
        let annotations = metadata.and_then(|mut all| all.find(|(key, _)| key == "annotations"));
        let Some(annotations) = annotations.and_then(|(_, all)| Members::of(all)) else { return Ok(None) };
        let (mut wish, mut any) = (Self::default(), false);
        for (key, value) in annotations.filter(|(_, value)| *value != "null") {
            match &*key {
                pod::GPU_MODEL => wish.model = Some(model(value)?),
                pod::GPU_VRAM_MB => wish.vram_mb = Some(vram(value)?),
                pod::GPU_LINK => wish.link = Some(word(value, Link::read).ok_or(BadWish::Link)?),
                pod::GPU_PACKING => wish.packing = Some(word(value, Packing::read).ok_or(BadWish::Packing)?),
                _ => continue,
            }
            any = true;
        }
        Ok(any.then_some(wish))
    }

    /// Whether the models that it names include this one.
    #[must_use]
    pub fn names(&self, model: &str) -> bool {
        let Some(terms) = &self.model else { return true };
        terms.split(',').take(TERMS_MAX).any(|term| is_named(model, term))
    }
}

/// Whether a term names a model: its words are those of the model, or some of them that follow each other, in any letter
/// case. `A100` and `nvidia a100` name `NVIDIA-A100-SXM4-40GB`, and `A10` does not.
fn is_named(model: &str, term: &str) -> bool {
    let words = |text| str::split(text, [' ', '-', '_']).filter(|word: &&str| !word.is_empty());
    if words(term).next().is_none() {
        return false;
    }
    let mut from = words(model);
    loop {
        let mut here = from.clone();
        if words(term).all(|word| here.next().is_some_and(|other| other.eq_ignore_ascii_case(word))) {
            return true;
        }
        if from.next().is_none() {
            return false;
        }
    }
}

fn model(value: &str) -> Result<Cow<'_, str>, BadWish> {
    let model = text(value).ok_or(BadWish::Model)?;
    let is_said = model.split(',').any(|term| !term.trim().is_empty());
    is_said.then_some(model).ok_or(BadWish::Model)
}

fn vram(value: &str) -> Result<i64, BadWish> {
    let text = text(value).ok_or(BadWish::Vram)?;
    let mb: i64 = text.trim().parse().map_err(|_| BadWish::Vram)?;
    // A request holds it in 32 bits.
    if (1..=i64::from(u32::MAX)).contains(&mb) { Ok(mb) } else { Err(BadWish::Vram) }
}

fn word<T>(value: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    read(text(value)?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(annotations: &Value) -> Result<Option<GpuWish<'static>>, BadWish> {
        let pod = json!({"spec": {}, "metadata": {"name": "p", "annotations": annotations}}).to_string();
        let raw: &RawValue = serde_json::from_str(&pod).unwrap();
        let owned = |wish: GpuWish<'_>| GpuWish {
            model: wish.model.map(|model| Cow::Owned(model.into_owned())),
            vram_mb: wish.vram_mb,
            link: wish.link,
            packing: wish.packing,
        };
        GpuWish::read(raw).map(|wish| wish.map(owned))
    }

    #[test]
    fn annotations_say_what_a_pod_wants_of_gpus() {
        let wish = read(&json!({
            "gpu-extender.mle.com/model": "NVIDIA-A100-SXM4-40GB", "gpu-extender.mle.com/vram-mb": " 30000",
            "gpu-extender.mle.com/link": "required", "gpu-extender.mle.com/packing": "spread", "other": "x",
        }));
        let wish = wish.unwrap().unwrap();
        assert_eq!((wish.model.as_deref(), wish.vram_mb), (Some("NVIDIA-A100-SXM4-40GB"), Some(30_000)));
        assert_eq!((wish.link, wish.packing), (Some(Link::Required), Some(Packing::Spread)));
        for nothing in
            [json!(null), json!({}), json!([]), json!({"gpu-extender.mle.com/model": null, "a": "b"})]
        {
            assert_eq!(read(&nothing), Ok(None), "{nothing}");
        }
        for (key, value, why) in [
            ("model", json!(" "), BadWish::Model),
            ("model", json!(","), BadWish::Model),
            ("model", json!(7), BadWish::Model),
            ("vram-mb", json!("30GB"), BadWish::Vram),
            ("vram-mb", json!("-1"), BadWish::Vram),
            ("vram-mb", json!("0"), BadWish::Vram),
            ("vram-mb", json!("4294967296"), BadWish::Vram),
            ("vram-mb", json!(30000), BadWish::Vram),
            ("link", json!("must"), BadWish::Link),
            ("packing", json!(""), BadWish::Packing),
        ] {
            let annotations = json!({format!("gpu-extender.mle.com/{key}"): value});
            assert_eq!(read(&annotations), Err(why), "{annotations}");
        }
    }

    #[test]
    fn a_model_is_named_by_its_name_or_by_words_of_it() {
        // Fix list article G14.
        let names = |wish: &str, model: &str| {
            GpuWish { model: Some(wish.to_owned().into()), ..GpuWish::default() }.names(model)
        };
        for (wish, model, is) in [
            ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", true),
            ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", true),
            ("a100", "NVIDIA A100-SXM4-40GB", true),
            ("nvidia a100", "NVIDIA A100-SXM4-40GB", true),
            ("A10", "NVIDIA A100-SXM4-40GB", false),
            ("A100 40GB", "NVIDIA A100-SXM4-40GB", false),
            ("T4, H100", "NVIDIA H100 80GB HBM3", true),
            ("T4,H200", "NVIDIA H100 80GB HBM3", false),
            (",", "NVIDIA H100", false),
            ("MI300X", "AMD Instinct MI300X", true),
            ("NVIDIA-A100-SXM4-40GB-LONG", "NVIDIA A100-SXM4-40GB", false),
            ("A100", "", false),
        ] {
            assert_eq!(names(wish, model), is, "{wish} {model}");
        }
        assert!(GpuWish::default().names("anything"));
    }

    #[test]
    fn a_usual_pod_is_read_without_an_allocation() {
        let pod = json!({"metadata": {"annotations": {"gpu-extender.mle.com/model": "A100", "x": "y"}}})
            .to_string();
        let raw: &RawValue = serde_json::from_str(&pod).unwrap();
        let counted = allocation_counter::measure(|| {
            assert!(GpuWish::read(raw).unwrap().unwrap().names("NVIDIA A100-SXM4-40GB"));
        });
        assert_eq!(counted.count_total, 0);
    }
}
