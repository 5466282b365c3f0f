package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// cutOff finds processes of the service that report missing connections although the broker has answered here: the
// fault lies between them and the broker. It also returns their consumers, so that the other checks do not advise to
// start another process, which would not help.
func (e *examination) cutOff(ctx context.Context) (found []Finding, of []messaging.Subscription, err error) {
	states, err := e.inbox.State().Consumers(ctx)
	for n := range states {
		for _, t := range states[n].Topics {
			since, names, why := unconnected(t.Processes)
			if names == "" || len(e.Topics) > 0 && !slices.Contains(e.Topics, t.Topic) {
				continue
			}
			of = append(of, messaging.Subscription{Topic: t.Topic, Name: states[n].Consumer})
			found = append(found, finding(diagnosis.Broker, Problem,
				"mend the connection from these processes to the broker: the network, the host names, the credentials, or their "+e.Broker.Variable()+
					"; they reconnect by themselves",
				"topic %s: the broker answers here, but the processes that run the consumer %s (%s) have lacked connections to it since %s: %s",
				t.Topic, states[n].Consumer, names, since.UTC().Format(time.RFC3339), why))
		}
	}
	return found, of, err
}

// unconnected returns since when, and why, no process of the consumer has had all its connections, and the names of the
// processes. The results are empty if a process has.
func unconnected(all []state.Process) (since time.Time, names, why string) {
	list := make([]string, len(all))
	for n, p := range all {
		if p.State != "away" && p.State != "partly" {
			return time.Time{}, "", ""
		}
		if p.Since.After(since) {
			since, why = p.Since, p.Error
		}
		list[n] = p.Name
	}
	return since, strings.Join(list, ", "), why
}

// relays finds relays that do not publish their events although the broker has answered here.
func (e *examination) relays(ctx context.Context) (found []Finding, err error) {
	overdue, err := e.store.State().Overdue(ctx)
	for _, o := range overdue {
		if !o.Relayed {
			continue
		}
		why := ""
		if o.Error != "" {
			why = ": " + o.Error
		}
		found = append(found, finding(diagnosis.Broker, Problem,
			"read the log of that process, and mend what it says: its connection to the broker, its "+e.Broker.Variable()+", or a topic; if the relay is "+
				"too slow, start more processes that run it",
			"the broker answers, and the relay %[2]s is responsible for the waiting events, but they have waited since %[1]s%[3]s",
			o.Since.UTC().Format(time.RFC3339), o.Owner, why))
	}
	return found, err
}
