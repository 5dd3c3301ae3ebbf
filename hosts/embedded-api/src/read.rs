//! Get and list.

use crate::api::{Api, Reply};
use crate::failure::{Failure, Reason};
use crate::kind::Kind;
use crate::request::{Form, Place, Request};
use crate::selector::Selection;
use crate::store::{Key, Object, Scope};
use crate::{shown, table};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// A page of a list.
struct Page {
    objects: Vec<Arc<Object>>,
    revision: u64,
    /// The key at which the next page begins, and the number of remaining objects, if known.
    rest: Option<(Key, Option<usize>)>,
}

/// The key of the object that a place refers to.
pub(crate) fn key_of(kind: &Kind, place: &Place) -> Key {
    Key {
        resource: kind.resource.clone(),
        namespace: place.namespace.as_deref().unwrap_or("").into(),
        name: place.name.as_deref().unwrap_or("").into(),
    }
}

pub(crate) fn scope_of(kind: &Kind, place: &Place) -> Scope {
    Scope { resource: kind.resource.clone(), namespace: place.namespace.as_deref().map(Into::into) }
}

impl Api {
    pub(crate) fn get(&self, request: &Request, kind: &Kind, place: &Place) -> Result<Reply, Failure> {
        let key = key_of(kind, place);
        let found = self.store().get(&key).cloned();
        let found = found.ok_or_else(|| Failure::not_found(kind, &key.name))?;
        Ok(self.show(request, kind, (StatusCode::OK, &found), Vec::new()))
    }

    pub(crate) fn list(&self, request: &Request, kind: &Kind, place: &Place) -> Result<Reply, Failure> {
        let selection = Selection::of(&request.query, kind)?;
        let page = self.page(request, &scope_of(kind, place), &selection)?;
        let mut meta = json!({"resourceVersion": page.revision.to_string()});
        if let Some((last, left)) = &page.rest {
            meta["continue"] = json!(format!("{}/{}/{}", page.revision, last.namespace, last.name));
            if let Some(left) = left {
                meta["remainingItemCount"] = json!(left);
            }
        }
        let objects = page.objects.iter().map(|object| &**object);
        let bytes = match request.form {
            Form::Table => {
                let mut rows = table::table(kind, objects, &request.query, self.now(), true);
                rows["metadata"] = meta;
                rows.to_string().into_bytes()
            }
            form @ (Form::Whole | Form::Metadata) => written(kind, form, &meta, &page.objects),
        };
        Ok(Reply::Json { status: StatusCode::OK, bytes: bytes.into(), warnings: Vec::new() })
    }

    /// The page of a scope that the request asks for. All pages of a list show the same revision.
    fn page(&self, request: &Request, scope: &Scope, selection: &Selection) -> Result<Page, Failure> {
        let query = &request.query;
        let limit =
            query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let limit = limit.unwrap_or(usize::MAX);
        let asked = query.number("resourceVersion")?.unwrap_or(0);
        let exact = query.get("resourceVersionMatch") == Some("Exact");
        let (after, at) = match query.get("continue") {
            Some(token) => {
                let (at, after) = continued(token, scope)?;
                (Some(after), Some(at))
            }
            None => (None, exact.then_some(asked)),
        };
        let store = self.store();
        let newest = store.revision();
        let wanted = at.unwrap_or(asked);
        if wanted > newest {
            return Err(too_large(wanted, newest));
        }
        let mut objects = match at.filter(|at| *at != newest) {
            None => {
                let all = store.list(scope, after.as_ref()).filter(|object| selection.holds(object));
                all.cloned().collect::<Vec<_>>()
            }
            Some(at) => {
                let then = store.list_at(scope, after.as_ref(), at);
                let then = then.map_err(|compacted| expired(at, compacted.oldest, after.is_some()))?;
                then.into_iter().filter(|object| selection.holds(object)).collect()
            }
        };
        drop(store);
        let left = objects.len().saturating_sub(limit);
        objects.truncate(limit);
        let last = objects.last().filter(|_| left > 0);
        let rest = last.map(|last| (last.key.clone(), selection.is_all().then_some(left)));
        Ok(Page { objects, revision: at.unwrap_or(newest), rest })
    }
}

/// The error for a resource version that does not exist yet.
pub(crate) fn too_large(asked: u64, newest: u64) -> Failure {
    let message = format!("Timeout: Too large resource version: {asked}, current: {newest}");
    let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    Failure::new(Reason::Timeout, message).with_details(json!({"causes": cause})).retry_after(1)
}

fn expired(at: u64, oldest: u64, paging: bool) -> Failure {
    if paging {
        const WHY: &str = "The provided continue parameter is too old to display a consistent list result. You must \
            start a new list without the continue parameter.";
        return Failure::new(Reason::Expired, WHY);
    }
    Failure::too_old(at, oldest)
}

/// Reads a continue token: the revision and the last key that was shown.
fn continued(token: &str, scope: &Scope) -> Result<(u64, Key), Failure> {
    let parsed = || {
        let (revision, rest) = token.split_once('/')?;
        let (namespace, name) = rest.split_once('/')?;
        let key = Key { resource: scope.resource.clone(), namespace: namespace.into(), name: name.into() };
        scope.holds(&key).then_some((revision.parse().ok()?, key))
    };
    parsed().ok_or_else(|| Failure::bad_request(format!("continue key is not valid: {token:?}")))
}

/// Serialises a list from the bytes of its objects.
fn written(kind: &Kind, form: Form, meta: &Value, objects: &[Arc<Object>]) -> Vec<u8> {
    let (of, version) = match form {
        Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        Form::Whole | Form::Table => (format!("{}List", kind.kind), kind.api_version()),
    };
    let head = json!({"kind": of, "apiVersion": version, "metadata": meta}).to_string();
    let size: usize = objects.iter().map(|object| object.bytes.len() + 1).sum();
    let mut bytes = Vec::with_capacity(head.len() + size + 16);
    bytes.extend_from_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    bytes.extend_from_slice(b",\"items\":[");
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&shown::bytes(kind, object, form));
    }
    bytes.extend_from_slice(b"]}");
    bytes
}
