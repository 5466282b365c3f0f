package projector

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// pausedTopics are topics in trouble. All leave them alone until one row of such a topic, sent alone after a while that
// grows with each failure, was taken: see probe.
type pausedTopics struct {
	pause retry.Policy

	mu    sync.Mutex
	byKey map[string]topicPause
	heard time.Time // when the latest call that brought a receipt began
}

type topicPause struct {
	failures int
	until    time.Time
	probed   bool // its probe is on its way
}

// forgotten is how long after its pause a topic is taken for sound if no worker has a row to try it with.
const forgotten = time.Minute

// begin begins to leave a topic alone. It returns for how long, and whether that was news.
func (t *pausedTopics) begin(topic string) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byKey[topic]; p.probed || time.Now().Before(p.until) {
		return 0, false // several messages of one batch are one failure
	}
	return t.prolong(topic, 1), true
}

func (t *pausedTopics) prolong(topic string, failures int) time.Duration {
	if t.byKey == nil {
		t.byKey = map[string]topicPause{}
	}
	failures += t.byKey[topic].failures
	d := t.pause.Pause(failures)
	t.byKey[topic] = topicPause{failures: failures, until: time.Now().Add(d)}
	return d
}

// heal: the topic took something. A call that began before the probe does not count: while that is on its way, nothing of
// its key may be sent by another.
func (t *pausedTopics) heal(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.byKey[topic].probed {
		delete(t.byKey, topic)
	}
}

// list returns the topics that are to be left alone now.
func (t *pausedTopics) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	topics := []string{}
	for topic, p := range t.byKey {
		if !p.probed && time.Since(p.until) > forgotten {
			delete(t.byKey, topic)
			continue
		}
		topics = append(topics, topic)
	}
	return topics
}

// ripe returns the topics whose pause is over and that nobody probes.
func (t *pausedTopics) ripe() (topics []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, p := range t.byKey {
		if !p.probed && time.Now().After(p.until) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// probe gives the caller, and nobody else until it calls [pausedTopics.probed], the right to send a row of the topic.
func (t *pausedTopics) probe(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, paused := t.byKey[topic]
	if !paused || p.probed || time.Now().Before(p.until) {
		return false
	}
	p.probed = true
	t.byKey[topic] = p
	return true
}

// verdict is what a probe says of its topic.
type verdict int

const (
	verdictSound    verdict = iota // it takes messages
	verdictTrouble                 // it still does not
	verdictNone                    // the probe says nothing, and another one would not now
	verdictOfTheRow                // the row was refused: the next one may say more
)

// probed ends a probe. It returns for how long the topic is left alone.
func (t *pausedTopics) probed(topic string, v verdict) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byKey[topic]
	if !p.probed {
		return 0
	}
	switch v {
	case verdictSound:
		delete(t.byKey, topic)
	case verdictTrouble:
		return t.prolong(topic, 1)
	case verdictNone:
		return t.prolong(topic, 0)
	case verdictOfTheRow:
		p.probed = false
		t.byKey[topic] = p
	}
	return 0
}

// answered notes that a call that began then brought a receipt.
func (t *pausedTopics) answered(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began.After(t.heard) {
		t.heard = began
	}
}

// answers tells whether the broker has given a receipt to a call that began since then.
func (t *pausedTopics) answers(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard.After(since)
}

// silence is how a worker finds out what is wrong when a call brings no receipt at all: the broker may be away, or the
// topics of the call hang while others would take something. So it leaves those topics out for a while, as long as there
// are others. If a receipt comes then, it was they.
type silence struct {
	topics   []string // that brought nothing in this turn
	avoided  []string
	until    time.Time
	failures int // in a row

	// Calls in a row that may have been carried out although no receipt came. What they sent may be stored, and each further
	// try stores it once more. So the tries become rare, and small.
	unknown int
	quiet   time.Time // until then nothing is sent, but once for the others
	others  bool      // the last such call was that one for the others
}

// unheard notes a call that may have been carried out.
func (s *silence) unheard(pause retry.Policy) {
	s.unknown++
	s.others = len(s.avoided) > 0
	s.quiet = time.Now().Add(pause.Longest(s.unknown))
}

// isQuiet tells whether nothing is to be sent now. After each call for the heads of the lanes the others have a try at once: they
// may be sound, and they may have come since the last try.
func (s *silence) isQuiet() bool {
	return time.Now().Before(s.quiet) && (s.others || len(s.avoided) == 0)
}

// batch is about how many rows of that many lanes are published at once: one of each while no receipt comes.
func (w *worker) batch(lanes int) int {
	if w.silence.unknown > 0 {
		return lanes
	}
	return w.r.p.cfg.BatchSize
}

// turn is a step that leaves out what was silent in the one before.
func (w *worker) turn(ctx context.Context) error {
	if s := &w.silence; len(s.topics) > 0 {
		s.failures++
		s.avoided, s.topics = s.topics, nil
		s.until = time.Now().Add(retry.Policy{Delay: time.Second, MaxDelay: 4 * time.Second}.Longest(s.failures))
	}
	return w.step(ctx)
}

// leftAlone returns the topics to which nothing is published now.
func (w *worker) leftAlone() []string {
	if time.Now().After(w.silence.until) {
		w.silence.avoided = nil
	}
	return append(w.r.topics.list(), w.silence.avoided...)
}

// reportTopics pauses topics in trouble and forgets the trouble of those that took something. A topic that gave no answer
// while the broker gave receipts for others is in trouble as well: its errors become those of a topic.
func (w *worker) reportTopics(ctx context.Context, rows []*outboxdb.Row, errs map[int]error, began time.Time) {
	topics := &w.r.topics
	silent, unknown := map[string]error{}, false
	for i, r := range rows {
		if err := errs[i]; err != nil && classify(err) == classBroker {
			silent[r.Topic] = err
			unknown = unknown || errors.Is(err, messaging.ErrUnknown)
		}
	}
	heard, healed := false, ""
	for i, r := range rows {
		switch err := errs[i]; {
		case err == nil:
			if heard = true; r.Topic != healed {
				healed = r.Topic
				topics.heal(r.Topic)
				delete(silent, r.Topic)
			}
		case classify(err) == classTopic:
			w.leaveAlone(ctx, r.Topic, err)
			delete(silent, r.Topic)
		}
	}
	switch {
	case heard:
		topics.answered(began)
		for _, topic := range w.silence.avoided {
			w.leaveAlone(ctx, topic, errSilent)
		}
		w.silence = silence{}
	case !topics.answers(began):
		w.silence.topics = slices.Collect(maps.Keys(silent))
		if unknown {
			w.silence.unheard(w.r.p.pauses.silent)
		}
		return
	}
	for topic, err := range silent {
		w.leaveAlone(ctx, topic, err)
	}
	for i, r := range rows {
		if reason, ok := silent[r.Topic]; ok && classify(errs[i]) == classBroker {
			errs[i] = &messaging.TopicError{Topic: r.Topic, Err: reason}
		}
	}
}

// errSilent is why a topic is paused that gave no answer while others did.
var errSilent = errors.New("projector: the topic gave no answer, others did")

func (w *worker) leaveAlone(ctx context.Context, topic string, reason error) {
	if pause, news := w.r.topics.begin(topic); news {
		w.reportPause(ctx, topic, pause, reason)
	}
}

func (w *worker) reportPause(ctx context.Context, topic string, pause time.Duration, reason error) {
	w.r.p.log.WarnContext(ctx, "oncebox: a topic takes nothing, its rows wait", "topic", topic, "pause", pause, "error", reason)
}
