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
	// Broker is what it is called, and Since when the first of Processes noticed.
	Broker string
	Since  time.Time
	// Error is the reason that this process gives. Processes are those from which it cannot be reached. A process with another problem is not among them.
	Error     string
	Processes []string
	// Mute: nothing is published. Deaf: no consumer receives anything.
	Mute, Deaf bool
}

// Of returns the outage that the living processes report, with what they report about their consumers.
func Of(list []processes.Process, consumers []state.Consumer) (o Outage) {
	o.Mute, o.Deaf = publishNothing(list), receiveNothing(consumers)
	for n := range list {
		p := &list[n]
		if o.Mute && p.Alive && p.Publishing.Topic == "" {
			o.add(p, &p.Publishing)
		}
		if o.Deaf && p.Alive {
			o.add(p, &p.Receiving)
		}
	}
	if len(o.Processes) == 0 { // no process says why: it has just begun, and its consumers have no connection yet
		return Outage{}
	}
	slices.Sort(o.Processes)
	o.Processes = slices.Compact(o.Processes)
	return o
}

// publishNothing reports whether the broker takes nothing from any relay that runs. A topic that takes nothing is another fault.
func publishNothing(list []processes.Process) bool {
	mute := false
	for n := range list {
		if p := &list[n]; p.Alive && p.Lanes > 0 {
			if mute = p.Publishing.IsSet() && p.Publishing.Topic == ""; !mute {
				return false
			}
		}
	}
	return mute
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

// add adds a fault of a process, if it has it.
func (o *Outage) add(p *processes.Process, fault *processes.Fault) {
	if !fault.IsSet() {
		return
	}
	o.Processes = append(o.Processes, p.Name)
	o.Broker = cmp.Or(o.Broker, p.Broker)
	if o.Since.IsZero() || fault.Since.Before(o.Since) {
		o.Since, o.Error = fault.Since, fault.Error
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
