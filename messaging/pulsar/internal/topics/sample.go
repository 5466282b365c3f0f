package topics

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

const (
	// fewest and most are how many entries a sample has, if so many wait. So many as fewest are looked at together.
	fewest, most = 8, 100
	// goodError is the standard error, relative to the number of messages, with which a sample is large enough.
	goodError = 0.1
	// unlooked is the time before the deadline of a context in which no entry is looked at. A process asks for all its subscriptions in one reading, and
	// must come to an end also if all of them are late: the last ones then have a lower bound.
	unlooked = time.Second
)

// sample estimates how many messages wait for a subscription. Pulsar only counts entries, and an entry is one message or a batch of them. It
// does not keep the number of messages: its counters begin at 0 when a topic is loaded, and say nothing of the entries that wait. Therefore some entries are
// looked at, which are spread evenly over all that wait. The broker reads such an entry, and returns only its header.
type sample struct {
	admin        *Admin
	subscription string
	parts        []Backlog
	entries      int64 // that wait in all parts

	asked    int64 // how many entries were looked at
	messages int64 // how many messages these have
	squares  float64
}

func newSample(a *Admin, subscription string, parts []Backlog) *sample {
	s := &sample{admin: a, subscription: subscription, parts: parts}
	for _, part := range parts {
		s.entries += part.Waiting
	}
	return s
}

// read looks at entries until the sample is large enough. An error ends the sample: the role may not look at entries, or the broker is away.
func (s *sample) read(ctx context.Context) {
	until, all := s.until(ctx), min(s.entries, most)
	for s.asked < all && time.Now().Before(until) && (s.messages == 0 || s.relativeError() > goodError) {
		if s.look(ctx, min(fewest, all-s.asked)) != nil {
			return
		}
	}
}

// until returns the time until which entries are looked at.
func (s *sample) until(ctx context.Context) time.Time {
	until := time.Now().Add(s.admin.LookFor)
	if deadline, limited := ctx.Deadline(); limited && deadline.Add(-unlooked).Before(until) {
		return deadline.Add(-unlooked)
	}
	return until
}

// look looks at the next n entries, all at once.
func (s *sample) look(ctx context.Context, n int64) error {
	sizes, errs, step := make([]int64, n), make([]error, n), stride(s.entries)
	var looks sync.WaitGroup
	for i := range n {
		looks.Go(func() { sizes[i], errs[i] = s.size(ctx, (s.asked+i)*step%s.entries) })
	}
	looks.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.asked += n
	for _, size := range sizes {
		s.messages += size
		s.squares += float64(size) * float64(size)
	}
	return nil
}

// size returns how many messages an entry has, of all that wait, in the order of the parts. It is 0 if fewer wait by now.
func (s *sample) size(ctx context.Context, entry int64) (int64, error) {
	part := 0
	for ; entry >= s.parts[part].Waiting; part++ {
		entry -= s.parts[part].Waiting
	}
	// The broker counts from 1, and leaves out entries that were settled.
	path := s.admin.subscription(s.parts[part].topic, s.subscription) + "/position/" + strconv.FormatInt(entry+1, 10)
	header, _, err := s.admin.send(ctx, http.MethodHead, path, "")
	switch batch := header.Get("X-Pulsar-Num-Batch-Message"); {
	case answer.IsStatus(err, http.StatusNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case batch == "":
		return 1, nil
	default:
		return strconv.ParseInt(batch, 10, 64)
	}
}

// isOvertaken reports whether the broker had none of the entries any more.
func (s *sample) isOvertaken() bool { return s.asked > 0 && s.messages == 0 }

// relativeError returns the standard error of the estimate, relative to it. The error is smaller the more of all entries were looked at.
func (s *sample) relativeError() float64 {
	n, sum := float64(s.asked), float64(s.messages)
	variance := (s.squares - sum*sum/n) / (n - 1)
	return math.Sqrt(max(variance, 0)/n*(1-n/float64(s.entries))) * n / sum
}

// result returns the number of messages. A batch of which a part is settled counts as a whole, so the number is exact only if there is no batch. If no
// entry could be looked at, it is the number of entries.
func (s *sample) result() (int64, count.Precision) {
	switch {
	case s.asked == s.entries && s.messages == s.entries:
		return s.entries, count.Exact
	case s.messages == 0 || s.asked < min(s.entries, fewest):
		return s.entries, count.AtLeast
	default:
		return int64(math.Round(float64(s.entries) * float64(s.messages) / float64(s.asked))), count.Estimated
	}
}

// stride returns the step from each of n entries to the next that is looked at, modulo n. It has no common divisor with n, so each entry comes once. It is
// about n divided by the golden ratio: as many entries as have come are spread evenly, also if every second or every tenth batch is a large one.
func stride(n int64) int64 {
	step := int64(math.Round(float64(n) / math.Phi))
	for step > 1 && divisor(step, n) != 1 {
		step++
	}
	return max(step, 1)
}

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
