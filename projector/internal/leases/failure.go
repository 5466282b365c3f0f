package leases

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// untried is the time after the last try of a topic, or of the broker, from which on it counts as sound: no event waits for it any more. The pauses between
// tries are much shorter.
const untried = 5 * time.Minute

// Failure has the reasons why the broker, or topics, take nothing. The coordinator stores one of them for operators, see noteFailure.
type Failure struct {
	mu    sync.Mutex
	going map[string]failing // that go on, by topic; "": of the broker
	last  failing
}

// failing is a failure, and whether it goes on.
type failing struct {
	reason, topic string    // topic is "" if the broker is in trouble
	began, last   time.Time // began is zero if it is over
}

// Note keeps the reasons from the errors of a publication, the first of each topic, and the first of the broker. Errors of single messages are left out,
// because each held row shows its own. A failure is over when a row is taken: of any topic if the broker was the reason, else of the topic. So it is over
// at once if the broker takes a part of the call.
func (f *Failure) Note(rows []*outboxdb.Row, errs map[int]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(errs) == 0 && len(f.going) == 0 {
		return
	}
	taken := map[string]bool{}
	for i, r := range rows {
		if errs[i] == nil {
			taken[""], taken[r.Topic] = true, true
		}
	}
	for topic := range taken {
		delete(f.going, topic)
	}
	noted := map[string]bool{}
	for i, r := range rows {
		topic := ""
		switch schedule.Classify(errs[i]) {
		case schedule.ClassTopic:
			topic = r.Topic
		case schedule.ClassBroker:
		default:
			continue
		}
		if _, away := f.going[""]; away { // a broker that takes nothing of any topic may name a topic as well
			topic = ""
		}
		if !noted[topic] {
			noted[topic] = true
			f.add(topic, errs[i].Error(), taken[topic])
		}
	}
}

// add adds a failure, which may have begun before. over: a row was taken at the same time.
func (f *Failure) add(topic, reason string, over bool) {
	f.last = failing{reason, topic, time.Time{}, time.Now()}
	if over {
		return
	}
	is := f.last
	if is.began = f.going[topic].began; is.began.IsZero() {
		is.began = is.last
	}
	if f.going == nil {
		f.going = map[string]failing{}
	}
	f.going[topic] = is
}

// now returns the failure of the broker if it goes on, else the failure of a topic that began first, else the last one, which is over. The zero value: there
// was none.
func (f *Failure) now() failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []failing
	for topic, is := range f.going {
		if time.Since(is.last) > untried {
			delete(f.going, topic)
			continue
		}
		all = append(all, is)
	}
	if len(all) == 0 {
		return f.last
	}
	return slices.MinFunc(all, func(a, b failing) int {
		if a.topic == "" || b.topic == "" {
			return cmp.Compare(a.topic, b.topic)
		}
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.topic, b.topic))
	})
}

// lasts reports whether the failure goes on, and is at least that old. A younger failure may be one of several calls of which the others succeed: it is
// over a moment later.
func (f *failing) lasts(age time.Duration) bool {
	return !f.began.IsZero() && time.Since(f.began) >= age
}
