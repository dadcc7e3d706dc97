//! Lets the story go on for as long as the demo runs, and tells it.

use std::sync::Arc;

use muster_model::{Clock as _, Duration};
use muster_sim::world::{ProcessClock, What, World};
use tokio_util::sync::CancellationToken;

use super::{
    story::{Beat, Story},
    tell::{self, Teller},
    wire::Wire,
};

/// How many minutes of the story are laid out at a time.
const STRETCH: i64 = 240;
/// And how many are left when the next ones follow.
const LEFT: i64 = 60;
/// Between two looks at what happened, in real time.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);
const DAY: i64 = 24 * 60;

/// Something of the story that is still to come.
struct Ahead {
    minute: i64,
    said: Option<String>,
    /// What happens on the wire, and whether it begins or ends.
    wired: Option<(What, bool)>,
}

/// See the module.
pub(super) struct Conductor {
    pub(super) world: Arc<World>,
    pub(super) clock: Arc<ProcessClock>,
    pub(super) story: Story,
    /// How long the world had lived when the page opened.
    pub(super) history: Duration,
    pub(super) wire: Option<Wire>,
    ahead: Vec<Ahead>,
    /// The story is laid out up to this minute.
    laid: i64,
}

impl Conductor {
    pub(super) fn new(
        world: Arc<World>,
        clock: Arc<ProcessClock>,
        story: Story,
        history: Duration,
        wire: Option<Wire>,
    ) -> Self {
        let mut conductor = Self { world, clock, story, history, wire, ahead: Vec::new(), laid: 0 };
        conductor.take_up();
        conductor.lay_out();
        conductor
    }

    fn minute(&self) -> i64 {
        let now = i64::try_from(self.world.now().millis() / 60_000).unwrap_or(i64::MAX);
        now - i64::try_from(self.history.millis() / 60_000).unwrap_or(0)
    }

    /// What is under way already goes on where BMCs are on the wire; in memory it does so by itself.
    fn take_up(&mut self) {
        if self.wire.is_none() {
            return;
        }
        let begun = self.story.between(-DAY, 0).into_iter().filter(|beat| ends(beat) > 0);
        for beat in begun.collect::<Vec<_>>() {
            if self.wire.as_ref().is_some_and(|wire| wire.happens(&beat.what, true)) {
                self.ahead.push(Ahead { minute: ends(&beat), said: None, wired: Some((beat.what, false)) });
            }
        }
    }

    fn lay_out(&mut self) {
        while self.minute() + LEFT >= self.laid {
            for beat in self.story.between(self.laid, self.laid + STRETCH) {
                let wired = self.wire.is_some() && Wire::takes(&beat.what);
                if !wired {
                    self.world.disturb(beat.disturbance(self.history));
                }
                if wired && beat.lasts > Duration::ZERO {
                    let end = Some((beat.what.clone(), false));
                    self.ahead.push(Ahead { minute: ends(&beat), said: None, wired: end });
                }
                let begin = wired.then(|| (beat.what.clone(), true));
                if begin.is_some() || beat.told.is_some() {
                    self.ahead.push(Ahead { minute: beat.minute, said: beat.told, wired: begin });
                }
            }
            self.laid += STRETCH;
        }
        self.ahead.sort_by_key(|one| one.minute);
    }

    /// Goes on until `stop`.
    #[allow(clippy::disallowed_methods, reason = "people read in real time")]
    pub(super) async fn run(mut self, mut teller: Teller, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let minute = self.minute();
            let due = self.ahead.iter().take_while(|one| one.minute <= minute).count();
            for one in self.ahead.drain(..due) {
                if let (Some((what, begins)), Some(wire)) = (&one.wired, &self.wire) {
                    wire.happens(what, *begins);
                }
                if let Some(text) = &one.said {
                    tell::say(self.clock.now(), text);
                }
            }
            self.lay_out();
            teller.tell().await;
        }
    }
}

/// The minute at which a beat is over.
fn ends(beat: &Beat) -> i64 {
    beat.minute + i64::try_from(beat.lasts.millis() / 60_000).unwrap_or(0)
}
