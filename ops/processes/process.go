package processes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Process is a process that runs parts of the service.
type Process struct {
	// Process is how it describes itself. A process that runs relay or consumers without oncebox.App describes itself in part: it has no Host, Service,
	// Parts and versions.
	operator.Process
	// Lanes is the number of lanes that its relay has.
	Lanes int
	// Consumers are its consumers, by name, as it has reported them.
	Consumers []Running
	// Fault is that of its relay or of its consumers, whichever began first.
	Fault
	// Publishing is the fault of its relay: the broker, or a topic, takes nothing. Receiving is that of its consumers: a connection is missing.
	Publishing, Receiving Fault
	// Failing are the causes for which its tries failed last, see [AddFailures].
	Failing []failures.Group
}

// Fault is a failure of the broker that goes on. The zero value: all is well.
type Fault struct {
	// Error is the reason, and Since when it began.
	Error string
	Since time.Time
	// Topic is the topic that takes nothing. "": it is the broker, or a connection.
	Topic string
}

// IsSet reports whether this is a fault.
func (f *Fault) IsSet() bool { return f.Error != "" }

// add adds another fault. The earlier one counts.
func (f *Fault) add(o Fault) {
	if o.Error != "" && !o.Since.IsZero() && (f.Since.IsZero() || o.Since.Before(f.Since)) {
		*f = o
	}
}

// Running is a consumer that a process runs.
type Running struct {
	Consumer string
	state.Process
}

// IsCutOff reports whether the consumer lacks a connection to the broker.
func (r Running) IsCutOff() bool { return r.State == "away" || r.State == "partly" }

// Trouble returns in words which broker fails since when, and why. "": all is well.
func (p *Process) Trouble() string {
	if p.Error == "" {
		return ""
	}
	of := cmp.Or(p.Broker, "the broker")
	if p.Topic != "" {
		of += ", topic " + p.Topic + ","
	}
	return of + " has failed since " + p.Since.UTC().Format("15:04:05") + " UTC: " + p.Error
}

// List returns the processes that run or vanished within the last day, by their names. A store that is nil is left out.
func List(ctx context.Context, db *bun.DB, events *outbox.Store, messages *inbox.Inbox) ([]Process, error) {
	all := &merged{}
	if run := runner(events, messages); run != nil {
		known, err := presence.List(ctx, run, db)
		if err != nil {
			return nil, err
		}
		for n := range known {
			all.list = append(all.list, &Process{Process: known[n]})
		}
	}
	if events != nil {
		relays, err := events.State().Projectors(ctx)
		if err != nil {
			return nil, err
		}
		for n := range relays {
			all.relay(&relays[n])
		}
	}
	if messages != nil {
		consumers, err := messages.State().Consumers(ctx)
		if err != nil {
			return nil, err
		}
		for n := range consumers {
			all.consumer(&consumers[n])
		}
	}
	return all.sorted(), nil
}

// runner runs the statements on shared tables, nil if there is neither outbox nor inbox.
func runner(events *outbox.Store, messages *inbox.Inbox) *pgsql.Runner {
	switch {
	case events != nil:
		return events.Handle().AdHoc()
	case messages != nil:
		return messages.Handle().AdHoc()
	default:
		return nil
	}
}

// merged merges what the tables say about the processes.
type merged struct{ list []*Process }

// find returns the process that is meant, nil if there is none.
func (p *merged) find(is func(*Process) bool) *Process {
	if n := slices.IndexFunc(p.list, is); n >= 0 {
		return p.list[n]
	}
	return nil
}

// relay adds what is known of a relay.
func (p *merged) relay(r *outboxstate.Projector) {
	of := p.find(func(o *Process) bool { return o.Relay == r.Owner })
	if of == nil {
		of = &Process{Process: operator.Process{Name: r.Owner, Relay: r.Owner, Parts: []string{"relay"}, Alive: r.Alive}}
		if !r.Alive {
			of.SeenAt = r.SeenUntil
		}
		p.list = append(p.list, of)
	}
	of.Lanes = r.Lanes
	of.Publishing.add(Fault{r.Error, r.FailingSince, r.FailingTopic})
	of.add(of.Publishing)
}

// consumer adds what the processes have reported of a consumer.
func (p *merged) consumer(c *state.Consumer) {
	for n := range c.Topics {
		for _, by := range c.Topics[n].Processes {
			of := p.find(func(o *Process) bool { return o.Inbox == by.ID })
			if of == nil {
				of = &Process{Process: operator.Process{Name: by.Name, Inbox: by.ID, Parts: []string{"consumers"}, Alive: true}}
				p.list = append(p.list, of)
			}
			r := Running{c.Consumer, by}
			if of.runs(r); r.IsCutOff() {
				of.Receiving.add(Fault{by.Error, by.Since, ""})
				of.add(of.Receiving)
			}
		}
	}
}

// has reports whether the process has reported that it runs a consumer. It reports a read model under the name of the read model, whatever its generation.
func (p *Process) has(consumer string) bool {
	return slices.ContainsFunc(p.Consumers, func(r Running) bool { return r.Consumer == state.Family(consumer) })
}

// runs adds a consumer. A consumer of several topics counts once, with a topic for which it has no connection, if there is one.
func (p *Process) runs(r Running) {
	n := slices.IndexFunc(p.Consumers, func(o Running) bool { return o.Consumer == r.Consumer })
	switch {
	case n < 0:
		p.Consumers = append(p.Consumers, r)
	case r.IsCutOff() && !p.Consumers[n].IsCutOff():
		p.Consumers[n] = r
	}
}

// sorted returns the processes: the living first, by name.
func (p *merged) sorted() []Process {
	slices.SortStableFunc(p.list, func(a, b *Process) int {
		if a.Alive != b.Alive {
			if a.Alive {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.BeganAt.Compare(b.BeganAt))
	})
	out := make([]Process, len(p.list))
	for n := range p.list {
		out[n] = *p.list[n]
	}
	return out
}
