package schedule

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// Silence is the state of a worker whose calls to the broker bring no receipt at all. There are two possible reasons:
// the broker is away, or the topics of the call hang while other topics would work. To find out, the worker leaves
// these topics out for a while and sends rows of other topics, if there are any. If a receipt comes for those, the
// topics that are left out are in trouble.
type Silence struct {
	topics   []string  // topics that brought nothing in this turn
	Avoided  []string  // topics that are left out
	until    time.Time // the end of avoided
	failures int       // turns without a receipt in a row

	// unknown is the number of calls in a row that may have been carried out although no receipt came. Their rows
	// may be stored, and each further try may store them once more. So the tries become rare and small, see quiet
	// and Batch.
	unknown int
	Quiet   time.Time // nothing is sent until then, except one try of other topics
	others  bool      // the last such call was that try of other topics
}

// unheard records a call without a receipt, so that it may have been carried out or not.
func (s *Silence) unheard(pause retry.Policy) {
	s.unknown++
	s.others = len(s.Avoided) > 0
	s.Quiet = time.Now().Add(pause.Longest(s.unknown))
}

// IsQuiet reports whether nothing may be sent now. After a call for the heads of the lanes brought no receipt, other
// topics have one try at once: they may work, and their rows may have come since the last try.
func (s *Silence) IsQuiet() bool {
	return time.Now().Before(s.Quiet) && (s.others || len(s.Avoided) == 0)
}

// Batch returns the number of rows to publish at once from a number of lanes, roughly: a full batch, or one row per
// lane while no receipts come.
func (s *Silence) Batch(full, lanes int) int {
	if s.unknown > 0 {
		return lanes
	}
	return full
}

// Turn begins a turn of the worker. It leaves out the topics that brought no receipt in the turn before, for one to
// four seconds.
func (s *Silence) Turn() {
	if len(s.topics) == 0 {
		return
	}
	s.failures++
	s.Avoided, s.topics = s.topics, nil
	s.until = time.Now().Add(retry.Policy{Delay: time.Second, MaxDelay: 4 * time.Second}.Longest(s.failures))
}

// LeftOut returns the topics that are left out now.
func (s *Silence) LeftOut() []string {
	if time.Now().After(s.until) {
		s.Avoided = nil
	}
	return s.Avoided
}

// Trouble is a topic that takes nothing from now on.
type Trouble struct {
	Topic  string
	Pause  time.Duration
	Reason error
}

// errSilent is the reason for the pause of a topic that gave no answer while other topics did.
var errSilent = errors.New("projector: the broker has not answered for this topic, but has answered for others")

// Report takes the result of a publication that began at the given time. It frees topics that took a message, and
// pauses topics in trouble, which it returns unless they were paused already. pause is the pause after calls of
// unknown outcome.
//
// Rows without any answer (silent) are the hard part. If the broker gave a receipt for another row of this call, or
// of a call of any worker that began after this one, then the broker works, and the silent topics are in trouble:
// their errors become errors of the topic. If not, nothing is known, and the worker avoids these topics in the next
// turn to find out.
func (s *Silence) Report(topics *Topics, rows []*outboxdb.Row, errs map[int]error, began time.Time, pause retry.Policy) (found []Trouble) {
	leaveAlone := func(topic string, reason error) {
		if pause, news := topics.begin(topic); news {
			found = append(found, Trouble{topic, pause, reason})
		}
	}
	silent, unknown := map[string]error{}, false
	for i, r := range rows {
		if err := errs[i]; err != nil && Classify(err) == ClassBroker {
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
		case Classify(err) == ClassTopic:
			leaveAlone(r.Topic, err)
			delete(silent, r.Topic)
		}
	}
	switch {
	case heard:
		topics.Answered(began)
		for _, topic := range s.Avoided {
			leaveAlone(topic, errSilent)
		}
		*s = Silence{}
	case !topics.Answers(began):
		s.topics = slices.Collect(maps.Keys(silent))
		if unknown {
			s.unheard(pause)
		}
		return found
	}
	for topic, err := range silent {
		leaveAlone(topic, err)
	}
	for i, r := range rows {
		if reason, ok := silent[r.Topic]; ok && Classify(errs[i]) == ClassBroker {
			errs[i] = &messaging.TopicError{Topic: r.Topic, Err: reason}
		}
	}
	return found
}
