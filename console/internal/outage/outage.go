package outage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/words"
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
func Of(list []processes.Process, rows []consumer.Row) (o Outage) {
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
	o.Mute, o.Deaf = relays > 0 && mute == relays, receiveNothing(rows)
	if !o.Mute && !o.Deaf {
		return Outage{}
	}
	slices.Sort(o.Processes)
	return o
}

// receiveNothing reports whether no consumer that runs has a connection at any topic. Paused consumers want none.
func receiveNothing(rows []consumer.Row) bool {
	away := 0
	for n := range rows {
		for _, t := range rows[n].Topics {
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

// Line returns the outage with its consequences in a sentence, "" if there is none. waiting is the number of events that should be published.
func (o *Outage) Line(waiting int64) string {
	var effects []string
	if o.Mute {
		effects = append(effects, "nothing is published, "+words.Counted(waiting, "event waits", "events wait"))
	}
	if o.Deaf {
		effects = append(effects, "consumers receive nothing")
	}
	if effects == nil {
		return ""
	}
	said := " has not answered since "
	if !o.Deaf {
		said = " has taken nothing since " // it may answer, and refuse
	}
	return words.Upper(cmp.Or(o.Broker, "the broker")) + said + o.Since.UTC().Format("15:04:05") + " UTC: " +
		strings.Join(effects, "; ") + ". Say " + strings.Join(o.Processes, ", ") + ": " + words.Cause(o.Error)
}
