//! Who gets what of the stream: the picture of now, the last changes, and the open pages.
//!
//! A page that does not take its changes in time loses its stream, and gets the full picture when it comes back. Nothing waits for
//! a page.

use crate::picture::{UiPicture, UiPoint};
use crate::wire::{self, Kept, UiNews};
use bytes::Bytes;
use futures::{Stream, stream};
use host_kit::shutdown::Stop;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};

/// The body of an answer.
pub type UiBody = UnsyncBoxBody<Bytes, Infallible>;

/// The pages that may be open at the same time: half of what one address may have on the operator's port, because all that come
/// through a forwarded port have one.
pub const PAGES_MAX: usize = 8;
/// The changes that are kept for pages that come back, and that an open page may be behind.
const CHANGES_MAX: usize = 64;
/// The bytes of those that are kept.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// A page that hears nothing for this time gets a comment.
const BEAT: Duration = Duration::from_secs(5);
/// Between two points of the curve, in seconds.
const POINT_EVERY: f64 = 0.95;

/// The hub.
pub struct UiHub {
    /// Tells the events of this process from those of another one.
    epoch: u64,
    inner: Mutex<Inner>,
    pages: Arc<AtomicUsize>,
    called: Notify,
}

struct Inner {
    seq: u64,
    picture: Arc<UiPicture>,
    kept: Kept,
    changes: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The event `full`, if it was asked for since the last change.
    full: Option<Bytes>,
    sender: broadcast::Sender<Bytes>,
    pointed: f64,
}

/// All places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesFull;

impl std::fmt::Display for PagesFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PAGES_MAX} pages are open already: close one")
    }
}

impl std::error::Error for PagesFull {}

impl UiHub {
    /// An empty one; `epoch` is a random number.
    #[must_use]
    pub fn new(epoch: u64) -> Arc<Self> {
        let (sender, _) = broadcast::channel(CHANGES_MAX);
        let inner = Inner {
            seq: 0,
            picture: Arc::default(),
            kept: Kept::default(),
            changes: VecDeque::new(),
            bytes: 0,
            full: None,
            sender,
            pointed: 0.0,
        };
        Arc::new(Self { epoch, inner: Mutex::new(inner), pages: Arc::default(), called: Notify::new() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new picture in, and sends what differs.
    pub fn show(&self, picture: impl Into<Arc<UiPicture>>, news: &UiNews) {
        let picture = picture.into();
        let mut inner = self.inner();
        let due = picture.at - inner.pointed >= POINT_EVERY || picture.at < inner.pointed;
        let point: Option<UiPoint> = due.then(|| {
            let site = &picture.site;
            (picture.at, site.watts, site.limit, site.counted)
        });
        if point.is_some() {
            inner.pointed = picture.at;
        }
        let change = wire::change(&inner.picture, &picture, news, point);
        inner.kept.add(news, point);
        inner.picture = picture;
        let Some(data) = change else { return };
        inner.seq += 1;
        inner.full = None;
        let event = self.event(inner.seq, "change", &data);
        inner.bytes += event.len();
        let seq = inner.seq;
        inner.changes.push_back((seq, event.clone()));
        while inner.changes.len() > CHANGES_MAX || inner.bytes > BYTES_MAX {
            let Some((_, old)) = inner.changes.pop_front() else { break };
            inner.bytes = inner.bytes.saturating_sub(old.len());
        }
        // Nobody may have a page open.
        let _listeners = inner.sender.send(event);
    }

    fn event(&self, seq: u64, kind: &str, data: &str) -> Bytes {
        Bytes::from(format!("id: {:x}-{seq}\nevent: {kind}\ndata: {data}\n\n", self.epoch))
    }

    /// How many pages are open.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Waits until a page is opened.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// The stream of a page that has last seen this event.
    ///
    /// # Errors
    /// If too many are open.
    pub fn open(&self, last: Option<&str>, stop: Stop) -> Result<UiBody, PagesFull> {
        let taken = |open: usize| (open < PAGES_MAX).then_some(open + 1);
        let place = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        place.map_err(|_| PagesFull)?;
        let place = PagePlace(self.pages.clone());
        let (first, news) = self.first(last);
        self.called.notify_one();
        let open = OpenPage { first, news, stop, _place: place };
        Ok(StreamBody::new(frames(open)).boxed_unsync())
    }

    /// What a page gets first, and the receiver of what follows.
    fn first(&self, last: Option<&str>) -> (VecDeque<Bytes>, broadcast::Receiver<Bytes>) {
        let mut inner = self.inner();
        let news = inner.sender.subscribe();
        let mut first = VecDeque::from([Bytes::from_static(b"retry: 1000\n\n")]);
        match last.and_then(|last| self.missed(&inner, last)) {
            Some(missed) => first.extend(missed),
            None => {
                if inner.full.is_none() {
                    let data = wire::full(&inner.picture, &inner.kept);
                    inner.full = Some(self.event(inner.seq, "full", &data));
                }
                first.extend(inner.full.clone());
            }
        }
        (first, news)
    }

    /// The changes after this one; `None` if one of them is not kept any more, or the event is of another process.
    fn missed(&self, inner: &Inner, last: &str) -> Option<Vec<Bytes>> {
        let (epoch, seq) = last.split_once('-')?;
        let seq: u64 = seq.parse().ok()?;
        if epoch != format!("{:x}", self.epoch) || seq > inner.seq {
            return None;
        }
        let after = inner.changes.iter().filter(|(at, _)| *at > seq);
        let missed: Vec<Bytes> = after.map(|(_, event)| event.clone()).collect();
        (u64::try_from(missed.len()).ok()? == inner.seq - seq).then_some(missed)
    }
}

/// The place of an open page.
struct PagePlace(Arc<AtomicUsize>);

impl Drop for PagePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct OpenPage {
    first: VecDeque<Bytes>,
    news: broadcast::Receiver<Bytes>,
    stop: Stop,
    _place: PagePlace,
}

impl OpenPage {
    /// The next bytes; `None` at the end, and for a page that is too slow.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        let next = tokio::select! {
            next = tokio::time::timeout(BEAT, self.news.recv()) => next,
            () = self.stop.requested() => return None,
        };
        match next {
            Ok(Ok(event)) => Some(event),
            Ok(Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed)) => None,
            Err(_) => Some(Bytes::from_static(b": still here\n\n")),
        }
    }
}

fn frames(open: OpenPage) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    stream::unfold(open, |mut open| async move {
        let bytes = open.next().await?;
        Some((Ok(Frame::data(bytes)), open))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::shutdown;

    fn at(at: f64) -> UiPicture {
        let mut picture = UiPicture { at, ..UiPicture::default() };
        picture.site.title = "test".to_owned();
        picture
    }

    async fn next(body: &mut UiBody) -> Option<String> {
        let frame = body.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    async fn first(hub: &UiHub, last: Option<&str>, stop: &Stop) -> String {
        let mut body = hub.open(last, stop.clone()).unwrap();
        assert_eq!(next(&mut body).await.unwrap(), "retry: 1000\n\n");
        next(&mut body).await.unwrap()
    }

    #[tokio::test]
    async fn a_page_gets_the_whole_first_and_then_what_changes() {
        let (_trigger, stop) = shutdown::pair();
        let hub = UiHub::new(255);
        hub.show(at(1.0), &UiNews::default());
        let mut body = hub.open(None, stop.clone()).unwrap();
        assert_eq!((next(&mut body).await.unwrap(), hub.pages()), ("retry: 1000\n\n".to_owned(), 1));
        assert!(next(&mut body).await.unwrap().starts_with("id: ff-1\nevent: full\ndata: {\"at\":1.0,"));
        hub.show(at(2.0), &UiNews::default());
        let change = "id: ff-2\nevent: change\ndata: {\"at\":2.0,\"points\":[[2.0,null,null,null]]}\n\n";
        assert_eq!(next(&mut body).await.unwrap(), change);
        drop(body);
        assert_eq!(hub.pages(), 0);
        assert_eq!(first(&hub, Some("ff-1"), &stop).await, change, "it has missed one");
        for old in ["ff-9", "fe-1", "ff-", "", "\u{0}"] {
            assert!(first(&hub, Some(old), &stop).await.contains("event: full"), "{old:?}");
        }
    }

    #[tokio::test]
    async fn a_page_that_is_too_slow_loses_its_stream_and_gets_the_whole_again() {
        let (_trigger, stop) = shutdown::pair();
        let hub = UiHub::new(1);
        let mut body = hub.open(None, stop.clone()).unwrap();
        for second in 1..=200_u16 {
            hub.show(at(second.into()), &UiNews::default());
        }
        // The two that were ready when it was opened, and then the end.
        assert!(next(&mut body).await.is_some() && next(&mut body).await.is_some());
        assert_eq!(next(&mut body).await, None);
        assert!(first(&hub, Some("1-1"), &stop).await.starts_with("id: 1-200\nevent: full"));
        assert!(first(&hub, Some("1-199"), &stop).await.starts_with("id: 1-200\nevent: change"));
    }

    #[tokio::test]
    async fn pages_are_bounded_and_end_with_the_program() {
        let (trigger, stop) = shutdown::pair();
        let hub = UiHub::new(1);
        let mut open: Vec<UiBody> = (0..PAGES_MAX).map(|_| hub.open(None, stop.clone()).unwrap()).collect();
        assert!(hub.open(None, stop.clone()).is_err());
        open.pop();
        let mut body = hub.open(None, stop.clone()).unwrap();
        assert!(next(&mut body).await.is_some() && next(&mut body).await.is_some());
        trigger.request("the test ends");
        assert_eq!(next(&mut body).await, None);
    }
}
