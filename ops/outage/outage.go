package outage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/processes"
)

// Outage is a broker that is away. The zero value means that no broker is away.
type Outage struct {
	// Broker is what it is called, and Since when the first process noticed.
	Broker string
	Since  time.Time
	// Error is the reason that the first process gives, and Processes names all that have a problem.
	Error     string
	Processes []string
	// Mute: nothing is published. Deaf: no consumer receives anything.
	Mute, Deaf bool
}

// Of returns the outage that the living processes report, with what they report about their consumers.
func Of(list []processes.Process, consumers []state.Consumer) (o Outage) {
	relays, mute := 0, 0
	for n := range list {
		p := &list[n]
		if !p.Alive {
			continue
		}
		if p.Lanes > 0 {
			relays++
			if p.PublishesNothing {
				mute++
			}
		}
		o.add(p)
	}
	o.Mute, o.Deaf = relays > 0 && mute == relays, receiveNothing(consumers)
	if !o.Mute && !o.Deaf {
		return Outage{}
	}
	slices.Sort(o.Processes)
	return o
}

// receiveNothing reports whether no consumer that runs has a connection at any topic. Paused consumers want none.
func receiveNothing(consumers []state.Consumer) bool {
	away := 0
	for n := range consumers {
		for _, t := range consumers[n].Topics {
			for _, p := range t.Processes {
				switch p.State {
				case "away":
					away++
				case "paused":
				default:
					return false
				}
			}
		}
	}
	return away > 0
}

// add adds the problem of a process, if it has one.
func (o *Outage) add(p *processes.Process) {
	if p.Error == "" {
		return
	}
	o.Processes = append(o.Processes, p.Name)
	o.Broker = cmp.Or(o.Broker, p.Broker)
	if o.Since.IsZero() || p.Since.Before(o.Since) {
		o.Since, o.Error = p.Since, p.Error
	}
}

// Covers reports whether a finding follows from the outage.
func (o *Outage) Covers(kind ops.Kind) bool {
	return o.Mute && kind == ops.RelayLate || o.Deaf && kind == ops.ConsumerAway
}

// Line returns the outage with its consequences and the processes that report it, "" if there is none. waiting is the number of events that should be
// published. The line ends before the Error.
func (o *Outage) Line(waiting int64) string {
	var effects []string
	if o.Mute {
		waits := fmt.Sprintf("%d events wait", waiting)
		if waiting == 1 {
			waits = "1 event waits"
		}
		effects = append(effects, "nothing is published, "+waits)
	}
	if o.Deaf {
		effects = append(effects, "consumers receive nothing")
	}
	if effects == nil {
		return ""
	}
	from := strings.Join(o.Processes, ", ")
	said := " cannot be reached from " + from + " since " + o.Since.UTC().Format(time.TimeOnly) + " UTC: " + strings.Join(effects, "; ")
	if !o.Deaf { // it may answer, and refuse
		said = " has taken nothing since " + o.Since.UTC().Format(time.TimeOnly) + " UTC: " + strings.Join(effects, "; ") + ". Reported by " + from
	}
	return cmp.Or(o.Broker, "The broker") + said
}
