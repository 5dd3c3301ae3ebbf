//! Answers without an object: `metav1.Status`, with the reasons and texts that kube and kubectl rely on.

use crate::kind::Kind;
use http::StatusCode;
use serde_json::{Value, json};

/// Why a request was refused. The names are `metav1.StatusReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Expired,
    Invalid,
    TooManyRequests,
    InternalError,
    Timeout,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    RequestEntityTooLarge,
}

impl Reason {
    /// The HTTP status and the name.
    pub(crate) fn code(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NotFound => (StatusCode::NOT_FOUND, "NotFound"),
            Self::AlreadyExists => (StatusCode::CONFLICT, "AlreadyExists"),
            Self::Conflict => (StatusCode::CONFLICT, "Conflict"),
            Self::Expired => (StatusCode::GONE, "Expired"),
            Self::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::InternalError => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Self::Timeout => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::NotAcceptable => (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            Self::UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            Self::RequestEntityTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        }
    }
}

/// A refused request. It is boxed, because every `Result` contains it.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Told>);

#[derive(Debug, Clone)]
struct Told {
    reason: Reason,
    message: String,
    details: Option<Value>,
    retry_after: Option<u64>,
}

/// One thing wrong with an object: a `metav1.StatusCause`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", field: field.to_owned(), message }
    }

    pub(crate) fn required(field: &str, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.to_owned(), message }
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.to_owned(), message: format!("Forbidden: {why}") }
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

impl Failure {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Told { reason, message: message.into(), details: None, retry_after: None }))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// The path does not exist.
    pub(crate) fn no_path() -> Self {
        Self::new(Reason::NotFound, "the server could not find the requested resource")
            .with_details(json!({}))
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(Reason::NotFound, format!("{} {name:?} not found", kind.resource))
            .with_details(json!({"name": name, "group": kind.group, "kind": kind.plural}))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(Reason::AlreadyExists, format!("{} {name:?} already exists", kind.resource))
            .with_details(json!({"name": name, "group": kind.group, "kind": kind.plural}))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.resource);
        Self::new(Reason::Conflict, message)
            .with_details(json!({"name": name, "group": kind.group, "kind": kind.plural}))
    }

    /// The resource version in the request is not the object's current one.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        const WHY: &str =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, WHY)
    }

    /// Other managers own fields of the applied configuration.
    pub(crate) fn apply_conflict(message: String, causes: &[Cause]) -> Self {
        let causes: Vec<_> = causes.iter().map(Cause::json).collect();
        Self::new(Reason::Conflict, message).with_details(json!({"causes": causes}))
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let told: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let told = if told.len() == 1 { told.concat() } else { format!("[{}]", told.join(", ")) };
        let whole = kind.qualified_kind();
        let json: Vec<_> = causes.iter().map(Cause::json).collect();
        Self::new(Reason::Invalid, format!("{whole} {name:?} is invalid: {told}"))
            .with_details(json!({"name": name, "group": kind.group, "kind": kind.kind, "causes": json}))
    }

    pub(crate) fn too_old(asked: u64, oldest: u64) -> Self {
        Self::new(Reason::Expired, format!("too old resource version: {asked} ({oldest})"))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.0.details = Some(details);
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after = Some(seconds);
        let details = self.0.details.get_or_insert_with(|| json!({}));
        details["retryAfterSeconds"] = json!(seconds);
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.reason.code().0
    }

    /// The value of the header `Retry-After`, in seconds.
    pub(crate) fn seconds(&self) -> Option<u64> {
        self.0.retry_after
    }

    /// The `Status` object.
    pub(crate) fn json(&self) -> Value {
        let (code, reason) = self.0.reason.code();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "reason": reason, "code": code.as_u16(),
        });
        if let Some(details) = &self.0.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// The `Status` of a successful request that has no object to return.
pub(crate) fn success(details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
