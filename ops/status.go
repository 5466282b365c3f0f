package ops

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops/processes"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Counted is where the counts of [View.Status] stop, except for counts that [outboxstate.Counted] limits.
const Counted = 1000

// Status has the numbers over all tables that an operator looks at first.
type Status struct {
	// Outbox has the statistics of the outbox. With a filter by tenant or topic, New, Held, Paused, Dead and Shares
	// count only selected events, and OldestAge, Failed, MostTries, Delayed and Blocked are 0, because they are known
	// only for the whole outbox.
	Outbox outboxstate.Stats
	// Traffic counts all events; the difference of two readings gives a rate.
	Traffic outboxstate.Traffic
	// Projectors lists the processes with a relay.
	Projectors []outboxstate.Projector
	// Processes lists the processes that run parts of the service.
	Processes []processes.Process
	// Consumers lists the consumers that have run on this database, or have parked messages or dead letters, by their names.
	Consumers []ConsumerStatus
	// ReadModels lists the read models, by name.
	ReadModels []readmodel.Status
	// UnknownSteps is the number of steps of requests that wait for an operator, of the selected tenant or
	// of all. It stops at [Counted].
	UnknownSteps int
}

// ConsumerStatus is a consumer, and the messages that wait for it in the database.
type ConsumerStatus struct {
	Consumer string
	// Run is the state of its processes. Zero: it never ran on this database.
	Run state.Consumer
	// IsOutdated: the broker counted its messages before an operator set them in motion. See [state.Consumer.IsOutdated].
	IsOutdated bool
	// Stats count up to Stats.Counted. With a filter by tenant or topic, Parked and DeadLetters count the selected ones among the first
	// [Counted] of each, and the other fields are 0, because they are known for the whole consumer only.
	Stats state.Stats
}

// Status returns the state of everything. A filter by consumer selects consumers; a filter by tenant or topic selects the events and
// messages that are counted. It costs a few look-ups by an index for each lane and consumer, and bounded counts.
func (v *View) Status(ctx context.Context, filter Filter) (st Status, err error) {
	if st.Outbox, err = v.outbox.State().Stats(ctx); err != nil {
		return st, err
	}
	if st.Traffic, err = v.outbox.State().Traffic(ctx); err != nil {
		return st, err
	}
	// The traffic stays that of the whole outbox: rates per tenant are not counted.
	filter.share(&st.Outbox)
	if st.Projectors, err = v.outbox.State().Projectors(ctx); err != nil {
		return st, err
	}
	if st.Processes, err = processes.List(ctx, v.db, v.outbox, v.inbox); err != nil {
		return st, err
	}
	if st.Consumers, err = v.Consumers(ctx, filter); err != nil {
		return st, err
	}
	if st.ReadModels, err = readmodel.List(ctx, v.inbox); err != nil {
		return st, err
	}
	var unknown []idempotency.Unknown
	unknown, err = v.keys.Unknown(ctx, v.db, filter.Tenant, Counted)
	st.UnknownSteps = len(unknown)
	return st, err
}

// share removes the numbers that are not about the selected events.
func (f Filter) share(st *outboxstate.Stats) {
	if f.Tenant == "" && f.Topic == "" {
		return
	}
	st.Shares = slices.DeleteFunc(st.Shares, func(s outboxstate.Share) bool {
		return f.Tenant != "" && s.Tenant != f.Tenant || f.Topic != "" && s.Topic != f.Topic
	})
	// Zero and not the number of the whole: a number beside a selection would be read as that of the selection.
	st.New, st.Held, st.Paused, st.Dead = 0, 0, 0, 0
	st.OldestAge, st.Failed, st.MostTries, st.Delayed, st.Blocked = 0, 0, 0, 0, 0
	for _, s := range st.Shares {
		st.New, st.Held, st.Paused, st.Dead = st.New+s.New, st.Held+s.Held, st.Paused+s.Paused, st.Dead+s.Dead
	}
}

// Consumers lists all consumers that run, have run, or have waiting messages, by their names. The filter is that of [View.Status].
func (v *View) Consumers(ctx context.Context, filter Filter) ([]ConsumerStatus, error) {
	known, err := v.known(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := v.inbox.State().Stats(ctx)
	if err != nil {
		return nil, err
	}
	// A consumer may be in one of the two lists only: it runs and has no messages, or it has messages and
	// no known process.
	byName := map[string]*ConsumerStatus{}
	moved, err := v.moved(ctx)
	if err != nil {
		return nil, err
	}
	for n := range known {
		c := &known[n]
		byName[c.Consumer] = &ConsumerStatus{Consumer: c.Consumer, Run: *c, IsOutdated: c.IsOutdated(moved)}
	}
	for _, s := range stats {
		if byName[s.Consumer] == nil {
			byName[s.Consumer] = &ConsumerStatus{Consumer: s.Consumer}
		}
		byName[s.Consumer].Stats = s
	}
	var list []ConsumerStatus
	for name, c := range byName {
		if filter.Consumer != "" && filter.Consumer != name {
			continue
		}
		if err := v.selected(ctx, filter, c); err != nil {
			return nil, err
		}
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b ConsumerStatus) int { return cmp.Compare(a.Consumer, b.Consumer) })
	return list, nil
}

// selected counts the consumer's parked messages and dead letters that the filter selects.
func (v *View) selected(ctx context.Context, filter Filter, c *ConsumerStatus) error {
	if filter.Tenant == "" && filter.Topic == "" {
		return nil
	}
	// Only the selected messages are counted again, by reading at most Counted of them: there is no index by tenant and
	// topic over all consumers.
	had := c.Stats
	c.Stats = state.Stats{Consumer: had.Consumer, Counted: Counted}
	if had.DeadLetters > 0 {
		dead, err := v.inbox.Dead().List(ctx, operator.DeadFilter{Consumer: c.Consumer, TenantID: filter.Tenant, Topic: filter.Topic}, nil, Counted)
		if err != nil {
			return err
		}
		c.Stats.DeadLetters = len(dead)
	}
	if had.Parked > 0 {
		parked, err := v.inbox.Parked().List(ctx, parked.Filter{Consumer: c.Consumer, TenantID: filter.Tenant}, nil, Counted)
		if err != nil {
			return err
		}
		// The list has no condition on the topic, so topics are compared here.
		for n := range parked {
			if filter.Topic == "" || parked[n].Envelope.Topic == filter.Topic {
				c.Stats.Parked++
			}
		}
	}
	return nil
}

// Menu counts what operators look for, each up to a little more than [Counted]. It reads one statement of each part, at the same time, and what
// [View.Stuck] reads about relays and consumers. So it costs the same however much waits.
func (v *View) Menu(ctx context.Context) (m Menu, err error) {
	var box outboxstate.Menu
	var messages state.Menu
	var parts, pauses []Stuck
	reads, ctx := errgroup.WithContext(ctx)
	if v.outbox != nil {
		reads.Go(func() (err error) {
			box, err = v.outbox.State().Menu(ctx)
			return err
		})
	}
	if v.inbox != nil {
		reads.Go(func() (err error) {
			messages, err = v.inbox.State().Menu(ctx)
			return err
		})
	}
	if v.keys != nil {
		reads.Go(func() error {
			unknown, err := v.keys.Unknown(ctx, v.db, "", Counted+1)
			m.UnknownSteps = len(unknown)
			return err
		})
	}
	reads.Go(func() (err error) {
		if parts, err = v.parts(ctx, Filter{}, Counted+1); err == nil {
			pauses, err = v.longPauses(ctx, Filter{}, Counted+1)
		}
		return err
	})
	if err := reads.Wait(); err != nil {
		return Menu{}, err
	}
	m.DeadOutbox, m.DeadInbox, m.Delayed = box.Dead, messages.Dead, box.Delayed
	m.TenantsPaused, m.ConsumersPaused = box.TenantsPaused, messages.Paused
	m.Stuck = m.Dead() + box.Failing + messages.Failing + m.UnknownSteps + len(parts) + len(pauses)
	return m, nil
}
