package flood

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/console/internal/tenant"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/ops/behind"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/tenants"
)

const (
	// asked is how long a flood may go on before the broker is asked the next time.
	asked = 15 * time.Second
	// released is how long before the beginning of a flood a tenant was resumed whose events may be the flood.
	released = time.Minute
	// most is the part of the events, in percent, from which a tenant is named: with less, its pause would not end the flood.
	most = 50
)

// Sender is the tenant that has recorded at least half of the events for the topic of a flood.
type Sender struct {
	Tenant string
	// Percent is its part in all events since the flood began. PerMinute is about how many events it has recorded in the last minute.
	Percent   int
	PerMinute float64
	// Lately is its part in the events of the last minute, in percent.
	Lately int
	// IsPaused: its events are not published.
	IsPaused bool
}

// Sends reports whether a pause of the tenant would hold the flood back: its events are also most of the latest ones.
func (s *Sender) Sends() bool { return s.PerMinute >= 1 && s.Lately >= most && !s.IsPaused }

// text returns a sentence with a space before it, "" if the sender is not known.
func (s *Sender) text() string {
	if s.Tenant == "" {
		return ""
	}
	text := fmt.Sprintf(" %d\u00a0%% of the events since then are of the tenant %s", s.Percent, s.Tenant)
	switch {
	case s.IsPaused:
		return text + ", which is paused: its messages at the broker are handled, and its other events wait until it is resumed."
	case s.Sends():
		return text + ", which has sent about " + words.Group(int64(s.PerMinute+0.5)) +
			" of them in the last minute: a pause of the tenant holds further ones back, and what waits at the broker is handled."
	case s.PerMinute >= 1:
		return text + ", which has sent only about " + words.Group(int64(s.PerMinute+0.5)) +
			" of them in the last minute: a pause of the tenant changes little."
	default:
		return text + ", which has sent nothing in the last minute: a pause of the tenant changes nothing."
	}
}

// findSender reads who has recorded most since the flood began, and how much of that in the last minute.
func (f *Flood) findSender(ctx context.Context, now time.Time, events *outbox.Store, paused []tenants.Pause) error {
	all, err := behind.Shares(ctx, events, behind.From(f.Since.Add(-asked), now), f.Topic)
	if err != nil || len(all) == 0 || all[0].Percent < most {
		return err
	}
	f.Sender = Sender{Tenant: all[0].Tenant, Percent: all[0].Percent}
	f.Sender.IsPaused = slices.ContainsFunc(paused, func(p tenants.Pause) bool { return p.Tenant == f.Sender.Tenant })
	latest, err := behind.Shares(ctx, events, now.Add(-tenant.Lately), f.Topic)
	for n := range latest {
		if latest[n].Tenant == f.Sender.Tenant {
			f.Sender.PerMinute, f.Sender.Lately = latest[n].Events/tenant.Lately.Minutes(), latest[n].Percent
		}
	}
	return err
}

// perSecond writes a rate.
func perSecond(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return words.Group(int64(rate + 0.5))
}
