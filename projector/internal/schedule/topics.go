package schedule

import (
	"sync"
	"time"

	"github.com/oncebox/oncebox/retry"
)

// Topics holds the topics in trouble, for all workers of a relay. The workers leave such a topic alone until
// the broker takes one row of it, which is sent by itself after a pause, see projector.prober. The pause grows with each
// failure.
//
// A topic goes through three states: it is paused until a time; it is ripe, when that time has come and a worker may
// probe it; and it is probed, while the row is on its way. Then it is removed, or paused again.
type Topics struct {
	Pause retry.Policy

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
func (t *Topics) begin(topic string) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byKey[topic]; p.probed || time.Now().Before(p.until) {
		return 0, false // several messages of one batch count as one failure
	}
	return t.prolong(topic, 1), true
}

// prolong adds failures to a topic and pauses it anew. It ends a probe. The caller has the lock.
func (t *Topics) prolong(topic string, failures int) time.Duration {
	if t.byKey == nil {
		t.byKey = map[string]topicPause{}
	}
	failures += t.byKey[topic].failures
	d := t.Pause.Pause(failures)
	t.byKey[topic] = topicPause{failures: failures, until: time.Now().Add(d)}
	return d
}

// heal records that the topic took a message. It does nothing while a probe is on its way: the call that brought this
// message may have begun before the probe, and no other row of the probe's key may be sent until the probe has ended.
func (t *Topics) heal(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.byKey[topic].probed {
		delete(t.byKey, topic)
	}
}

// List returns the topics that are to be left alone now.
func (t *Topics) List() []string {
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

// Ripe returns the topics whose pause is over and that no worker probes.
func (t *Topics) Ripe() (topics []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, p := range t.byKey {
		if !p.probed && time.Now().After(p.until) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// Probe gives the caller the right to send a row of the topic. No other worker gets it until the caller calls
// [Topics.Probed]. It returns false if another worker was faster, or if the topic is not ripe any more.
func (t *Topics) Probe(topic string) bool {
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

// Finding is the result of a probe for its topic.
type Finding int

const (
	TopicSound     Finding = iota // the topic takes messages
	TopicInTrouble                // the topic still takes none: a longer pause
	NothingKnown                  // nothing is known, and another probe would not help now: the same pause again
	RowRefused                    // the row itself was the reason: another row may be probed at once
)

// Probed ends a probe. It returns the length of the next pause; 0: the topic is free, or may be probed again at once.
func (t *Topics) Probed(topic string, v Finding) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byKey[topic]
	if !p.probed {
		return 0
	}
	switch v {
	case TopicSound:
		delete(t.byKey, topic)
	case TopicInTrouble:
		return t.prolong(topic, 1)
	case NothingKnown:
		return t.prolong(topic, 0)
	case RowRefused:
		p.probed = false
		t.byKey[topic] = p
	}
	return 0
}

// Answered records that a call to the broker, which began at the given time, brought a receipt.
func (t *Topics) Answered(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began.After(t.heard) {
		t.heard = began
	}
}

// Answers reports whether the broker has given a receipt to a call that began after since. Then a call without any
// answer is the trouble of its topics, not of the broker.
func (t *Topics) Answers(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard.After(since)
}
