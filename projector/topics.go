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

// pausedTopics holds the topics in trouble, for all workers of a relay. The workers leave such a topic alone until
// the broker takes one row of it, which is sent by itself after a pause, see probe. The pause grows with each
// failure.
//
// A topic goes through three states: it is paused until a time; it is ripe, when that time has come and a worker may
// probe it; and it is probed, while the row is on its way. Then it is removed, or paused again.
type pausedTopics struct {
	pause retry.Policy

	mu    sync.Mutex
	byKey map[string]topicPause // by topic
	heard time.Time             // the begin of the latest call to the broker that brought a receipt
}

type topicPause struct {
	failures int
	until    time.Time
	probed   bool // its probe is on its way
}

// forgotten is the time after its pause at which a topic is taken for sound if no worker has a row to probe it with.
const forgotten = time.Minute

// begin starts to leave a topic alone. It returns the length of the pause, and whether the topic was free or ripe
// until now.
func (t *pausedTopics) begin(topic string) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byKey[topic]; p.probed || time.Now().Before(p.until) {
		return 0, false // several messages of one batch count as one failure
	}
	return t.prolong(topic, 1), true
}

// prolong adds failures to a topic and pauses it anew. It ends a probe. The caller has the lock.
func (t *pausedTopics) prolong(topic string, failures int) time.Duration {
	if t.byKey == nil {
		t.byKey = map[string]topicPause{}
	}
	failures += t.byKey[topic].failures
	d := t.pause.Pause(failures)
	t.byKey[topic] = topicPause{failures: failures, until: time.Now().Add(d)}
	return d
}

// heal records that the topic took a message. It does nothing while a probe is on its way: the call that brought this
// message may have begun before the probe, and no other row of the probe's key may be sent until the probe has ended.
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

// ripe returns the topics whose pause is over and that no worker probes.
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

// probe gives the caller the right to send a row of the topic. No other worker gets it until the caller calls
// [pausedTopics.probed]. It returns false if another worker was faster, or if the topic is not ripe any more.
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

// verdict is the result of a probe for its topic.
type verdict int

const (
	verdictSound    verdict = iota // the topic takes messages
	verdictTrouble                 // the topic still takes none: a longer pause
	verdictNone                    // nothing is known, and another probe would not help now: the same pause again
	verdictOfTheRow                // the row itself was the reason: another row may be probed at once
)

// probed ends a probe. It returns the length of the next pause; 0: the topic is free, or may be probed again at once.
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

// answered records that a call to the broker, which began at the given time, brought a receipt.
func (t *pausedTopics) answered(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began.After(t.heard) {
		t.heard = began
	}
}

// answers reports whether the broker has given a receipt to a call that began after since. Then a call without any
// answer is the trouble of its topics, not of the broker.
func (t *pausedTopics) answers(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard.After(since)
}

// silence is the state of a worker whose calls to the broker bring no receipt at all. There are two possible reasons:
// the broker is away, or the topics of the call hang while other topics would work. To find out, the worker leaves
// these topics out for a while and sends rows of other topics, if there are any. If a receipt comes for those, the
// topics that are left out are in trouble.
type silence struct {
	topics   []string  // topics that brought nothing in this turn
	avoided  []string  // topics that are left out
	until    time.Time // the end of avoided
	failures int       // turns without a receipt in a row

	// unknown is the number of calls in a row that may have been carried out although no receipt came. Their rows
	// may be stored, and each further try may store them once more. So the tries become rare and small, see quiet
	// and worker.batch.
	unknown int
	quiet   time.Time // nothing is sent until then, except one try of other topics
	others  bool      // the last such call was that try of other topics
}

// unheard records a call that may have been carried out.
func (s *silence) unheard(pause retry.Policy) {
	s.unknown++
	s.others = len(s.avoided) > 0
	s.quiet = time.Now().Add(pause.Longest(s.unknown))
}

// isQuiet reports whether nothing may be sent now. After a call for the heads of the lanes brought no receipt, other
// topics have one try at once: they may work, and their rows may have come since the last try.
func (s *silence) isQuiet() bool {
	return time.Now().Before(s.quiet) && (s.others || len(s.avoided) == 0)
}

// batch returns the number of rows to publish at once from a number of lanes, roughly. It is one row per lane while
// no receipts come.
func (w *worker) batch(lanes int) int {
	if w.silence.unknown > 0 {
		return lanes
	}
	return w.r.p.cfg.BatchSize
}

// turn is a step that leaves out the topics that brought no receipt in the step before, for one to four seconds.
func (w *worker) turn(ctx context.Context) error {
	if s := &w.silence; len(s.topics) > 0 {
		s.failures++
		s.avoided, s.topics = s.topics, nil
		s.until = time.Now().Add(retry.Policy{Delay: time.Second, MaxDelay: 4 * time.Second}.Longest(s.failures))
	}
	return w.step(ctx)
}

// leftAlone returns the topics to which nothing is published now: topics in trouble, and topics that this worker
// avoids.
func (w *worker) leftAlone() []string {
	if time.Now().After(w.silence.until) {
		w.silence.avoided = nil
	}
	return append(w.r.topics.list(), w.silence.avoided...)
}

// reportTopics takes the result of a publication. It pauses topics in trouble, and frees topics that took a message.
//
// Rows without any answer (silent) are the hard part. If the broker gave a receipt for another row of this call, or
// of a call of any worker that began after this one, then the broker works, and the silent topics are in trouble:
// their errors become errors of the topic. If not, nothing is known, and the worker avoids these topics in the next
// turn to find out, see silence.
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

// errSilent is the reason for the pause of a topic that gave no answer while other topics did.
var errSilent = errors.New("projector: the topic gave no answer, others did")

// leaveAlone pauses a topic and logs it, unless the topic is paused already.
func (w *worker) leaveAlone(ctx context.Context, topic string, reason error) {
	if pause, news := w.r.topics.begin(topic); news {
		w.reportPause(ctx, topic, pause, reason)
	}
}

func (w *worker) reportPause(ctx context.Context, topic string, pause time.Duration, reason error) {
	w.r.p.log.WarnContext(ctx, "oncebox: a topic takes nothing, its rows wait", "topic", topic, "pause", pause, "error", reason)
}
